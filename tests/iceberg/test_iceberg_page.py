"""The blocks of docs/iceberg.md run, and its table of types is that of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_server import IcebergServer

from delta_sharing_client.iceberg.schema import _PRIMITIVES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "iceberg.md"


def test_its_blocks_run(iceberg: IcebergServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    iceberg.create("sales.orders", pa.table({"id": [1, 2], "region": ["Europe", "Asia"], "amount": [99.5, 150.0]}))
    (tmp_path / "config.share").write_text(json.dumps(iceberg.profile()))
    (tmp_path / "config.share").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(block, namespace)
    namespace["client"].close()
    assert namespace["europe"].to_dict("list") == {"id": [1], "amount": [99.5]}
    assert namespace["arrow"]["id"].to_pylist() == [2]


def test_its_table_has_every_type() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for kind in _PRIMITIVES:
        name = kind.__name__.removesuffix("Type").lower()
        assert f"`{ {'integer': 'int'}.get(name, name) }`" in text
