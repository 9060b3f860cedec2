"""Read Data from a Table: formats, time travel, hints, limits, pages, EndStreamAction, refresh tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conformance_targets import (
    EVOLVED,
    LATEST,
    ORDERS,
    TYPED,
    TYPED_VALUES,
    Target,
    at_hour,
    path_of,
    typed_rows,
)
from deltalake import DeltaTable
from hint_oracle.pruning import prune

from delta_sharing_client.delta.log import DeltaLog
from delta_sharing_client.errors import BadRequestError, VersionMismatchError
from delta_sharing_client.model.names import Table
from delta_sharing_client.wire.requests import QueryRequest

END = "includeendstreamaction=true"


@pytest.fixture(scope="module")
def rows_of(tables: dict[str, Path]) -> Callable[[int], list[dict[str, Any]]]:
    """What deltalake reads of a version of `orders`."""
    kept: dict[int, list[dict[str, Any]]] = {}

    def read(version: int) -> list[dict[str, Any]]:
        if version not in kept:
            table = DeltaTable(str(tables[ORDERS]), version=version).to_pyarrow_table()
            kept[version] = sorted(table.to_pylist(), key=lambda row: row["id"])
        return kept[version]

    return read


def load(target: Target, table: str = ORDERS, **scan: Any) -> list[dict[str, Any]]:
    rows = target.client.table(table).scan(**scan).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


class TestSnapshots:
    def test_the_latest(
        self, target: Target, response_format: Any, rows_of: Callable[[int], list[dict[str, Any]]]
    ) -> None:
        assert load(target, response_format=response_format) == rows_of(LATEST)
        assert load(target) == rows_of(LATEST)

    @pytest.mark.parametrize("version", [0, EVOLVED - 1, EVOLVED, LATEST - 1])
    def test_by_version_and_by_time(
        self, target: Target, version: int, rows_of: Callable[[int], list[dict[str, Any]]]
    ) -> None:
        points: list[dict[str, Any]] = [
            {"version": version, "response_format": "delta"},
            {"timestamp": at_hour(version), "response_format": "parquet"},
            {"timestamp": (at_hour(version) + timedelta(minutes=59)).isoformat()},
        ]
        for point in points:
            if not target.history:
                with pytest.raises(BadRequestError, match="history is not shared"):
                    load(target, **point)
                continue
            assert load(target, **point) == rows_of(version)
            names = target.client.table(ORDERS).scan(**point).schema.names
            assert ("note" in names) == (version >= EVOLVED)

    def test_missing_versions_and_times_are_refused(self, target: Target) -> None:
        for point in ({"version": LATEST + 1}, {"timestamp": at_hour(-1)}, {"timestamp": "2999-01-01T00:00:00Z"}):
            with pytest.raises(BadRequestError):
                load(target, **point)
        with pytest.raises(ValueError, match="together"):
            load(target, version=1, timestamp=at_hour(1))

    def test_the_versions_header(self, target: Target) -> None:
        assert target.query(ORDERS).version == LATEST
        if target.history:
            assert target.query(ORDERS, version=2).version == 2
            assert {file["version"] for file in target.query(ORDERS, version=2).all("file")} == {2}

    def test_an_answer_for_another_version_is_refused(self, faults: Any) -> None:
        from faults.server import Reply

        from delta_sharing_client import SharingClient

        faults.on("POST", "*", Reply.of_lines({}, headers={"Delta-Table-Version": "8"}))
        with SharingClient(faults.profile) as client, pytest.raises(VersionMismatchError) as caught:
            client.table("s.s.t").scan(version=7).to_arrow()
        assert (caught.value.expected, caught.value.actual) == (7, 8)

    def test_files_are_the_same_in_every_answer(self, target: Target) -> None:
        plain = [file["id"] for file in target.query(ORDERS).all("file")]
        wrapped = [file["id"] for file in target.query(ORDERS, "responseformat=delta").all("file")]
        chosen = wrapped if target.options.get("prefer_format") == "delta" else plain
        assert chosen == [task.file_id for task in target.client.table(ORDERS).scan().files()]
        assert len(set(plain)) == len(plain) == len(wrapped)
        assert (plain == wrapped) != target.like_reference


class TestLimits:
    def test_limits_are_exact(self, target: Target, response_format: Any) -> None:
        scan = target.client.table(ORDERS).scan(response_format=response_format, columns=["id"])
        whole = scan.to_arrow()
        for limit in (0, 1, 7, 10**9):
            assert scan.replace(limit=limit).to_arrow().equals(whole.slice(0, limit))

    def test_the_hint_is_sent_unless_rows_are_filtered(self, newest: Target) -> None:
        assert newest.server is not None
        newest.server.reset_requests()
        table = newest.client.table(ORDERS)
        table.scan(limit=7).to_arrow()
        table.scan(limit=2**40).to_arrow()
        table.scan(limit=7, filters=[("region", "=", "north")]).to_arrow()
        table.scan(limit=0).to_arrow()
        bodies = [request.body for request in newest.server.requests if request.method == "POST"]
        assert [body.get("limitHint") for body in bodies if body is not None] == [7, 2**31 - 1, None]

    def test_limit_hint_leaves_out_files(self, target: Target) -> None:
        every = len(target.query(ORDERS).all("file"))
        counts = [len(target.query(ORDERS, limitHint=limit).all("file")) for limit in (0, 1, 10**6)]
        assert counts[0] == 0
        assert counts[1] < every
        assert counts[2] == every


def operand(name: str, value: Any = None) -> dict[str, Any]:
    kind = "long" if name == "id" else TYPED_VALUES[name][1]
    if value is None:
        return {"op": "column", "name": name, "valueType": kind}
    return {"op": "literal", "value": value, "valueType": kind}


def hint(op: str, *children: dict[str, Any]) -> dict[str, Any]:
    return {"op": op, "children": list(children)}


def served_ids(target: Target, capabilities: str | None = None, **body: Any) -> set[int]:
    """The rows of `typed` whose files a query names; each file is one row, in the order of its id."""
    order = {file: number for number, file in enumerate(_typed_files(target))}
    answer = target.query(TYPED, capabilities, **body)
    return {order[file["id"]] for file in answer.all("file")}


def _typed_files(target: Target) -> list[str]:
    found: dict[int, str] = {}
    for file in target.query(TYPED).all("file"):
        (position,) = [
            number
            for number, row in enumerate(typed_rows())
            if all((file["partitionValues"].get(name) or None) == _text(name, row[name]) for name in TYPED_VALUES)
        ]
        found[position] = file["id"]
    return [found[number] for number in sorted(found)]


def _text(name: str, value: Any) -> str | None:
    return next(
        text for text, known in TYPED_VALUES[name][2] if known == value and (known is None) == (value is None)
    )


class Oracle:
    """A server that prunes by both notations, over `typed`; each file is one row, in the order of its id."""

    def __init__(self, table: Path) -> None:
        self._snapshot = DeltaLog.for_table(table).snapshot()

    def ids(self, *, json_hints: str | None = None, sql_hints: Sequence[str] = ()) -> set[int]:
        every = [add.path for add in self._snapshot.files]
        return {every.index(add.path) for add in prune(self._snapshot, json_hints=json_hints, sql_hints=sql_hints)}


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equal": lambda a, b: a == b,
    "lessThan": lambda a, b: a < b,
    "lessThanOrEqual": lambda a, b: a <= b,
    "greaterThan": lambda a, b: a > b,
    "greaterThanOrEqual": lambda a, b: a >= b,
}
SQL = {"equal": "=", "lessThan": "<", "lessThanOrEqual": "<=", "greaterThan": ">", "greaterThanOrEqual": ">="}
WRITTEN = {"p_float": "1.5", "p_double": "0.1", "p_timestamp": "2022-01-01T00:00:00Z", "p_bool": "true"}


def literal_text(name: str) -> str:
    return WRITTEN.get(name) or str(TYPED_VALUES[name][2][0][0])


class TestHints:
    """A hint may leave in too much, and never leaves out a file with a row that matches."""

    def check(self, name: str, ids: set[int], matching: set[int]) -> None:
        """Check the files that are left in after a hint on a partition column."""
        assert ids >= matching
        if name != "p_float":  # the text of a 32-bit float is not its value: such hints prune nothing here
            assert ids == matching
            assert len(ids) < len(typed_rows())

    @pytest.mark.parametrize("name", TYPED_VALUES)
    def test_json_comparisons_of_every_value_type(self, newest: Target, name: str) -> None:
        rows, wanted = typed_rows(), TYPED_VALUES[name][2][0][1]
        for op, compare in COMPARISONS.items():
            matching = {row["id"] for row in rows if row[name] is not None and compare(row[name], wanted)}
            for tree in (
                hint(op, operand(name), operand(name, literal_text(name))),
                hint(
                    "not",
                    hint(
                        "not",
                        hint(op, operand(name.upper()[:1].lower() + name[1:]), operand(name, literal_text(name))),
                    ),
                ),
            ):
                self.check(name, served_ids(newest, jsonPredicateHints=json.dumps(tree)), matching)

    @pytest.mark.parametrize("name", TYPED_VALUES)
    def test_json_null_checks_of_every_value_type(self, newest: Target, name: str) -> None:
        rows = typed_rows()
        null = hint("isNull", operand(name))
        nulls = {row["id"] for row in rows if row[name] is None}
        self.check(name, served_ids(newest, jsonPredicateHints=json.dumps(null)), nulls)
        others = {row["id"] for row in rows if row[name] is not None}
        self.check(name, served_ids(newest, jsonPredicateHints=json.dumps(hint("not", null))), others)

    def test_json_and_or(self, target: Target) -> None:
        first = hint("equal", operand("p_int", None), operand("p_int", "12"))
        second = hint("equal", operand("p_long", None), operand("p_long", "7"))
        ids = {row["id"]: row for row in typed_rows()}
        either = {number for number, row in ids.items() if row["p_int"] == 12 or row["p_long"] == 7}
        assert served_ids(target, jsonPredicateHints=json.dumps(hint("or", first, second))) == either
        assert served_ids(target, jsonPredicateHints=json.dumps(hint("and", first, second))) == set()
        three = hint("or", first, second, hint("isNull", operand("p_bool")))
        assert served_ids(target, jsonPredicateHints=json.dumps(three)) == {
            number for number, row in ids.items() if number in either or row["p_bool"] is None
        }

    @pytest.mark.parametrize("name", TYPED_VALUES)
    def test_sql_comparisons_of_every_type(self, tables: dict[str, Path], newest: Target, name: str) -> None:
        """The embedded server ignores SQL hints, the oracle reads them."""
        oracle = Oracle(tables[TYPED])

        def check(hint: str, matching: set[int]) -> None:
            assert served_ids(newest, predicateHints=[hint]) >= matching
            self.check(name, oracle.ids(sql_hints=[hint]), matching)

        rows, wanted = typed_rows(), TYPED_VALUES[name][2][0][1]
        text = literal_text(name)
        quoted = text if TYPED_VALUES[name][1] in ("bool", "int", "long", "float", "double") else repr_sql(text)
        for op, compare in COMPARISONS.items():
            matching = {row["id"] for row in rows if row[name] is not None and compare(row[name], wanted)}
            check(f"{name} {SQL[op]} {quoted}", matching)
        turned = {row["id"] for row in rows if row[name] is not None and wanted < row[name]}
        check(f"{quoted} < {name}", turned)
        nulls = {row["id"] for row in rows if row[name] is None}
        check(f"{name} IS NULL", nulls)
        check(f"{name} IS NOT NULL", set(range(len(rows))) - nulls)
        unequal = {row["id"] for row in rows if row[name] is not None and row[name] != wanted}
        check(f"{name} <> {quoted}", unequal)

    def test_sql_hints_are_joined_by_and(self, target: Target) -> None:
        both = ["p_int >= -5", "p_int < 12"]
        assert served_ids(target, predicateHints=both) >= {row["id"] for row in typed_rows() if row["p_int"] == -5}

    @pytest.mark.parametrize(
        "body",
        [
            {"jsonPredicateHints": "{not json"},
            {"jsonPredicateHints": json.dumps({"op": "sounds-like", "children": []})},
            {"jsonPredicateHints": json.dumps(hint("equal", operand("p_int"), operand("p_int", "many")))},
            {"jsonPredicateHints": json.dumps(hint("isNull", {"op": "column", "name": "no", "valueType": "int"}))},
            {"predicateHints": ["p_int LIKE '1%'", "(((", "nope = 1", "p_int = 'x'"]},
        ],
    )
    def test_unknown_hints_filter_nothing(self, target: Target, body: Any) -> None:
        assert served_ids(target, **body) == set(range(len(typed_rows())))

    @pytest.mark.parametrize("name", TYPED_VALUES)
    def test_a_filter_of_the_client_is_exact(self, newest: Target, name: str) -> None:
        rows, wanted = typed_rows(), TYPED_VALUES[name][2][0][1]
        operators: dict[str, Callable[[Any], bool]] = {
            "=": lambda v: v == wanted,
            "!=": lambda v: v != wanted,
            "<": lambda v: v < wanted,
            "<=": lambda v: v <= wanted,
            ">": lambda v: v > wanted,
            ">=": lambda v: v >= wanted,
            "in": lambda v: v == wanted,
            "not in": lambda v: v != wanted,
        }
        scan = newest.client.table(TYPED).scan(columns=["id"])
        for op, keep in operators.items():
            expected = {row["id"] for row in rows if row[name] is not None and keep(row[name])}
            found = scan.replace(filters=[(name, op, [wanted] if "in" in op else wanted)]).to_arrow()
            assert set(found["id"].to_pylist()) == expected, op
        for op in ("is", "is not"):
            expected = {row["id"] for row in rows if (row[name] is None) == (op == "is")}
            assert set(scan.replace(filters=[(name, op, None)]).to_arrow()["id"].to_pylist()) == expected, op

    @pytest.mark.parametrize("name", TYPED_VALUES)
    def test_hints_of_the_client_keep_matching_files(
        self, tables: dict[str, Path], newest: Target, name: str
    ) -> None:
        """Each notation on its own, as a server that knows only that one reads it."""
        assert newest.server is not None
        oracle, rows, wanted = Oracle(tables[TYPED]), typed_rows(), TYPED_VALUES[name][2][0][1]
        filters = [(name, op, wanted) for op in ("=", "!=", "<", "<=", ">", ">=")]
        filters += [(name, "in", [wanted]), (name, "is", None), (name, "is not", None)]
        for one in filters:
            newest.server.reset_requests()
            matching = {row["id"] for row in load(newest, TYPED, columns=["id"], filters=[one])}
            (body,) = [request.body for request in newest.server.requests if request.method == "POST"]
            assert body is not None
            json_hints, sql_hints = body.get("jsonPredicateHints"), body.get("predicateHints", [])
            assert json_hints or sql_hints
            assert matching < set(range(len(rows)))
            for hints in ({"json_hints": json_hints}, {"sql_hints": sql_hints}):
                left_in = oracle.ids(**hints)
                assert left_in >= matching, one
                # Bounds of times are sent with their ends included, because servers cut times differently.
                if any(hints.values()) and name != "p_float":
                    assert len(left_in - matching) <= (name == "p_timestamp"), one

    def test_hints_of_the_client_express_the_filter(self, newest: Target) -> None:
        """The two notations of one filter, on the wire, as the protocol spells them."""
        assert newest.server is not None
        filters = [
            ("p_int", ">=", -5),
            ("p_long", "!=", 7),
            ("p_string", "!=", "Zürich"),
            ("p_date", "<", date(2021, 4, 29)),
            ("p_timestamp", "<=", datetime(2022, 1, 1, tzinfo=UTC)),
            ("p_bool", "=", True),
            ("p_double", ">", 0.5),
            ("p_float", "is not", None),
            ("id", ">", 3),
        ]
        newest.server.reset_requests()
        newest.client.table(TYPED).scan(filters=filters).to_arrow()
        (body,) = [request.body for request in newest.server.requests if request.method == "POST"]
        assert body is not None
        assert json.loads(body["jsonPredicateHints"]) == hint(
            "and",
            hint("greaterThanOrEqual", operand("p_int"), operand("p_int", "-5")),
            hint("not", hint("equal", operand("p_long"), operand("p_long", "7"))),
            hint("not", hint("equal", operand("p_string"), operand("p_string", "Zürich"))),
            hint("lessThan", operand("p_date"), operand("p_date", "2021-04-29")),
            hint("lessThanOrEqual", operand("p_timestamp"), operand("p_timestamp", "2022-01-01T00:00:00Z")),
            hint("equal", operand("p_bool"), operand("p_bool", "true")),
            hint("greaterThan", operand("p_double"), operand("p_double", "0.5")),
            hint("not", hint("isNull", operand("p_float"))),
            hint("greaterThan", operand("id"), operand("id", "3")),
        )
        assert body["predicateHints"] == [
            "p_int >= -5",
            "p_long <> 7",
            "p_string <> 'Zürich'",
            "p_date < '2021-04-29'",
            "p_timestamp <= '2022-01-01T00:00:00Z'",
            "p_bool = true",
            "p_double > 0.5",
            "p_float IS NOT NULL",
        ]

    def test_one_side_of_an_or_is_not_a_hint(self, newest: Target) -> None:
        assert newest.server is not None
        newest.server.reset_requests()
        either = [[("p_int", "=", 12)], [("id", "not in", [1, 2, 3, *range(4, 100)])]]
        assert {row["id"] for row in load(newest, TYPED, filters=either)} == {0, 3}
        (body,) = [request.body for request in newest.server.requests if request.method == "POST"]
        assert body is not None
        assert not {"jsonPredicateHints", "predicateHints"} & set(body)

    def test_hints_on_data_columns(self, newest: Target) -> None:
        assert newest.server is not None
        newest.server.reset_requests()
        either = [[("p_int", "=", 12)], [("id", "=", 0)]]
        assert {row["id"] for row in load(newest, TYPED, filters=either)} == {0, 3}
        (body,) = [request.body for request in newest.server.requests if request.method == "POST"]
        assert body is not None
        assert json.loads(body["jsonPredicateHints"]) == hint(
            "or",
            hint("equal", operand("p_int"), operand("p_int", "12")),
            hint("equal", operand("id"), operand("id", "0")),
        )


def repr_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class TestPages:
    @pytest.mark.parametrize("size", [1, 3, 100])
    def test_pages_add_up_to_the_whole_answer(self, target: Target, response_format: Any, size: int) -> None:
        table = Table.parse(ORDERS)
        whole = target.rest.query_table(table, QueryRequest(formats=(response_format,)))
        paged = target.rest.query_table(table, QueryRequest(formats=(response_format,), max_files=size))
        assert [item.id for item in paged.items] == [item.id for item in whole.items]
        assert (paged.version, paged.protocol, paged.metadata) == (LATEST, whole.protocol, whole.metadata)

    def test_a_page_on_the_wire(self, target: Target) -> None:
        first = target.query(ORDERS, END, maxFiles=2)
        token = first.lines[-1].get("endStreamAction", {}).get("nextPageToken")
        if not target.ends_streams:
            assert token is None
            assert len(first.all("file")) > 2
            return
        assert 1 <= len(first.all("file")) <= 2
        second = target.query(ORDERS, END, maxFiles=2, pageToken=token)
        assert second.lines[:2] == first.lines[:2]
        assert second.version == first.version
        assert not {f["id"] for f in first.all("file")} & {f["id"] for f in second.all("file")}
        assert target.query(ORDERS, END, maxFiles=2, pageToken=token, limitHint=5).status == 400

    def test_following_pages_ask_for_the_same(self, start: Callable[..., Target]) -> None:
        paged = start("paged")
        assert paged.server is not None
        paged.server.reset_requests()
        rows = paged.client.table(ORDERS).scan(filters=[("region", "=", "north")]).to_arrow()
        assert rows.num_rows
        bodies = [request.body for request in paged.server.requests if request.method == "POST"]
        assert len(bodies) > 2
        first, *others = [dict(body or {}) for body in bodies]
        assert "pageToken" not in first
        assert first.pop("includeRefreshToken")  # which only the first page takes
        assert all(body.pop("pageToken") for body in others)
        assert all(body == first for body in others)
        headers = {request.capabilities for request in paged.server.requests if request.method == "POST"}
        assert len(headers) == 1

    def test_a_table_that_changes_between_two_pages(self, start: Callable[..., Target], tmp_path: Path) -> None:
        """The pages stay at the version of the first one."""
        import pyarrow as pa
        from deltalake import write_deltalake

        from delta_sharing_client import SharingClient
        from delta_sharing_client.model.profile import Profile
        from delta_sharing_client.rest.client import RestClient
        from delta_sharing_client.server import SharingServer

        path = str(tmp_path / "t")
        for number in range(4):
            write_deltalake(path, pa.table({"id": [number]}), mode="append")
        with SharingServer({"s.s.t": path}, max_files_per_page=1) as server:
            grown = False

            def convert(protocol: Any, metadata: Any) -> Callable[[Any], Any]:
                nonlocal grown
                if not grown:
                    write_deltalake(path, pa.table({"id": [99]}), mode="append")
                    grown = True
                return list

            with RestClient(Profile.from_dict(server.profile)) as rest:
                answer = rest.query_table(Table("t", "s", "s"), QueryRequest(), convert)
            assert (answer.version, len(answer.items)) == (3, 4)
            with SharingClient(server.profile) as client:
                assert client.table("s.s.t").scan().count() == 5


class TestEndStreamAction:
    def test_end_action_is_last_when_requested(self, target: Target, response_format: Any) -> None:
        answer = target.query(ORDERS, f"responseformat={response_format};{END}")
        ends = [number for number, line in enumerate(answer.lines) if "endStreamAction" in line]
        if target.ends_streams:
            assert ends == [len(answer.lines) - 1]
            expires = answer.all("endStreamAction")[0]["minUrlExpirationTimestamp"]
            assert expires == min(file["expirationTimestamp"] for file in answer.all("file"))
        else:
            assert ends == []
        assert not target.query(ORDERS, f"responseformat={response_format}").all("endStreamAction")

    def test_the_client_reads_answers_with_and_without(
        self, target: Target, rows_of: Callable[[int], list[dict[str, Any]]]
    ) -> None:
        answer = target.rest.query_table(Table.parse(ORDERS), QueryRequest())
        assert (answer.end is not None) == target.ends_streams
        assert load(target) == rows_of(LATEST)


class TestRefreshTokens:
    def test_the_same_files_with_fresh_urls(self, target: Target, response_format: Any) -> None:
        table = Table.parse(ORDERS)
        asked = QueryRequest(formats=(response_format,), include_refresh_token=True)
        first = target.rest.query_table(table, asked)
        token = first.end.refresh_token if first.end is not None else None
        assert (token is not None) == target.ends_streams
        if token is None:
            return
        again = target.rest.query_table(table, QueryRequest(formats=(response_format,), refresh_token=token))
        assert [item.id for item in again.items] == [item.id for item in first.items]
        assert {item.url for item in again.items}.isdisjoint(item.url for item in first.items)
        assert target.fetch(again.items[0].url.reveal()) == target.fetch(first.items[0].url.reveal())

    @pytest.mark.parametrize(
        "body",
        [
            {"version": 1, "includeRefreshToken": True},
            {"timestamp": "2024-01-01T03:00:00Z", "includeRefreshToken": True},
            {"startingVersion": 1, "includeRefreshToken": True},
            {"version": 1, "refreshToken": "x"},
        ],
    )
    def test_only_for_the_latest_snapshot(self, target: Target, body: dict[str, Any]) -> None:
        assert target.query(ORDERS, END, **body).status == 400

    def test_unknown_refresh_token_is_refused(self, target: Target) -> None:
        answer = target.query(ORDERS, END, refreshToken="made up")
        assert answer.status == (400 if target.ends_streams else 200)


@pytest.mark.parametrize(
    "body",
    [{}, {"version": None, "limitHint": None, "predicateHints": None}, {"somethingNew": {"a": 1}}, None],
)
def test_empty_bodies_return_the_whole_table(target: Target, body: Any) -> None:
    answer = (
        target.call("POST", f"{path_of(ORDERS)}/query", json=body)
        if body is not None
        else target.call("POST", f"{path_of(ORDERS)}/query", data=b"")
    )
    assert len(answer.all("file")) == len(target.query(ORDERS).all("file"))
