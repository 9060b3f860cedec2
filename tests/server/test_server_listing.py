from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from served_tables import Caller, add, metadata, protocol, write_table

from delta_sharing_client.errors import DeltaTableNotFoundError
from delta_sharing_client.server import SharingServer


def names(answer: Any) -> list[str]:
    assert answer.status == 200, answer.json
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    return [item["name"] for item in answer.json["items"]]


@pytest.fixture
def shop(tmp_path: Path, serve: Any) -> Caller:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("f")])
    return serve(
        {
            f"{share}.{schema}.{name}": table
            for share in ("B.two", "a-one")
            for schema in "sr"
            for name in ("t2", "T1")
        }
    )


def test_shares_are_listed_by_name(shop: Caller) -> None:
    answer = shop.get("/shares")
    assert names(answer) == ["a-one", "B.two"]
    assert len({item["id"] for item in answer.json["items"]}) == 2
    one = shop.get("/shares/A-ONE")
    assert one.json == {"share": answer.json["items"][0]}


def test_schemas_and_tables_are_listed_by_name(shop: Caller) -> None:
    schemas = shop.get("/shares/b.TWO/schemas")
    assert schemas.json == {"items": [{"name": "r", "share": "B.two"}, {"name": "s", "share": "B.two"}]}
    tables = shop.get("/shares/b%2Etwo/schemas/R/tables")
    assert names(tables) == ["T1", "t2"]
    item = tables.json["items"][0]
    assert item["share"] == "B.two"
    assert item["schema"] == "r"
    assert item["shareId"] == shop.get("/shares/B.two").json["share"]["id"]
    everything = shop.get("/shares/B.two/all-tables")
    assert names(everything) == ["T1", "t2", "T1", "t2"]
    assert item in everything.json["items"]


@pytest.mark.parametrize(
    "path", ["/shares/nope", "/shares/nope/schemas", "/shares/nope/all-tables", "/shares/a-one/schemas/x/tables"]
)
def test_unknown_names_answer_404(shop: Caller, path: str) -> None:
    assert "There is no" in shop.get(path).error(404)
    assert "nope" in shop.get(path).error(404) or "'x'" in shop.get(path).error(404)


def test_an_unknown_endpoint_or_method_is_refused(shop: Caller) -> None:
    assert shop.get("/share").error(404) == "There is no such endpoint."
    answer = shop.call("POST", "/shares")
    assert answer.error(405)
    assert "GET" in answer.headers["allow"]
    assert shop.call("DELETE", "/shares/a-one/schemas/r/tables/t1/query").error(405)


@pytest.mark.parametrize(
    "path", ["/shares", "/shares/a-one/schemas", "/shares/a-one/schemas/r/tables", "/shares/a-one/all-tables"]
)
def test_paging(shop: Caller, path: str) -> None:
    whole = shop.get(path).json
    assert "nextPageToken" not in whole
    items, token, pages = [], "", 0
    while pages == 0 or token:
        page = shop.get(path, maxResults=1, pageToken=token).json
        assert len(page["items"]) == 1
        items += page["items"]
        token = page.get("nextPageToken", "")
        pages += 1
    assert items == whole["items"]
    none = shop.get(path, maxResults=0).json
    assert none["items"] == []
    assert shop.get(path, pageToken=none["nextPageToken"]).json["items"] == whole["items"]


def test_page_size_of_the_server(tmp_path: Path, serve: Any) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata()])
    caller = serve({f"s.s.t{number}": table for number in range(5)}, page_size=2)
    first = caller.get("/shares/s/all-tables", maxResults=100).json
    assert len(first["items"]) == 2
    assert len(caller.get("/shares/s/all-tables", pageToken=first["nextPageToken"]).json["items"]) == 2


@pytest.mark.parametrize("bad", ["-1", "x", "1.5", "²", "99999999999999999999"])
def test_malformed_max_results_is_refused(shop: Caller, bad: str) -> None:
    assert "maxResults" in shop.get("/shares", maxResults=bad).error(400)


def test_page_tokens_are_bound_to_their_listing(shop: Caller) -> None:
    token = shop.get("/shares", maxResults=1).json["nextPageToken"]
    assert shop.get("/shares", pageToken=token).status == 200
    changed = ("A" if token[0] != "A" else "B") + token[1:]
    for path, bad in [
        ("/shares/a-one/schemas", token),
        ("/shares", changed),
        ("/shares", "x"),
        ("/shares", "é=="),
        ("/shares", token[:-4]),
    ]:
        assert "pageToken" in shop.get(path, pageToken=bad).error(400)


