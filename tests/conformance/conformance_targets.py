"""Servers of the conformance suite, and the tables of the embedded ones."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import requests
from deltalake import DeltaTable, write_deltalake
from loading_tables import File, column, write_table
from waiting import HANG

from delta_sharing_client import SharingClient
from delta_sharing_client.auth.provider import provider_for
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.server import SharingServer

#: Names the profile of a server that the suite is run against as well.
EXTERNAL = "DELTA_SHARING_CONFORMANCE_PROFILE"

#: The embedded server as it has been over the years.
MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "delta": {"prefer_format": "delta"},
    "old": {"prefer_format": "parquet", "all_tables": False, "send_end_stream_action": False},
    "paged": {"page_size": 1, "max_files_per_page": 1},
    "paged-delta": {"page_size": 2, "max_files_per_page": 2, "prefer_format": "delta", "all_tables": False},
    "no-history": {"history": False},
    "reference": {"imitate": "reference", "file_ids_by_format": True},  # ServerOptions.like_reference()
}

ORDERS = "shop.sales.orders"
TYPED = "shop.ops.typed"
MAPPED = "shop.ops.mapped"
OUTSIDE = "shop.ops.outside"
ODD_SHARE = "Größe.und.Höhe%2F+100%;a=b&c?d#e"
ODD = f"{ODD_SHARE}.Büro.Tische"

#: Version n of `orders` was committed n hours after this.
START = datetime(2024, 1, 1, tzinfo=UTC)
#: The version of `orders` that brought the column `note`.
EVOLVED = 3
LATEST = 6

#: What the partition column of `typed` holds for each value type of the protocol, by column.
TYPED_VALUES: dict[str, tuple[str, str, list[tuple[str | None, Any]]]] = {
    "p_bool": ("boolean", "bool", [("true", True), ("false", False), (None, None)]),
    "p_int": ("integer", "int", [("-5", -5), ("12", 12), (None, None)]),
    "p_long": ("long", "long", [("5000000000", 5_000_000_000), ("7", 7), (None, None)]),
    "p_string": ("string", "string", [("it's", "it's"), ("Zürich", "Zürich"), (None, None)]),
    "p_date": ("date", "date", [("2021-04-29", date(2021, 4, 29)), ("0001-01-01", date(1, 1, 1)), (None, None)]),
    "p_float": ("float", "float", [("1.5", 1.5), ("-2.25", -2.25), (None, None)]),
    "p_double": ("double", "double", [("0.1", 0.1), ("100.0", 100.0), (None, None)]),
    "p_timestamp": (
        "timestamp",
        "timestamp",
        [
            ("2022-01-01 00:00:00", datetime(2022, 1, 1, tzinfo=UTC)),
            ("2022-01-01T00:00:00.000001Z", datetime(2022, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
            (None, None),
        ],
    ),
}


def at_hour(version: float) -> datetime:
    """When a version of `orders` was committed."""
    return START + timedelta(hours=version)


def write_tables(root: Path) -> dict[str, Path]:
    """Write the tables of the embedded servers, by their full names."""
    tables = {name: root / f"table-{number}" for number, name in enumerate((ORDERS, TYPED, MAPPED, OUTSIDE, ODD))}
    _write_orders(tables[ORDERS])
    _write_typed(tables[TYPED])
    physical = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    write_table(
        tables[MAPPED],
        [column("id", "long", **physical)],
        [File(rows=pa.table({"col-1": [1, 2]}), name="a.parquet")],
        configuration={"delta.columnMapping.mode": "name"},
        features=["columnMapping"],
    )
    write_table(
        tables[OUTSIDE],
        [column("id", "long")],
        [File(rows=pa.table({"id": [1]}), name="../elsewhere.parquet")],
    )
    write_table(tables[ODD], [column("id", "long")], [File(rows=pa.table({"id": [42]}), name="ä b%.parquet")])
    return tables


def _orders(first: int, day: int) -> pa.Table:
    ids = range(first, first + 4)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array([date(2024, 1, day)] * 4),
            "region": pa.array(["north", None] * 2, pa.string()),
            "amount": pa.array([n * 1.5 for n in ids]),
        }
    )


def _write_orders(path: Path) -> None:
    """Seven versions: three of rows, a wider schema, a deletion, an update, and rows again."""

    def append(rows: pa.Table) -> None:
        write_deltalake(
            str(path),
            rows,
            mode="append",
            schema_mode="merge",
            partition_by=["day", "region"],
            configuration={"delta.enableChangeDataFeed": "true"},
        )

    for version in range(3):
        append(_orders(version * 10, version + 1))
    append(_orders(30, 4).append_column("note", pa.array([f"n{n}" for n in range(4)])))
    DeltaTable(str(path)).delete("id = 11 OR id = 30")
    DeltaTable(str(path)).update(updates={"amount": "-1.0"}, predicate="id = 20")
    append(_orders(60, 4))
    for version in range(LATEST + 1):
        moment = at_hour(version).timestamp()
        os.utime(path / "_delta_log" / f"{version:020}.json", (moment, moment))
    assert DeltaTable(str(path)).version() == LATEST


def _write_typed(path: Path) -> None:
    """A file for each value of each partition column, the other columns null in it."""
    files = []
    for name, (_, _, values) in TYPED_VALUES.items():
        for number, (text, _) in enumerate(values[:-1]):
            partition = dict.fromkeys(TYPED_VALUES) | {name: text}
            rows = pa.table({"id": [len(files)]})
            files.append(File(rows=rows, name=f"{name}-{number}.parquet", values=partition))
    columns = [column("id", "long"), *(column(name, kind) for name, (kind, _, _) in TYPED_VALUES.items())]
    write_table(path, columns, files, partitions=list(TYPED_VALUES))


def typed_rows() -> list[dict[str, Any]]:
    """The rows of `typed`, one for each of its files, in Python's terms."""
    rows: list[dict[str, Any]] = []
    for name, (_, _, values) in TYPED_VALUES.items():
        for _, value in values[:-1]:
            rows.append({"id": len(rows)} | dict.fromkeys(TYPED_VALUES) | {name: value})
    return rows


