"""Files in the layouts of other writers, as data files of tables; see `layout_cases.py`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden.layout_cases import LAYOUTS, Layout

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import DataError
from delta_sharing_client.server import SharingServer

FILES = Path(__file__).parent / "layouts"
PYARROW = int(pa.__version__.partition(".")[0])
CASES = [pytest.param(name, layout, id=name) for name, layout in LAYOUTS.items()]


def readable(layout: Layout) -> bool:
    return layout.refused is None and layout.since <= PYARROW


def write_table(directory: Path, name: str, layout: Layout) -> Path:
    """A table of two files: the case's, and one of another layout that has none of its columns but `id`."""
    log = directory / "_delta_log"
    log.mkdir(parents=True)
    other = "texts" if name != "texts" else "bytes"
    lines: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": name,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(layout.schema),
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]
    for moment, case in enumerate((name, other) if disjoint(layout, LAYOUTS[other]) else (name,)):
        file = directory / f"{case}.parquet"
        shutil.copy(FILES / file.name, file)
        size = file.stat().st_size
        action = {"path": file.name, "partitionValues": {}, "size": size, "modificationTime": moment}
        lines.append({"add": action | {"dataChange": True}})
    if uses_ntz(layout):
        features = ["timestampNtz"]
        lines[0]["protocol"] = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    (log / f"{0:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def disjoint(one: Layout, other: Layout) -> bool:
    return not {name.lower() for name in one.fields} & {name.lower() for name in other.fields}


def uses_ntz(layout: Layout) -> bool:
    return "timestamp_ntz" in json.dumps(layout.schema)


#: Servers send tables with `timestamp_ntz` columns in delta format only.
CASES_BY_FORMAT = [
    pytest.param(name, layout, response_format, id=f"{name}-{response_format}")
    for name, layout in LAYOUTS.items()
    for response_format in ("delta", "parquet")
    if response_format == "delta" or not uses_ntz(layout)
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharingClient]:
    root = tmp_path_factory.mktemp("layouts")
    with SharingServer({f"s.d.{n}": write_table(root / n, n, case) for n, case in LAYOUTS.items()}) as server:
        yield SharingClient(server.profile)


def test_every_file_has_its_case() -> None:
    assert {file.stem for file in FILES.iterdir()} == set(LAYOUTS)


@pytest.mark.parametrize(("name", "layout", "response_format"), CASES_BY_FORMAT)
def test_rows(client: SharingClient, name: str, layout: Layout, response_format: Any) -> None:
    scan = client.table(f"s.d.{name}").scan(response_format=response_format)
    if not readable(layout):
        with pytest.raises(DataError, match=layout.refused or ""):
            scan.to_arrow()
        return
    table = scan.to_arrow()
    table.validate(full=True)
    assert table.column_names == ["id", *layout.fields]
    rows = list(zip(*[column.to_pylist() for column in table.columns[1:]], strict=True))
    assert rows[: len(layout.rows)] == layout.rows
    # What the other file lacks is null there.
    assert all(value is None for row in rows[len(layout.rows) :] for value in row)
    assert scan.count() == table.num_rows


@pytest.mark.parametrize(("name", "layout"), [case for case in CASES if readable(case.values[1])])
def test_one_column_of_some_rows(client: SharingClient, name: str, layout: Layout) -> None:
    for position, column in enumerate(layout.fields):
        found = client.table(f"s.d.{name}").scan(columns=[column], filters=[("id", "=", 1)]).to_arrow()
        assert found.column(0).to_pylist()[0] == layout.rows[0][position]