def test_all_tables_can_be_disabled(tmp_path: Path, serve: Any) -> None:
    caller = serve({"s.s.t": write_table(tmp_path / "t", [protocol(), metadata()])}, all_tables=False)
    caller.get("/shares/s/all-tables").error(404)
    assert names(caller.get("/shares/s/schemas/s/tables")) == ["t"]


def test_names_of_tables_come_from_their_directories(tmp_path: Path) -> None:
    for place in ("share/schema/three", "schema2/two", "one", "_hidden/x", ".h/x", "a/b/c/four"):
        write_table(tmp_path / place, [protocol(), metadata()])
    write_table(tmp_path / "one" / "inside", [protocol(), metadata()])
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    assert SharingServer(tmp_path).tables == ("local.default.one", "local.schema2.two", "share.schema.three")
    assert SharingServer(tmp_path / "one").tables == ("local.default.one",)
    renamed = SharingServer(str(tmp_path), default_share="s", default_schema="d")
    assert renamed.tables == ("s.d.one", "s.schema2.two", "share.schema.three")


def test_a_table_with_an_empty_log_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_table(tmp_path / "one", [protocol(), metadata()])
    (tmp_path / "broken" / "_delta_log").mkdir(parents=True)
    assert SharingServer(tmp_path).tables == ("local.default.one",)
    assert "not shared" in caplog.text


def test_a_directory_without_tables_raises(tmp_path: Path) -> None:
    with pytest.raises(DeltaTableNotFoundError, match="no Delta table in this directory"):
        SharingServer(tmp_path)
    with pytest.raises(DeltaTableNotFoundError, match="no such directory"):
        SharingServer(tmp_path / "nope")
    with pytest.raises(DeltaTableNotFoundError, match="no _delta_log"):
        SharingServer({"a.b.c": tmp_path})


@pytest.mark.parametrize("name", ["a.b", "a", "a..b", ".b.c", "a b.c.d", "a.b/c.d", "a.b.c\n"])
def test_malformed_table_names_raise(tmp_path: Path, name: str) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata()])
    with pytest.raises(ValueError, match=r"share\.schema\.table"):
        SharingServer({name: table})


def test_equal_or_forbidden_names_raise(tmp_path: Path) -> None:
    table = write_table(tmp_path / "x.y", [protocol(), metadata()])
    with pytest.raises(ValueError, match="case-insensitive"):
        SharingServer({"a.b.c": table, "A.B.C": table})
    with pytest.raises(ValueError, match=r"a dot in a share.s name only"):
        SharingServer(tmp_path)


def test_percent_encoded_names(tmp_path: Path, serve: Any) -> None:
    caller = serve({"größe.s%.t+x": write_table(tmp_path / "t", [protocol(), metadata()])})
    assert names(caller.get("/shares/gr%C3%B6%C3%9Fe/schemas/s%25/tables")) == ["t+x"]
    assert caller.get("/shares/gr%C3%B6%C3%9Fe/schemas/s%25/tables/t%2Bx/version").version == "0"


@pytest.mark.parametrize("listed_first", [True, False])
def test_a_table_that_is_added_while_the_server_runs_is_shared(
    tmp_path: Path, serve: Any, listed_first: bool
) -> None:
    table = [protocol(), metadata(), add("f")]
    write_table(tmp_path / "one", table)
    caller = serve(tmp_path)
    write_table(tmp_path / "s" / "d" / "two", table)
    if listed_first:
        assert names(caller.get("/shares")) == ["local", "s"]
        assert names(caller.get("/shares/s/all-tables")) == ["two"]
    assert len(caller.query("s.d.two").files) == 1
    assert caller.server.tables == ("local.default.one", "s.d.two")
    shutil.rmtree(tmp_path / "one")
    assert names(caller.get("/shares")) == ["s"]
    assert caller.query("local.default.one").error(404)


def test_a_table_that_is_added_to_the_mapping_is_shared(tmp_path: Path, serve: Any) -> None:
    path = write_table(tmp_path / "t", [protocol(), metadata(), add("f")])
    tables = {"s.d.one": path}
    caller = serve(tables)
    tables["s.d.two"] = path
    assert len(caller.query("s.d.two").files) == 1
    assert names(caller.get("/shares/s/schemas/d/tables")) == ["one", "two"]


def test_a_new_table_that_cannot_be_shared_is_skipped(
    tmp_path: Path, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    table = [protocol(), metadata(), add("f")]
    write_table(tmp_path / "one", table)
    caller = serve(tmp_path)
    write_table(tmp_path / "no name", table)
    write_table(tmp_path / "ONE", table)
    (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
    write_table(tmp_path / "two", table)
    assert [name.lower() for name in names(caller.get("/shares/local/all-tables"))] == ["one", "two"]
    assert "'no name' is not a name of a share, schema or table" in caplog.text
