"""List Shares, Get Share, List Schemas, List Tables, List all Tables: pages, names, percent-encoding."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest
from conformance_targets import ODD, ODD_SHARE, Target, other_case
from faults.server import FaultServer, Reply

from delta_sharing_client import Schema, Share, SharingClient, Table
from delta_sharing_client.errors import NotFoundError, ProtocolError, TableNameError

TABLES = [
    Table("Tische", ODD_SHARE, "Büro"),
    Table("mapped", "shop", "ops"),
    Table("outside", "shop", "ops"),
    Table("typed", "shop", "ops"),
    Table("orders", "shop", "sales"),
]


@pytest.mark.protocol(
    "GET /shares",
    "GET /shares/{share}/schemas",
    "GET .../schemas/{schema}/tables",
    "GET /shares/{share}/all-tables",
)
def test_listings_contain_every_object(target: Target) -> None:
    client = target.client
    assert client.list_shares() == [Share(ODD_SHARE), Share("shop")]
    assert client.list_schemas("shop") == [Schema("ops", "shop"), Schema("sales", "shop")]
    assert client.list_schemas(Share(ODD_SHARE)) == [Schema("Büro", ODD_SHARE)]
    assert client.list_tables("shop.ops") == TABLES[1:4]
    assert client.list_tables(f"{ODD_SHARE}.Büro") == TABLES[:1]
    assert client.list_all_tables() == TABLES
    assert client.list_all_tables("SHOP") == TABLES[1:]


def test_ids_are_the_same_in_every_listing(target: Target) -> None:
    client = target.client
    for share in client.list_shares():
        assert share.id
        assert client.get_share(share.name).id == share.id
        assert {table.share_id for table in client.list_all_tables(share)} == {share.id}
    ids = [table.id for table in client.list_all_tables()]
    assert len(set(ids)) == len(TABLES)
    assert ids == [table.id for table in client.list_all_tables()]


def test_pages_are_asked_for_one_by_one(start: Callable[..., Target]) -> None:
    paged = start("paged")
    assert paged.server is not None
    paged.server.reset_requests()
    tables = paged.client.iter_all_tables("shop")
    assert paged.server.requests == []
    assert next(tables) == TABLES[1]
    assert len(paged.server.requests) == 1
    assert list(tables) == TABLES[2:]
    assert [("pageToken" in request.query) for request in paged.server.requests] == [False, True, True, True]
    assert {request.path for request in paged.server.requests} == {"/delta-sharing/shares/shop/all-tables"}


def test_a_server_without_all_tables_is_asked_for_its_schemas(start: Callable[..., Target]) -> None:
    old = start("old")
    assert old.server is not None
    old.server.reset_requests()
    assert old.client.list_all_tables("shop") == TABLES[1:]
    asked = [
        (request.path.removeprefix("/delta-sharing/shares/shop/"), request.status)
        for request in old.server.requests
    ]
    assert asked == [
        ("all-tables", 404),
        ("schemas", 200),
        ("schemas/ops/tables", 200),
        ("schemas/sales/tables", 200),
    ]
    with pytest.raises(NotFoundError, match="share nope"):
        old.client.list_all_tables("nope")


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.protocol("maxResults")
def test_max_results(target: Target, size: int) -> None:
    assert list(target.rest.list_shares(max_results=size)) == [Share(ODD_SHARE), Share("shop")]
    assert list(target.rest.list_all_tables("shop", max_results=size)) == TABLES[1:]
    assert list(target.rest.list_tables(Schema("ops", "shop"), max_results=size)) == TABLES[1:4]
    assert list(target.rest.list_schemas("shop", max_results=size)) == [
        Schema("ops", "shop"),
        Schema("sales", "shop"),
    ]


@pytest.mark.protocol("maxResults", "nextPageToken")
def test_pages_on_the_wire(target: Target) -> None:
    first = target.get("/shares", maxResults=1).json
    assert [item["name"] for item in first["items"]] == [ODD_SHARE]
    second = target.get("/shares", maxResults=1, pageToken=first["nextPageToken"]).json
    assert [item["name"] for item in second["items"]] == ["shop"]
    assert not second.get("nextPageToken")
    empty = target.get("/shares", maxResults=0).json
    assert not empty.get("items")
    assert empty["nextPageToken"]
    for wrong in ({"maxResults": -1}, {"maxResults": "many"}, {"pageToken": "made up"}):
        assert target.get("/shares", **wrong).status == 400
    assert target.get("/shares/shop/schemas", pageToken=first["nextPageToken"]).status == 400


def test_names_in_any_case(target: Target) -> None:
    client = target.client
    name = other_case(ODD_SHARE)
    assert name != ODD_SHARE
    assert client.get_share(name) == Share(ODD_SHARE)
    assert client.list_tables(Schema("bÜRO".replace("Ü", "ü"), name)) == TABLES[:1]
    assert client.table(other_case(ODD)).scan().to_arrow().to_pylist() == [{"id": 42}]


def test_unusual_names_reach_the_server_unchanged(target: Target) -> None:
    assert target.server is not None
    for name in (ODD, ("Größe.und.Höhe%2F+100%;a=b&c?d#e", "Büro", "Tische"), target.client.list_all_tables()[0]):
        target.server.reset_requests()
        assert target.client.table(name).scan().to_arrow().to_pylist() == [{"id": 42}]
        paths = [request.path for request in target.server.requests if not request.is_file]
        assert paths == [f"/delta-sharing/shares/{ODD_SHARE}/schemas/Büro/tables/Tische/query"]


@pytest.mark.parametrize(
    "share",
    ["a b", "50%", "%20", "a+b", "größe", "a.b.c", "..a", "a?b=c&d", "a#b", "\U0001f30d", "a:b@c;d,e", "a\\b"],
)
def test_every_path_segment_is_percent_encoded(faults: FaultServer, share: str) -> None:
    """Decoded once, each segment is the name; nothing of it is taken for something else on the way."""
    encoded = quote(share, safe="")
    faults.on("GET", f"/shares/{encoded}", Reply.of_json({"share": {"name": share}}))
    faults.on("GET", f"/shares/{encoded}/schemas", Reply.of_json({"items": [{"name": "x", "share": share}]}))
    path = f"/shares/{encoded}/schemas/x/tables/{quote('ä ö', safe='')}/version"
    faults.on("GET", path, Reply(headers={"Delta-Table-Version": "3"}))
    with SharingClient(faults.profile) as client:
        assert client.get_share(share) == Share(share)
        assert client.list_schemas(share) == [Schema("x", share)]
        assert client.table(f"{share}.x.ä ö").version() == 3
        assert client.table((share, "x", "ä ö")).version() == 3
    assert [request.target for request in faults.requests][-1] == path
    assert len(faults.requests) == 4


@pytest.mark.parametrize("share", ["", "a/b", ".", "..", "a\nb", "a\x7fb", "x" * 256])
def test_invalid_names_are_refused_without_a_request(faults: FaultServer, share: str) -> None:
    with SharingClient(faults.profile) as client:
        for ask in (client.get_share, client.list_schemas, client.list_all_tables):
            with pytest.raises(TableNameError):
                ask(share)
        with pytest.raises(TableNameError):
            client.table((share, "s", "t"))
    assert faults.requests == []


@pytest.mark.parametrize(
    "pages",
    [
        [{}],
        [{"items": None}],
        [{"items": [], "nextPageToken": ""}],
        [{"nextPageToken": "a"}, {"items": [], "nextPageToken": "b"}, {"nextPageToken": None}],
    ],
)
def test_listings_without_items(faults: FaultServer, pages: list[dict[str, object]]) -> None:
    faults.on("GET", "/shares", *map(Reply.of_json, pages))
    with SharingClient(faults.profile) as client:
        assert client.list_shares() == []
    assert len(faults.requests) == len(pages)


def test_unknown_fields_are_ignored_and_known_ones_kept(faults: FaultServer) -> None:
    share = {"name": "s", "displayName": "S", "comment": "c", "properties": {"a": "b"}, "novelty": [1]}
    table = {
        "name": "t",
        "share": "s",
        "schema": "x",
        "accessModes": ["url", "dir"],
        "location": "s3://b/t",
        "z": 1,
    }
    faults.on("GET", "/shares", Reply.of_json({"items": [share], "extra": {}}))
    faults.on("GET", "/shares/s/all-tables", Reply.of_json({"items": [table]}))
    with SharingClient(faults.profile) as client:
        (listed,) = client.list_shares()
        assert (listed.display_name, listed.comment, listed.properties) == ("S", "c", {"a": "b"})
        (found,) = client.list_all_tables("s")
        assert (found.access_modes, found.location) == (("url", "dir"), "s3://b/t")


def test_repeated_page_token_raises(faults: FaultServer) -> None:
    faults.on("GET", "/shares", Reply.of_json({"items": [{"name": "s"}], "nextPageToken": "again"}))
    with SharingClient(faults.profile) as client, pytest.raises(ProtocolError, match="same page token twice"):
        client.list_shares()
    assert len(faults.requests) == 2
