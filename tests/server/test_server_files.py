from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
from served_tables import Caller, add, metadata, protocol, write_table
from waiting import WallClock

from delta_sharing_client.server.problems import Problem
from delta_sharing_client.server.sign import Signer

BIG = 5 * 1024 * 1024 + 12_345


@pytest.fixture
def served(tmp_path: Path, serve: Any) -> tuple[Caller, str, bytes]:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("big")])
    content = os.urandom(BIG)
    (table / "big").write_bytes(content)
    caller = serve({"s.s.t": table})
    return caller, caller.query("s.s.t").files[0]["url"], content


def check_error(response: requests.Response, status: int, code: str) -> None:
    assert response.status_code == status
    assert response.headers["content-type"].startswith("application/xml")
    assert f"<Code>{code}</Code>" in response.text


def test_whole_file(served: tuple[Caller, str, bytes]) -> None:
    caller, url, content = served
    response = caller.file(url)
    assert response.status_code == 200
    assert response.content == content
    assert response.headers["content-length"] == str(BIG)
    assert response.headers["accept-ranges"] == "bytes"
    etag = response.headers["etag"]
    assert etag.startswith('"')
    head = caller.file(url, "HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(BIG)
    assert head.headers["etag"] == etag
    record = caller.server.requests[-2]
    assert (record.status, record.bytes_sent, record.is_file) == (200, BIG, True)


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("Bytes=1000000-4000000", 1_000_000, 4_000_001),
        ("bytes=-8", BIG - 8, BIG),
        (f"bytes=-{BIG * 2}", 0, BIG),
        (f"bytes={BIG - 1}-", BIG - 1, BIG),
        ("bytes=0-", 0, BIG),
        (f"bytes=5-{BIG * 2}", 5, BIG),
    ],
)
def test_ranges(served: tuple[Caller, str, bytes], header: str, start: int, end: int) -> None:
    caller, url, content = served
    response = caller.file(url, Range=header)
    assert response.status_code == 206
    assert response.headers["content-range"] == f"bytes {start}-{end - 1}/{BIG}"
    assert response.headers["content-length"] == str(end - start)
    assert response.content == content[start:end]
    assert caller.server.requests[-1].range == header
    head = caller.file(url, "HEAD", Range=header)
    assert (head.status_code, head.headers["content-length"]) == (206, str(end - start))


@pytest.mark.parametrize("header", ["bytes=5-2", "bytes=-", "items=0-1", "bytes=a-b", "nonsense", "bytes=é"])
def test_ranges_that_are_malformed_are_refused(served: tuple[Caller, str, bytes], header: str) -> None:
    caller, url, _ = served
    assert caller.file(url, Range=header.encode("latin-1")).status_code == 400


@pytest.mark.parametrize("end", ["-", f"-{'9' * 5000}"])
def test_a_range_of_thousands_of_digits_is_refused(served: tuple[Caller, str, bytes], end: str) -> None:
    caller, url, _ = served
    for start in ("9" * 5000, "5", ""):
        status = caller.file(url, Range=f"bytes={start}{end}").status_code
        assert status in ((206,) if (start, end) == ("5", "-") else (400, 416))


@pytest.mark.parametrize("header", [f"bytes={BIG}-", f"bytes={BIG}-{BIG + 5}", "bytes=-0"])
def test_ranges_after_the_end_are_refused(served: tuple[Caller, str, bytes], header: str) -> None:
    caller, url, _ = served
    response = caller.file(url, Range=header)
    assert response.status_code == 416
    assert response.headers["content-range"] == f"bytes */{BIG}"


def test_if_match_and_if_range(served: tuple[Caller, str, bytes], tmp_path: Path) -> None:
    caller, url, content = served
    etag = caller.file(url, "HEAD").headers["etag"]
    assert caller.file(url, If_Match=etag).status_code == 200
    assert caller.file(url, If_Match=f'"x", {etag}').status_code == 200
    assert caller.file(url, If_Match="*").status_code == 200
    check_error(caller.file(url, If_Match='"x"'), 412, "PreconditionFailed")
    assert caller.file(url, Range="bytes=0-3", If_Range=etag).content == content[:4]
    assert caller.file(url, Range="bytes=0-3", If_Range='"x"').status_code == 200
    (tmp_path / "t" / "big").write_bytes(b"other")
    changed = caller.file(url, "HEAD").headers["etag"]
    assert changed != etag
    check_error(caller.file(url, If_Match=etag, Range="bytes=0-3"), 412, "PreconditionFailed")


