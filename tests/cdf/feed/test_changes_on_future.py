"""Ranges of changes that start or end after the last commit: an error, or ``on_future="latest"``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from change_tables import ChangeTable, rows

import delta_sharing_client as ds
from delta_sharing_client.cdf.checkpoint import Position
from delta_sharing_client.errors import BadRequestError
from delta_sharing_client.server import SharingServer

LATER = "2999-01-01T00:00:00Z"
STARTS_LATER: list[dict[str, Any]] = [
    {"starting_version": 3},
    {"starting_version": 3, "ending_version": 4},
    {"starting_timestamp": LATER},
    {"starting_timestamp": LATER, "ending_timestamp": LATER},
]
ENDS_LATER: list[dict[str, Any]] = [{"ending_version": 9}, {"ending_timestamp": LATER}]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SharingServer]:
    source = ChangeTable(tmp_path / "t")
    for number in range(3):
        source.commit(source.add(f"f{number}", rows(number)))
    with SharingServer({"s.d.t": source.root}) as running:
        yield running


@pytest.fixture
def table(server: SharingServer) -> Iterator[ds.SharedTable]:
    with ds.SharingClient(server.profile) as client:
        yield client.table("s.d.t")


@pytest.mark.parametrize("given", STARTS_LATER)
def test_starts_after_the_last_commit(table: ds.SharedTable, given: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError, match="no changes with on_future='latest'"):
        table.changes(**given).to_arrow()
    changes = table.changes(**given, on_future="latest")
    none = table.changes(0).to_arrow().slice(0, 0)
    assert changes.to_arrow().equals(none)
    assert changes.schema == none.schema
    assert changes.count() == 0
    assert changes.explain()
    with pytest.raises(ValueError, match="leave out on_future"):
        changes.materialize("copy")


@pytest.mark.parametrize("end", ENDS_LATER)
def test_ends_after_the_last_commit(table: ds.SharedTable, end: dict[str, Any]) -> None:
    found = table.changes(0, **end, on_future="latest").to_arrow()
    assert found.equals(table.changes(0).to_arrow())
    assert found.num_rows == 3


@pytest.mark.parametrize("end", ENDS_LATER)
def test_a_server_that_refuses_later_ends(
    table: ds.SharedTable, end: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded server ends such a range at the last commit by itself, which not every server does."""
    client = type(table._rest)
    answer = client.table_changes
    expected = table.changes(0).to_arrow()

    def refusing(self: Any, name: Any, request: Any, *convert: Any) -> Any:
        if request.ending_timestamp is not None or (request.ending_version or 0) > 2:
            raise BadRequestError(status=400, subject="the table", server_message="the end is later")
        return answer(self, name, request, *convert)

    monkeypatch.setattr(client, "table_changes", refusing)
    with pytest.raises(BadRequestError, match="the end is later"):
        table.changes(0, **end).to_arrow()
    assert table.changes(0, **end, on_future="latest").to_arrow().equals(expected)


def test_pollers_have_no_such_option(table: ds.SharedTable) -> None:
    with table.poll_changes(starting_timestamp="1999-01-01") as poller, pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(poller._rest), "table_version", lambda *_: 9)
        poller._position = Position(table="s.d.t", next_version=7)
        with pytest.raises(ds.DeltaSharingError) as caught:
            poller.pull()
    assert "on_future" not in str(caught.value)


def test_other_refusals_are_raised(table: ds.SharedTable) -> None:
    with pytest.raises(BadRequestError, match="newer than the timestamp"):
        table.changes(0, ending_timestamp="1999-01-01", on_future="latest").to_arrow()
    with pytest.raises(ValueError, match="on_future is 'now'"):
        table.changes(0, on_future="now")  # type: ignore[arg-type]


def test_of_functions(server: SharingServer, tmp_path: Path) -> None:
    profile = tmp_path / "config.share"
    profile.touch(0o600)
    profile.write_text(json.dumps(server.profile))
    url = f"{profile}#s.d.t"
    given: dict[str, Any] = {"starting_timestamp": LATER, "on_future": "latest"}
    assert ds.load_table_changes_as_arrow(url, **given).num_rows == 0
    assert list(ds.load_table_changes_as_pandas(url, **given)) == list(ds.load_table_changes_as_pandas(url, 0))
