"""Column names with special characters."""

from __future__ import annotations

from writers.kit import GoldenTable, case

_INSERT = (
    "(1, 'dotted', 'quoted', 'accented', 'dashed', 'percent', 'upper', named_struct('in.ner', 1, 'Ünter', 'a'))",
    "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
)


@case("Dots, quotes, unicode, dashes and percent signs in names, without column mapping.")
def special_names(t: GoldenTable) -> None:
    t.create(
        "id INT, `a.b` STRING, `quo\"te'd` STRING, `größe_漢字` STRING, `da-sh/ed` STRING, `per%cent` STRING, "
        "`UPPER` STRING, `st.ruct` STRUCT<`in.ner`: INT, `Ünter`: STRING>"
    )
    t.insert(*_INSERT)
    t.insert("(3, 'd', 'q', 'a', '-', '%', 'U', named_struct('in.ner', 3, 'Ünter', ''))")


@case("Names that only column mapping allows: spaces, commas, braces, tabs and equals signs.")
def special_names_mapped(t: GoldenTable) -> None:
    t.create(
        "id INT, `a b` STRING, `,;{}()` STRING, `tab\there` STRING, `x=y` STRING, `back``tick` STRING, ` ` "
        "STRING, "
        "`st ruct` STRUCT<`in ner`: INT, `a,b`: STRING>",
        properties={"columnMapping.mode": "name"},
    )
    t.insert(
        "(1, 'space', 'marks', 'tab', 'equals', 'tick', 'blank', named_struct('in ner', 1, 'a,b', 'c'))",
        "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )


@case("A partition column with a special name, column mapping by name.", key="the id")
def special_partition_name(t: GoldenTable) -> None:
    t.create(
        "`the id` INT, `part, (of) it` STRING, `value` DOUBLE",
        partitioned_by="`part, (of) it`",
        properties={"columnMapping.mode": "name"},
    )
    t.insert("(1, 'a b', 1.5)", "(2, NULL, 2.5)", "(3, 'c/d', NULL)")


@case("Names in mixed case, filled by writes that spell them otherwise.")
def mixed_case(t: GoldenTable) -> None:
    t.create("id INT, CamelCase STRING, lower STRING, Part STRING", partitioned_by="Part")
    t.append("SELECT 1 AS ID, 'a' AS camelcase, 'b' AS LOWER, 'c' AS part")
    t.append("SELECT 2 AS Id, 'd' AS CAMELCASE, 'e' AS Lower, 'f' AS PART")