def test_empty_file(tmp_path: Path, serve: Any) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("f")])
    (table / "f").write_bytes(b"")
    caller = serve({"s.s.t": table})
    url = caller.query("s.s.t").files[0]["url"]
    assert (caller.file(url).status_code, caller.file(url).content) == (200, b"")
    assert caller.file(url, Range="bytes=0-").status_code == 416


def test_a_wrong_signature_is_refused(served: tuple[Caller, str, bytes]) -> None:
    caller, url, _ = served
    base, _, query = url.partition("?")
    expires, signature = (part.split("=")[1] for part in query.split("&"))
    later = str(int(expires) + 10_000_000)
    for changed in (
        f"{base}?expires={later}&X-Amz-Signature={signature}",
        f"{base}?expires={expires}&X-Amz-Signature={signature[:-1]}",
        f"{base}?expires={expires}&X-Amz-Signature={'0' * 64}",
        f"{base}?expires={expires}&X-Amz-Signature=é",
        f"{base}?expires=x&X-Amz-Signature={signature}",
        f"{base[:-1]}{'0' if base[-1] != '0' else '1'}?{query}",
    ):
        check_error(caller.file(changed), 403, "SignatureDoesNotMatch")
    for missing in (base, f"{base}?expires={expires}", f"{base}?X-Amz-Signature={signature}"):
        check_error(caller.file(missing), 403, "AccessDenied")
    assert caller.file(url + "&x=y").status_code == 200
    assert caller.file(url, "POST").status_code == 405


def test_urls_end_with_the_path_if_ids_are_hashes_of_it(tmp_path: Path, serve: Any) -> None:
    name = "p=a b%3A/f é.parquet"
    logged = quote(name)
    table = write_table(tmp_path / "t", [protocol(), metadata(), add(logged)])
    (table / name).parent.mkdir(exist_ok=True)
    (table / name).write_bytes(b"content")
    caller = serve({"s.s.t": table}, file_ids_by_format=True)
    url = caller.query("s.s.t").files[0]["url"]
    assert url.partition("?")[0].endswith(f"/{logged}")
    assert caller.file(url).content == b"content"
    check_error(caller.file(url.replace("f%20", "g%20")), 403, "SignatureDoesNotMatch")


def test_an_expired_url_is_refused(tmp_path: Path, serve: Any, wall_clock: WallClock) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("f")])
    caller = serve({"s.s.t": table}, url_lifetime=timedelta(minutes=1))
    file = caller.query("s.s.t").files[0]
    wall_clock.advance(60)
    response = caller.file(file["url"])
    check_error(response, 403, "AccessDenied")
    assert "<Message>Request has expired</Message>" in response.text
    assert file["expirationTimestamp"] <= wall_clock() * 1000


def test_a_deleted_file_answers_404(served: tuple[Caller, str, bytes], tmp_path: Path) -> None:
    caller, url, _ = served
    (tmp_path / "t" / "big").unlink()
    check_error(caller.file(url), 404, "NoSuchKey")
    assert str(tmp_path) not in caller.file(url).text


def test_signed_urls_need_no_bearer_token(served: tuple[Caller, str, bytes]) -> None:
    caller, url, _ = served
    caller.server.reset_requests()
    caller.file(url)
    caller.file(url, Authorization="Bearer x")
    assert [record.has_authorization for record in caller.server.requests] == [False, True]


@pytest.mark.parametrize(
    "path",
    ["../secret", "%2E%2E/secret", "a/../../secret", "/etc/passwd", "file:///etc/passwd", "../t2/f", "../t"],
)
def test_paths_outside_the_table_are_refused(tmp_path: Path, serve: Any, path: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "t2").mkdir()
    (tmp_path / "t2" / "f").write_text("secret")
    table = write_table(tmp_path / "t", [protocol(), metadata(), add(path)])
    assert "outside its own directory" in serve({"s.s.t": table}).query("s.s.t").error(403)