class Answered:
    """What a server answered, with its newline-delimited JSON taken apart."""

    def __init__(self, response: requests.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.text = response.content.decode()
        self.content = response.content

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def lines(self) -> list[dict[str, Any]]:
        assert self.status == 200, self.text
        return [json.loads(line) for line in self.text.split("\n") if line.strip()]

    def all(self, name: str) -> list[dict[str, Any]]:
        return [line[name] for line in self.lines if name in line]

    @property
    def version(self) -> int:
        return int(self.headers["Delta-Table-Version"])

    @property
    def capabilities(self) -> dict[str, list[str]]:
        return parse_capabilities(self.headers.get("delta-sharing-capabilities", ""))


def parse_capabilities(text: str) -> dict[str, list[str]]:
    """Parse a capabilities header as the protocol specifies."""
    pairs = [part.partition("=") for part in text.lower().split(";") if part.strip()]
    return {key.strip(): [value.strip() for value in values.split(",")] for key, _, values in pairs}


@dataclass
class Target:
    """A server of the suite, with a client of each kind.

    server: the embedded server; None for one that we know nothing of.
    options: the mode of the embedded server.
    """

    name: str
    profile: Mapping[str, Any]
    server: SharingServer | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        profile = Profile.from_dict(self.profile)
        self.client = SharingClient(profile)
        self.rest = RestClient(profile)
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.update(provider_for(profile).headers())

    @property
    def stranger(self) -> dict[str, Any]:
        """A profile for the same server with a token that is not good."""
        endpoint = self.profile["endpoint"]
        return {"shareCredentialsVersion": 1, "endpoint": endpoint, "bearerToken": "no-such-token"}

    def close(self) -> None:
        self.client.close()
        self.rest.close()
        self._session.close()

    @property
    def history(self) -> bool:
        return bool(self.options.get("history", True))

    @property
    def like_reference(self) -> bool:
        return self.options.get("imitate") == "reference"

    @property
    def knows_formats(self) -> bool:
        return self.options.get("prefer_format") != "parquet"

    @property
    def ends_streams(self) -> bool:
        return bool(self.options.get("send_end_stream_action", True))

    def call(self, method: str, path: str, **options: Any) -> Answered:
        """Send a request, the path as it is."""
        base = str(self.profile["endpoint"]).rstrip("/")
        return Answered(self._session.request(method, base + path, timeout=HANG, **options))

    def get(self, path: str, capabilities: str | None = None, **params: Any) -> Answered:
        return self.call("GET", path, headers=_header(capabilities), params=params)

    def query(self, table: str, capabilities: str | None = None, **body: Any) -> Answered:
        return self.call("POST", f"{path_of(table)}/query", headers=_header(capabilities), json=body)

    def fetch(self, url: str) -> bytes:
        """Fetch a file by its URL, with no credential of ours."""
        with requests.Session() as session:
            session.trust_env = False
            response = session.get(url, timeout=HANG)
            assert response.status_code == 200
            return response.content


def _header(capabilities: str | None) -> dict[str, str]:
    return {} if capabilities is None else {"delta-sharing-capabilities": capabilities}


def path_of(table: str) -> str:
    share, schema, name = (quote(part, safe="") for part in table.rsplit(".", 2))
    return f"/shares/{share}/schemas/{schema}/tables/{name}"


def other_case(name: str) -> str:
    """The name with its ASCII letters in the other case: names are case-insensitive."""
    return "".join(char.swapcase() if char.isascii() else char for char in name)


def load(target: Target, table: str = ORDERS, **scan: Any) -> list[dict[str, Any]]:
    rows = target.client.table(table).scan(**scan).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])
