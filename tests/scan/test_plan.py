"""Which columns and which files are read."""

import json
import pickle

import pytest

from delta_sharing_client.errors import ColumnError, DataError, ProtocolError, UnsupportedFeatureError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.predicates import And, Not
from delta_sharing_client.model.actions import AddFile, DeletionVector, Metadata
from delta_sharing_client.scan.file_tasks import SkipReason, TaskPlanner, project, read_spec, split_skipped
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.file_lines import FileLineDecoder

SECRET = "s3cr3tS1gn4tur3"
URL = f"https://h/part.parquet?sig={SECRET}"


def table(*fields, partitions=(), **configuration):
    """A table's metadata from (name, type) pairs, the third item being what column mapping needs."""
    items = [
        {"name": name, "type": kind, "nullable": True, "metadata": more[0] if more else {}}
        for name, kind, *more in fields
    ]
    return Metadata(
        "id",
        json.dumps({"type": "struct", "fields": items}),
        partition_columns=tuple(partitions),
        configuration=configuration,
    )


def mapped(name, kind, physical):
    return (name, kind, {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": 1})


MAPPED = {"delta.columnMapping.mode": "name"}
PLAIN = table(("id", "long"), ("Name", "string"), ("x", "double"), ("day", "date"), partitions=["day"])


def file(stats=None, values=None, **more):
    text = stats if stats is None or isinstance(stats, str) else json.dumps(stats)
    return AddFile(SecretUrl(URL), "f1", values or {}, 100, text, **more)


def plan(metadata, action, *filters, columns=None):
    predicate = bind_filters(list(filters), metadata.schema)
    return plan_one(TaskPlanner(read_spec(metadata, columns, predicate)), action)


def plan_one(planner, action):
    (planned,) = planner(FileBlock.of([action]))
    return planned


class TestProject:
    def names(self, columns, metadata=PLAIN):
        return project(metadata.schema, columns).names

    def test_no_list_selects_all_columns_and_an_empty_list_none(self):
        assert project(PLAIN.schema, None) is PLAIN.schema
        assert self.names([]) == []
        assert self.names(()) == []

    @pytest.mark.parametrize("columns", [["x", "id"], ("x", "id"), iter(["x", "id"]), {"x": 1, "id": 2}.keys()])
    def test_columns_are_returned_in_the_requested_order(self, columns):
        assert self.names(columns) == ["x", "id"]

    def test_names_in_another_case_return_the_tables_spelling(self):
        assert self.names(["NAME", "Id"]) == ["Name", "id"]

    def test_an_exact_name_precedes_one_in_another_case(self):
        both = table(("a", "long"), ("A", "string"))
        assert self.names(["A"], both) == ["A"]
        assert self.names(["a", "A"], both) == ["a", "A"]

    def test_a_dot_belongs_to_the_name(self):
        dotted = table(("a", {"type": "struct", "fields": [{"name": "b", "type": "long"}]}), ("a.b", "long"))
        assert self.names(["a.b"], dotted) == ["a.b"]
        with pytest.raises(ColumnError, match=r"'a\.c'"):
            self.names(["a.c"], dotted)

    def test_all_unknown_names_are_listed(self):
        with pytest.raises(ColumnError, match=r"'foo', 'bar'; it has id, Name, x, day") as caught:
            self.names(["id", "foo", "bar"])
        assert caught.value.columns == ("foo", "bar")

    def test_a_similar_name_is_suggested(self):
        with pytest.raises(ColumnError, match=r"no column 'dya', 'nmae'; it has .*; did you mean 'day', 'Name'\?"):
            self.names(["dya", "nmae"])

    @pytest.mark.parametrize("columns", [["id", "id"], ["id", "ID"], ["id", "x", "id"]])
    def test_a_duplicate_column_raises(self, columns):
        with pytest.raises(ColumnError, match="twice"):
            self.names(columns)

    @pytest.mark.parametrize("columns", ["id", b"id", [1], ["id", None], [["id"]]])
    def test_anything_but_a_list_of_names_raises(self, columns):
        with pytest.raises(TypeError, match="columns takes"):
            self.names(columns)

    def test_names_in_any_writing(self):
        odd = table(("ünï cödé", "long"), ("🦆", "long"), ('q"', "long"), ("", "long"))
        assert self.names(["🦆", "ÜNÏ CÖDÉ", "", 'q"'], odd) == ["🦆", "ünï cödé", "", 'q"']


class TestReadSpec:
    def test_all(self):
        spec = read_spec(PLAIN, None, None)
        assert spec.output == PLAIN.schema
        assert spec.extra == ()
        assert spec.partition_columns == {"day"}
        assert spec.mapping == "none"
        assert spec.predicate is None
        assert spec.variant == "struct"

    def test_columns_that_only_the_filter_needs(self):
        predicate = bind_filters(
            [[("x", ">", 1), ("id", "=", 1)], [("x", "<", 0), ("Name", "is", None)]], PLAIN.schema
        )
        spec = read_spec(PLAIN, ["id"], predicate)
        assert spec.output.names == ["id"]
        assert [f.name for f in spec.extra] == ["x", "Name"]
        assert [f.name for f in spec.fields] == ["id", "x", "Name"]
        assert read_spec(PLAIN, None, predicate).extra == ()

    def test_partition_columns_by_the_tables_names(self):
        assert read_spec(table(("Day", "date"), partitions=["DAY"]), None, None).partition_columns == {"Day"}
        both = table(("day", "date"), ("DAY", "date"), partitions=["DAY"])
        assert read_spec(both, None, None).partition_columns == {"DAY"}
        assert read_spec(table(("a", "long"), partitions=["gone"]), None, None).partition_columns == frozenset()

    def test_partition_columns_that_are_not_read_count_too(self):
        assert read_spec(PLAIN, ["id"], None).partition_columns == {"day"}

    def test_column_mapping(self):
        assert read_spec(table(mapped("a", "long", "p"), **MAPPED), None, None).mapping == "name"
        with pytest.raises(UnsupportedFeatureError):
            read_spec(table(("a", "long"), **{"delta.columnMapping.mode": "fancy"}), None, None)

    def test_pickles(self):
        spec = read_spec(PLAIN, ["id"], bind_filters([("x", ">", 1)], PLAIN.schema), "json")
        assert pickle.loads(pickle.dumps(spec)) == spec
        hash(spec)


class TestTasks:
    def test_a_task_has_all_fields_of_its_file(self):
        vector = DeletionVector("p", SecretUrl(URL), 10, 3, 1)
        action = file(
            {"numRecords": 10},
            {"day": "2024-01-01"},
            expiration_timestamp=5,
            deletion_vector=vector,
            deletion_vector_file_id="v1",
        )
        task = plan(PLAIN, action)
        assert (task.url.reveal(), task.file_id, task.size) == (URL, "f1", 100)
        assert task.partition_values == {"day": "2024-01-01"}
        assert (task.num_records, task.row_count, task.expiration) == (10, 7, 5)
        assert (task.deletion_vector, task.deletion_vector_id) == (vector, "v1")
        assert task.all_rows_match
        assert task.constants == {}

    def test_row_counts(self):
        assert plan(PLAIN, file()).row_count is None
        assert plan(PLAIN, file("nonsense")).row_count is None
        assert plan(PLAIN, file({"numRecords": 0})).row_count == 0
        assert (
            plan(
                PLAIN, file({"numRecords": 2}, deletion_vector=DeletionVector("i", SecretUrl("x"), 1, 5))
            ).row_count
            == 0
        )

    def test_files_of_a_partition_share_their_values(self):
        make = TaskPlanner(read_spec(PLAIN, None, None))
        days = ["2024-01-01", "2024-01-01", "2024-01-02"]
        first, second, other = make(FileBlock.of([file(values={"day": day}) for day in days]))
        assert first.partition_values is second.partition_values
        assert other.partition_values == {"day": "2024-01-02"}

    @pytest.mark.parametrize("terms", [None, [("day", ">", "2024-01-01")]])
    @pytest.mark.parametrize("form", ["parquet", "delta"])
    def test_many_files_at_once_are_planned_as_one_by_one(self, form, terms):
        lines = []
        for number in range(7):
            told = {"id": f"f{number}", "expirationTimestamp": 5 + (number == 6)}
            contents = {
                "size": 10 + number,
                "partitionValues": [{"day": "2024-01-01"}, {"day": "2024-01-02"}, {"day": None}][number % 3],
                "stats": ['{"numRecords":3}', None, '{"tightBounds":true,"numRecords":4}'][number // 3],
            }
            if form == "delta":
                told["deltaSingleAction"] = {"add": {"path": URL, **contents}}
            else:
                told |= {"url": URL, **contents}
            lines.append(json.dumps({"file": told}).encode())
        make = TaskPlanner(read_spec(PLAIN, None, bind_filters(terms, PLAIN.schema) if terms else None))
        for some in (lines, lines[:1], lines[:3], lines[6:], lines[0::3]):
            files = FileLineDecoder(is_delta=form == "delta").decode(b"\n".join(some))
            tasks = make(files)
            assert tasks == [plan_one(make, action) for action in files]
            assert len(tasks) == len(some) == len(files)
        same = make(FileLineDecoder(is_delta=form == "delta").decode(b"\n".join(lines[0::3])))
        assert terms or len({id(task.partition_values) for task in same}) == 1

    def test_skipped_files_are_counted_by_reason(self):
        task = plan(PLAIN, file())
        assert split_skipped([task, task]) == ([task, task], {})
        made = [SkipReason.STATS, task, SkipReason.STATS, SkipReason.PARTITION]
        assert split_skipped(made) == ([task], {SkipReason.STATS: 2, SkipReason.PARTITION: 1})

    def test_reprs_show_no_url(self):
        task = plan(PLAIN, file(deletion_vector=DeletionVector("p", SecretUrl(URL), 10, 3, 1)))
        assert SECRET not in repr(task)
        assert "f1" in repr(task)

    def test_pickles(self):
        task = plan(
            PLAIN,
            file({"numRecords": 1}, {"day": None}, deletion_vector=DeletionVector("i", SecretUrl("x"), 1, 5)),
        )
        again = pickle.loads(pickle.dumps(task))
        assert again == task
        assert again.url.reveal() == URL
        hash(task)


class TestPruning:
    def test_by_partition_values(self):
        action = file(values={"day": "2024-01-05"})
        for term, kept in [
            (("day", "=", "2024-01-05"), True),
            (("day", "=", "2024-01-06"), False),
            (("day", ">", "2024-01-05"), False),
            (("day", "in", ["2024-01-06"]), False),
            (("day", "is", None), False),
            (("day", "is not", None), True),
        ]:
            task = plan(PLAIN, action, term)
            if kept:
                assert task.all_rows_match
            else:
                assert task is SkipReason.PARTITION

    @pytest.mark.parametrize("text", [None, "", "__HIVE_DEFAULT_PARTITION__"])
    def test_by_a_null_partition(self, text):
        action = file(values={"day": text})
        assert plan(PLAIN, action, ("day", "=", "2024-01-05")) is SkipReason.PARTITION
        assert plan(PLAIN, action, ("day", "!=", "2024-01-05")) is SkipReason.PARTITION
        assert plan(PLAIN, action, ("day", "is", None)).all_rows_match

    def test_by_a_partition_column_in_another_case(self):
        action = file(values={"DAY": "2024-01-05"})
        assert plan(PLAIN, action, ("Day", "=", "2024-01-06")) is SkipReason.PARTITION

    def test_a_missing_partition_value_skips_no_file(self):
        task = plan(PLAIN, file(), ("day", "=", "2024-01-06"))
        assert not task.all_rows_match

    def test_a_malformed_partition_value(self):
        with pytest.raises(DataError, match=r"file f1: partition column 'day': 'x' is not a date") as caught:
            plan(PLAIN, file(values={"day": "x"}), ("day", "=", "2024-01-06"))
        assert caught.value.file_id == "f1"
        assert plan(PLAIN, file(values={"day": "x"}), ("id", "=", 1))

    def test_a_value_of_a_column_that_does_not_partition_skips_no_file(self):
        assert not plan(PLAIN, file(values={"id": "1"}), ("id", "=", 2)).all_rows_match

    STATS = {
        "numRecords": 10,
        "minValues": {"id": 10, "Name": "b", "x": 1.0},
        "maxValues": {"id": 20, "Name": "d", "x": 2.0},
        "nullCount": {"id": 0, "Name": 2, "x": 0},
    }

    @pytest.mark.parametrize(
        ("term", "expected"),
        [
            (("id", "<", 10), SkipReason.STATS),
            (("id", "<=", 10), False),
            (("id", ">=", 10), False),
            (("id", "in", [1, 2, 30]), SkipReason.STATS),
            (("id", "not in", [1, 2, 30]), False),
            (("id", "is", None), SkipReason.STATS),
            (("id", "is not", None), False),
            (("Name", ">=", "b"), False),
            (("Name", ">", "e"), SkipReason.STATS),
            (("Name", "is", None), False),
            (("x", ">", 3), SkipReason.STATS),
            (("x", "<", 3), False),
            (("x", "!=", 3), False),
            (("x", "is not", None), False),
        ],
    )
    def test_by_statistics(self, term, expected):
        task = plan(PLAIN, file(self.STATS), term)
        assert task is expected if isinstance(expected, SkipReason) else task.all_rows_match is expected

    def test_statistics_that_prove_a_filter_do_not_vouch_for_the_rows(self):
        """Writers cut, round and saturate; what partition values alone decide is exact."""
        stats = {"numRecords": 5, "minValues": {"id": 7}, "maxValues": {"id": 7}, "nullCount": {"id": 0}}
        action = file(stats, {"day": "2024-01-05"})
        assert not plan(PLAIN, action, ("id", "=", 7)).all_rows_match
        assert plan(PLAIN, action, ("day", "=", "2024-01-05")).all_rows_match

    def test_statistics_skip_files_with_deletion_vectors_too(self):
        vector = DeletionVector("i", SecretUrl("x"), 1, 9)
        for more in ({}, {"tightBounds": False}):
            action = file(self.STATS | more, deletion_vector=vector)
            assert plan(PLAIN, action, ("id", "<", 10)) is SkipReason.STATS
            task = plan(PLAIN, action, ("id", ">=", 10))
            assert not task.all_rows_match
            assert task.row_count == 1

    def test_loose_counts_of_nulls(self):
        stats = {"numRecords": 10, "tightBounds": False}
        assert plan(PLAIN, file(stats | {"nullCount": {"id": 0}}), ("id", "is", None)) is SkipReason.STATS
        assert plan(PLAIN, file(stats | {"nullCount": {"id": 10}}), ("id", "is not", None)) is SkipReason.STATS
        for nulls in (1, 9):
            for op in ("is", "is not"):
                assert not plan(PLAIN, file(stats | {"nullCount": {"id": nulls}}), ("id", op, None)).all_rows_match

    def test_partition_values_come_before_statistics(self):
        """Writers leave partition columns out of the statistics; old ones there mean nothing."""
        action = file({"numRecords": 1, "minValues": {"day": "2030-01-01"}}, {"day": "2024-01-05"})
        assert plan(PLAIN, action, ("day", "=", "2024-01-05")).all_rows_match

    def test_several_terms(self):
        action = file(self.STATS, {"day": "2024-01-05"})
        assert plan(PLAIN, action, ("day", "=", "2024-01-05"), ("id", "<", 10)) is SkipReason.STATS
        assert plan(PLAIN, action, ("day", "=", "2024-01-06"), ("id", ">", 10)) is SkipReason.PARTITION
        assert not plan(PLAIN, action, [("day", "=", "2024-01-06")], [("id", ">=", 10)]).all_rows_match
        assert not plan(PLAIN, action, ("day", "=", "2024-01-05"), ("id", ">=", 10)).all_rows_match
        assert plan(PLAIN, action, [("day", "=", "2024-01-05")], [("id", "=", 10)]).all_rows_match
        assert plan(PLAIN, action, [("day", "=", "2024-01-06")], [("id", "<", 10)]) is SkipReason.STATS

    def test_a_filter_that_nothing_passes(self):
        predicate = bind_filters([("id", "is", None)], PLAIN.schema)
        spec = read_spec(PLAIN, None, And((predicate, Not(predicate))))
        assert plan_one(TaskPlanner(spec), file(self.STATS)) is SkipReason.STATS

    @pytest.mark.parametrize(
        "stats", [None, "", "nonsense", "[]", "{}", '{"numRecords":5}', '{"minValues":{"id":"x"}}']
    )
    def test_without_statistics_a_file_is_read(self, stats):
        task = plan(PLAIN, file(stats), ("id", "=", 5))
        assert not isinstance(task, SkipReason)
        assert not task.all_rows_match


class TestColumnMapping:
    METADATA = table(
        mapped("a", "long", "b"),
        mapped("b", "string", "a"),
        mapped("d", "date", "col-d"),
        partitions=["d"],
        **MAPPED,
    )

    def test_statistics_go_by_physical_names(self):
        """The names are swapped: what is said of `b` is said of the column `a`."""
        action = file({"numRecords": 1, "minValues": {"a": "x", "b": 5}, "maxValues": {"a": "x", "b": 5}})
        assert plan(self.METADATA, action, ("a", "=", 6)) is SkipReason.STATS
        assert not isinstance(plan(self.METADATA, action, ("a", "=", 5)), SkipReason)
        assert plan(self.METADATA, action, ("b", "=", "y")) is SkipReason.STATS
        assert not isinstance(plan(self.METADATA, action, ("b", "=", "x")), SkipReason)

    @pytest.mark.parametrize("values", [{"col-d": "2024-01-05"}, {"d": "2024-01-05"}, {"COL-D": "2024-01-05"}])
    def test_partition_values_go_by_physical_names_or_plain_ones(self, values):
        assert plan(self.METADATA, file(values=values), ("d", "=", "2024-01-06")) is SkipReason.PARTITION
        assert plan(self.METADATA, file(values=values), ("d", "=", "2024-01-05")).all_rows_match

    def test_a_column_without_a_physical_name(self):
        broken = table(("a", "long"), **MAPPED)
        with pytest.raises(ProtocolError, match="'a' has no physical name"):
            plan(broken, file({"numRecords": 1}), ("a", "=", 1))