def test_path_on_another_store(tmp_path: Path, serve: Any) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("s3://bucket/f")])
    serve({"s.s.t": table}).query("s.s.t").error(500)


def test_links_outside_the_table_are_refused(tmp_path: Path, serve: Any) -> None:
    (tmp_path / "secret").write_text("secret")
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("link"), add("dir/secret"), add("inside")])
    (table / "link").unlink()
    (table / "link").symlink_to(tmp_path / "secret")
    (table / "dir" / "secret").unlink()
    (table / "dir").rmdir()
    (table / "dir").symlink_to(tmp_path)
    (table / "real").write_text("fine")
    (table / "inside").unlink()
    (table / "inside").symlink_to("real")
    caller = serve({"s.s.t": table})
    bodies = [caller.file(file["url"]) for file in caller.query("s.s.t").files]
    assert sorted((body.status_code, "secret" in body.text) for body in bodies) == [
        (200, False),
        (404, False),
        (404, False),
    ]


def test_table_behind_a_link(tmp_path: Path, serve: Any) -> None:
    table = write_table(
        tmp_path / "real", [protocol(), metadata(), add("f"), add((tmp_path / "linked" / "f").as_uri())]
    )
    (tmp_path / "linked").symlink_to(table)
    caller = serve({"s.s.t": tmp_path / "linked"})
    assert {caller.file(file["url"]).status_code for file in caller.query("s.s.t").files} == {200}


def test_a_directory_answers_404(tmp_path: Path, serve: Any) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("f")])
    (table / "f").unlink()
    (table / "f").mkdir()
    caller = serve({"s.s.t": table})
    check_error(caller.file(caller.query("s.s.t").files[0]["url"]), 404, "NoSuchKey")


def test_many_connections(served: tuple[Caller, str, bytes]) -> None:
    caller, url, content = served

    def fetch(number: int) -> bool:
        start = number * 70_000
        return (
            caller.file(url, Range=f"bytes={start}-{start + 99_999}").content == content[start : start + 100_000]
        )

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(fetch, range(60)))


def test_tables_with_the_same_id_keep_their_own_files(tmp_path: Path, serve: Any) -> None:
    tables = {}
    for name in ("one", "two"):
        tables[f"s.s.{name}"] = write_table(tmp_path / name, [protocol(), metadata(), add("f")])
        (tmp_path / name / "f").write_text(name)
    caller = serve(tables)
    urls = {name: caller.query(f"s.s.{name}").files[0]["url"] for name in ("one", "two")}
    assert {name: caller.file(url).text for name, url in urls.items()} == {"one": "one", "two": "two"}


@pytest.mark.parametrize("name", ["ä b%.parquet", "x=1/..y/f", "p=a%2Fb/f#?&"])
def test_any_file_name_is_found_by_its_url(tmp_path: Path, serve: Any, name: str) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add(quote(name))])
    (table / name).parent.mkdir(parents=True, exist_ok=True)
    (table / name).write_text(name)
    caller = serve({"a.b.ü.t": table})
    (url,) = (file["url"] for file in caller.call("POST", "/shares/a.b/schemas/%C3%BC/tables/t/query").files)
    assert caller.file(url).content.decode() == name


def test_a_file_of_a_table_no_longer_shared_answers_404(tmp_path: Path, serve: Any) -> None:
    tables = {"s.s.t": write_table(tmp_path / "t", [protocol(), metadata(), add("f")])}
    caller = serve(tables)
    url = caller.query("s.s.t").files[0]["url"]
    tables.clear()
    caller.get("/shares")
    check_error(caller.file(url), 404, "NoSuchKey")


def test_tokens() -> None:
    signer = Signer()
    token = signer.make_token("a", {"x": 1})
    assert signer.open_token("a", token, "token") == {"x": 1}
    wrong = [
        ("b", token),
        ("a", token + "A"),
        ("a", token[::-1]),
        ("a", ""),
        ("a", "!"),
        ("a", "é"),
        ("a", "\ud800"),
    ]
    for purpose, text in wrong:
        with pytest.raises(Problem, match="token is not valid"):
            signer.open_token(purpose, text, "token")
    with pytest.raises(Problem, match="token is not valid"):
        Signer().open_token("a", token, "token")
