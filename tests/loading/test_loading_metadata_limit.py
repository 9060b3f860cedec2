"""Limits of what is read as a whole: footers and deletion vectors; the error names the option."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from loading_tables import File, column, write_table

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import DataError
from delta_sharing_client.server import SharingServer

LIMIT = 20_000
COLUMNS = [column("id", "long"), column("text", "string")]
ROWS = 200_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharingServer]:
    root = tmp_path_factory.mktemp("limits")
    rng = random.Random(7)
    notes = {"notes": "".join(rng.choices("abcdefgh", k=200_000))}
    short = pa.table({"id": [1], "text": ["a"]}).replace_schema_metadata(notes)
    long = pa.table({"id": range(ROWS), "text": [rng.randbytes(8).hex() for _ in range(ROWS)]})
    every_third = range(0, ROWS, 3)
    plain = {"compression": "none"}
    tables = {
        "s.s.small": [File(rows=short, name="a.parquet")],
        "s.s.large": [File(rows=long.replace_schema_metadata(notes), name="a.parquet", options=plain)],
        "s.s.deleted": [File(rows=long, name="a.parquet", vector=every_third)],
    }
    with SharingServer(
        {
            name: write_table(root / name, COLUMNS, files, features=["deletionVectors"])
            for name, files in tables.items()
        }
    ) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "scan", "part"),
    [
        ("small", {}, "footer"),
        ("large", {}, "footer"),
        ("large", {"columns": ["id"]}, "footer"),
        ("large", {"limit": 1}, "footer"),
        ("deleted", {}, "deletion vector"),
        ("deleted", {"columns": ["id"]}, "deletion vector"),
    ],
)
def test_a_larger_part_is_refused_and_named(
    server: SharingServer, connect: Callable[..., SharingClient], name: str, scan: dict[str, Any], part: str
) -> None:
    table = connect(server, metadata_limit=LIMIT).table(f"s.s.{name}")
    with pytest.raises(DataError, match=rf"its {part} has [\d,]+ bytes; .*metadata_limit allows 20,000") as raised:
        table.scan(**scan).to_arrow()
    assert raised.value.file_id is not None
    expected = connect(server).table(f"s.s.{name}").scan(**scan).to_arrow()
    assert expected.num_rows == scan.get("limit", {"small": 1, "large": ROWS, "deleted": ROWS * 2 // 3}[name])


@pytest.mark.parametrize(("name", "part"), [("small", "footer"), ("deleted", "deletion vector")])
def test_a_mirror_refuses_it_too(
    server: SharingServer, connect: Callable[..., SharingClient], tmp_path: Path, name: str, part: str
) -> None:
    table = connect(server, metadata_limit=LIMIT).table(f"s.s.{name}")
    with pytest.raises(DataError, match=rf"its {part} has [\d,]+ bytes; .*metadata_limit allows 20,000"):
        table.mirror(tmp_path / "mirror").sync()
    connect(server).table(f"s.s.{name}").mirror(tmp_path / "mirror").sync()
