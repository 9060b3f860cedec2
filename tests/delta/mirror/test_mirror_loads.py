"""`mirror=` of the functions that load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from growing_tables import Source, rows_of

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.server import SharingServer

Serve = Callable[..., SharingServer]


@pytest.fixture
def server(source: Source, serve: Serve) -> SharingServer:
    return serve({"s.s.t": source.root})


@pytest.fixture
def url(server: SharingServer, tmp_path: Path) -> str:
    profile = tmp_path / "profile.share"
    profile.write_text(json.dumps(server.profile))
    profile.chmod(0o600)
    return f"{profile}#s.s.t"


def test_repeated_loads_fetch_only_what_is_new(
    url: str, source: Source, server: SharingServer, tmp_path: Path
) -> None:
    local = tmp_path / "mirror"
    frame = ds.load_as_pandas(url, mirror=local)
    assert sorted(zip(frame["a"], frame["p"], strict=True)) == source.rows
    server.reset_requests()
    assert len(ds.load_as_pandas(url, mirror=str(local), columns=["a"], filters=[("a", ">", 1)])) == 2
    assert [request.is_file for request in server.requests] == [False]
    source.change([("z", [9])])
    server.reset_requests()
    assert rows_of(ds.load_as_arrow(url, mirror=local)) == source.rows
    assert [request.is_file for request in server.requests].count(True) == 1


def test_versions(url: str, source: Source, server: SharingServer, tmp_path: Path) -> None:
    first = source.rows
    source.change([("z", [9])])
    assert rows_of(ds.load_as_arrow(url, mirror=tmp_path / "m")) == source.rows
    assert rows_of(ds.load_as_arrow(url, version=1, mirror=tmp_path / "m")) == first
    server.reset_requests()
    assert rows_of(ds.load_as_arrow(url, version=2, mirror=tmp_path / "m")) == source.rows
    assert server.requests == []
    with pytest.raises(ValueError, match="a mirror is read by version"):
        ds.load_as_pandas(url, timestamp="2024-01-01", mirror=tmp_path / "m")


def test_frames_are_equal_with_and_without_a_mirror(url: str, tmp_path: Path) -> None:
    plain, mirrored = ds.load_as_pandas(url), ds.load_as_pandas(url, mirror=tmp_path / "m")
    assert plain.dtypes.equals(mirrored.dtypes)
    assert plain.sort_values("a", ignore_index=True).equals(mirrored.sort_values("a", ignore_index=True))


def test_a_directory_of_another_table(url: str, source: Source) -> None:
    with pytest.raises(DeltaLogError, match="not a mirror"):
        ds.load_as_pandas(url, mirror=source.root)
