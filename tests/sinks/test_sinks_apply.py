"""`apply`: a target that stays equal to the shared table, whatever is done to that."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from change_tables import ChangeTable, column, rows
from sink_targets import Target, drain, in_order

from delta_sharing_client.errors import SinkError, SinkKeyColumnError, SinkKeyError
from delta_sharing_client.sinks import WriteResult
from delta_sharing_client.table.shared_table import SharedTable

Share = Callable[..., SharedTable]


def held(shared: SharedTable) -> list[tuple[object, ...]]:
    arrow = shared.scan().to_arrow()
    return in_order(zip(*(c.to_pylist() for c in arrow.columns), strict=True))


class TestApply:
    def test_changes_are_applied_after_a_snapshot(self, table: ChangeTable, share: Share, target: Target) -> None:
        shared = share(table.root)
        with (
            target.sink(mode="apply", keys=["id"]) as sink,
            shared.poll_changes(starting_version="snapshot") as poller,
        ):
            assert drain(poller, sink) == [WriteResult(version=1, inserted=3)]
            # In the order of the server: the row after the update comes before the one before it.
            table.commit(
                table.remove("f0"),
                table.add("f2", rows(2, text="new")),
                table.cdc(
                    "c2",
                    pa.concat_tables([rows(2, text="new"), rows(2), rows(1)]),
                    ["update_postimage", "update_preimage", "delete"],
                ),
            )
            table.commit(table.add("f3", rows(1, text="again")))
            table.commit(table.remove("f3"), table.add("f4", rows(1, 9)))
            (result,) = drain(poller, sink)
            assert (result.version, result.inserted) == (4, 3)
        assert target.rows() == held(shared) == in_order([(1, "1"), (2, "new2"), (3, "3"), (9, "9")])

    def test_a_repeated_batch_is_skipped(self, table: ChangeTable, share: Share, target: Target) -> None:
        shared = share(table.root)
        with target.sink(mode="apply", keys=["id"]) as sink:
            for start in (0, 0):
                with shared.poll_changes(
                    target.path.parent / "c", starting_version=start, max_versions=1
                ) as poller:
                    batch = poller.pull()
                    assert batch is not None
                    again = sink.write(batch).skipped
                    assert sink.last_version(batch.poller_id) == 0
                    assert sink.last_version("another") is None
            assert again
            with shared.poll_changes(target.path.parent / "c") as poller:
                assert [result.skipped for result in drain(poller, sink)] == [True, False]
        assert target.rows() == held(shared)

    def test_only_new_rows_of_a_repeated_batch_are_stored(
        self, table: ChangeTable, share: Share, target: Target, tmp_path: Path
    ) -> None:
        """The checkpoint fell back to a generation before the batch; the table has grown since."""
        shared = share(table.root)
        checkpoint = tmp_path / "c"
        with target.sink(mode="apply", keys=["id"]) as sink:
            with shared.poll_changes(checkpoint, starting_version=0) as poller:
                batch = poller.pull()
                assert batch is not None
                assert sink.write(batch).version == 1
            previous = tmp_path / "c.previous"
            checkpoint.write_bytes(b"damaged")
            assert previous.exists()
            table.commit(table.add("f2", rows(4)))
            with shared.poll_changes(checkpoint) as poller:
                batch = poller.pull()
                assert batch is not None
                assert (batch.first_version, batch.last_version) == (0, 2)
                assert sink.write(batch) == WriteResult(version=2, inserted=1)
        assert target.rows() == held(shared)

    def test_a_new_column(self, table: ChangeTable, share: Share, target: Target) -> None:
        shared = share(table.root)
        with (
            target.sink(mode="apply", keys=["ID"]) as sink,
            shared.poll_changes(starting_version="snapshot") as poller,
        ):
            drain(poller, sink)
            more = rows(5).append_column("n", pa.array([7], pa.int32()))
            wider = [column("id", "long"), column("s", "string"), column("n", "integer")]
            table.commit(table.metadata(wider), table.add("f2", more))
            table.commit(table.remove("f1"), table.add("f3", rows(3, text="x")))
            drain(poller, sink)
            assert target.names() == ["id", "s", "n"]
            assert target.rows() == held(shared)

    def test_a_new_column_that_is_not_wanted(self, table: ChangeTable, share: Share, target: Target) -> None:
        shared = share(table.root)
        with (
            target.sink(mode="apply", keys=["id"], add_columns=False) as sink,
            shared.poll_changes(starting_version="snapshot") as poller,
        ):
            drain(poller, sink)
            wider = [column("id", "long"), column("s", "string"), column("n", "integer")]
            table.commit(table.metadata(wider), table.add("f2", rows(5)))
            with pytest.raises(SinkError, match="it lacks the columns 'n'; add them") as raised:
                drain(poller, sink)
            assert raised.value.columns == ("n",)
        assert len(target.rows()) == 3

    def test_starting_over(self, table: ChangeTable, share: Share, target: Target) -> None:
        """A new poller's snapshot takes the place of what an earlier one had brought, other columns and all."""
        shared = share(table.root)
        with target.sink(mode="apply", keys=["id"]) as sink:
            for _ in range(2):
                with shared.poll_changes(starting_version="snapshot") as poller:
                    drain(poller, sink)
                assert target.rows() == held(shared)
                table.commit(table.remove("f1" if table.version == 1 else "f2"), table.add("f2", rows(7)))
            table.commit(
                table.metadata([column("id", "string"), column("x", "date")]),
                table.remove("f2"),
                table.remove("f0"),
                table.add("g", pa.table({"id": ["a"], "x": pa.array([1], pa.date32())})),
            )
            with shared.poll_changes(starting_version="snapshot") as poller:
                drain(poller, sink)
            assert target.names() == ["id", "x"]
            assert target.rows("id") == [("a",)]

    def test_keys_of_several_columns(self, tmp_path: Path, share: Share, target: Target) -> None:
        table = ChangeTable(tmp_path / "source")
        table.commit(table.add("f0", pa.table({"id": [1, 1, 2], "s": ["a", "b", "a"]})))
        shared = share(table.root)
        with (
            target.sink(mode="apply", keys=["id", "s"]) as sink,
            shared.poll_changes(starting_version="snapshot") as poller,
        ):
            drain(poller, sink)
            removed = pa.table({"id": [1, 2], "s": ["b", "b"]})
            table.commit(
                table.remove("f0"),
                table.add("f1", pa.table({"id": [1, 2], "s": ["a", "a"]})),
                table.cdc("c", removed, ["delete", "delete"]),
            )
            drain(poller, sink)
        assert target.rows() == held(shared) == [(1, "a"), (2, "a")]

    def test_a_table_without_rows(self, tmp_path: Path, share: Share, target: Target) -> None:
        table = ChangeTable(tmp_path / "source")
        table.commit()
        shared = share(table.root)
        with (
            target.sink(mode="apply", keys=["id"]) as sink,
            shared.poll_changes(starting_version="snapshot") as poller,
        ):
            assert drain(poller, sink) == [WriteResult(version=0)]
            assert (target.names(), target.rows()) == (["id", "s"], [])
            table.commit(table.add("f", rows(1)))
            table.commit(table.remove("f"))
            drain(poller, sink)
            assert target.rows() == []

    def test_many_versions_at_random(self, tmp_path: Path, share: Share, target: Target) -> None:
        chance = random.Random(5)
        table = ChangeTable(tmp_path / "source")
        live: dict[str, list[int]] = {}
        table.commit()
        shared = share(table.root)
        with (
            target.sink(mode="apply", keys=["id"]) as sink,
            shared.poll_changes(starting_version=0, max_versions=5) as poller,
        ):
            for number in range(40):
                gone = chance.sample(sorted(live), min(len(live), chance.randrange(3)))
                freed = [i for name in gone for i in live.pop(name)]
                taken = {i for ids in live.values() for i in ids}
                ids = [i for i in {*freed, *range(30)} - taken if chance.random() < 0.3]
                live[f"f{number}"] = ids
                table.commit(*map(table.remove, gone), table.add(f"f{number}", rows(*ids, text=f"{number}-")))
                if chance.random() < 0.3:
                    drain(poller, sink)
            drain(poller, sink)
        assert target.rows() == held(shared)


class TestRefused:
    def write(self, table: ChangeTable, share: Share, target: Target, **options: object) -> None:
        start = options.pop("start", "snapshot")
        columns = options.pop("columns", None)
        with (
            target.sink(**{"mode": "apply", "keys": ["id"], **options}) as sink,
            share(table.root).poll_changes(starting_version=start, columns=columns) as poller,  # type: ignore[arg-type]
        ):
            drain(poller, sink)

    def test_a_null_key_raises(self, table: ChangeTable, share: Share, target: Target) -> None:
        table.commit(table.add("f2", pa.table({"id": pa.array([4, None], pa.int64()), "s": ["a", "b"]})))
        for start in ("snapshot", 0):
            with pytest.raises(SinkKeyError, match="key column 'id' is null in 1 rows") as raised:
                self.write(table, share, target, start=start)
            assert raised.value.columns == ("id",)

    def test_a_duplicate_key_raises(self, table: ChangeTable, share: Share, target: Target) -> None:
        table.commit(table.add("f2", rows(3, 4, text="other")))
        with pytest.raises(SinkKeyError, match=r"do not identify .*rows"):
            self.write(table, share, target)
        with pytest.raises(SinkKeyError, match=r"two rows with the key \(id=3\) at version 2"):
            self.write(table, share, target, start=0)

    def test_an_inserted_key_that_the_target_has_raises(
        self, table: ChangeTable, share: Share, target: Target
    ) -> None:
        self.write(table, share, target)
        before = target.rows()
        table.commit(table.add("f2", rows(4, 3, text="other")))
        with pytest.raises(SinkKeyError, match=r"id=3"):
            self.write(table, share, target, start=2)
        assert target.rows() == before

    def test_a_key_column_missing_in_the_batch_raises(
        self, table: ChangeTable, share: Share, target: Target
    ) -> None:
        with pytest.raises(SinkKeyColumnError, match="key column 'id' is not in the batch; it has s") as raised:
            self.write(table, share, target, columns=["s"])
        assert raised.value.columns == ("id",)

    @pytest.mark.parametrize("kind", ["double", "float"])
    def test_a_key_without_equality(self, tmp_path: Path, share: Share, target: Target, kind: str) -> None:
        table = ChangeTable(tmp_path / "source", [column("id", kind)])
        table.commit()
        with pytest.raises(SinkKeyColumnError, match=f"'id' is {kind}, which cannot identify a row"):
            self.write(table, share, target)

    def test_a_column_of_another_type(self, table: ChangeTable, share: Share, target: Target) -> None:
        self.write(table, share, target)
        other = ChangeTable(table.root.with_name("other"), [column("id", "long"), column("s", "integer")])
        other.commit(other.add("f", pa.table({"id": [9], "s": pa.array([1], pa.int32())})))
        with pytest.raises(SinkError, match=r"the column 's' is .*, and the batch has") as raised:
            self.write(other, share, target, start=0)
        assert raised.value.columns == ("s",)

    def test_a_column_that_the_batch_lacks(self, table: ChangeTable, share: Share, target: Target) -> None:
        self.write(table, share, target)
        with pytest.raises(
            SinkError, match="the batch lacks the columns 's', so that mode='apply' cannot fill them"
        ):
            self.write(table, share, target, start=0, columns=["id"])

    def test_a_snapshot_does_not_replace_rows_of_other_writers(
        self, table: ChangeTable, share: Share, target: Target
    ) -> None:
        if target.kind == "delta":
            other = ChangeTable(target.path, configuration={})
            other.commit(other.add("f", rows(100)))
        else:
            text = "VARCHAR" if target.kind == "duckdb" else "TEXT"
            number = "BIGINT" if target.kind == "duckdb" else "INTEGER"
            target.execute(f"CREATE TABLE t (id {number}, s {text})")
            target.execute("INSERT INTO t VALUES (100, '100')")
        with pytest.raises(SinkError, match="a snapshot would replace the rows"):
            self.write(table, share, target)
        assert target.rows() == [(100, "100")]
        self.write(table, share, target, start=0)
        assert len(target.rows()) == 4

    def test_changes_alone_make_no_copy(self, table: ChangeTable, share: Share, target: Target) -> None:
        """What the table held before them would not be in it."""
        table.commit(table.add("f2", rows(8)))
        with pytest.raises(SinkError, match=r"begins at version 2: .*starting_version='snapshot'"):
            self.write(table, share, target, start=2)
        self.write(table, share, target, start=0)
        assert len(target.rows()) == 4

    @pytest.mark.parametrize("target", ["duckdb", "sqlite"], indirect=True)
    def test_changes_after_the_target_was_dropped(
        self, table: ChangeTable, share: Share, target: Target, tmp_path: Path
    ) -> None:
        with target.sink(mode="apply", keys=["id"]) as sink:
            with share(table.root).poll_changes(starting_version="snapshot") as poller:
                drain(poller, sink)
                sink._run("DROP TABLE t")  # type: ignore[attr-defined]
                table.commit(table.add("f2", rows(8)))
                with pytest.raises(
                    SinkError, match="the table does not exist, and rows of this poller were stored"
                ):
                    drain(poller, sink)
            with share(table.root).poll_changes(starting_version="snapshot") as poller:
                drain(poller, sink)
        assert len(target.rows()) == 4


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "apply"}, ValueError),
        ({"keys": ["id"]}, ValueError),
        ({"mode": "merge"}, ValueError),
        ({"mode": "apply", "keys": ["id", "ID"]}, ValueError),
        ({"mode": "apply", "keys": "id"}, TypeError),
        ({"mode": "apply", "keys": {"id"}}, TypeError),
        ({"mode": "apply", "keys": [1]}, TypeError),
    ],
)
def test_contradicting_arguments_raise(target: Target, options: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        target.sink(**options)
