"""`Secret`, `SecretUrl` and redaction."""

import ast
import copy
import dataclasses
import json
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client import secrets
from delta_sharing_client.secrets import MASK, Secret, redact_text, redact_url

CANARY = "c4n4ryQ7x9ZkT2"


class TestSecret:
    def test_only_reveal_returns_the_text(self):
        assert Secret(CANARY).reveal() == CANARY

    @pytest.mark.parametrize(
        "show",
        [repr, str, "{}".format, "{:>40}".format, "{!r}".format, lambda s: f"{s}", lambda s: f"{s!s}", ascii],
    )
    def test_secret_is_hidden_in_every_text_form(self, show):
        shown = show(Secret(CANARY))
        assert CANARY not in shown
        assert MASK in shown

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_refuses_to_be_pickled(self, protocol):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(Secret(CANARY), protocol)

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
    def test_refuses_to_be_copied(self, duplicate):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            duplicate(Secret(CANARY))

    def test_secret_is_hidden_inside_containers(self):
        @dataclasses.dataclass
        class Holder:
            token: Secret

        assert CANARY not in repr(Holder(Secret(CANARY)))
        assert CANARY not in repr([{"token": Secret(CANARY)}])
        with pytest.raises(TypeError):
            json.dumps({"token": Secret(CANARY)})
        with pytest.raises(TypeError, match="cannot be pickled"):
            dataclasses.asdict(Holder(Secret(CANARY)))

    def test_secret_has_no_dict(self):
        with pytest.raises(TypeError):
            vars(Secret(CANARY))

    def test_equality_hash_and_truth(self):
        assert Secret("a") == Secret("a")
        assert Secret("a") != Secret("b")
        assert Secret("a") != "a"
        assert hash(Secret("a")) == hash(Secret("a"))
        assert Secret("ü") == Secret("ü")
        assert Secret("x")
        assert not Secret("")


class TestRedactUrl:
    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("https://host/path", "https://host/path"),
            ("https://host:8443/path/", "https://host:8443/path/"),
            (f"https://host/a/b.parquet?sig={CANARY}", "https://host/a/b.parquet?***"),
            (f"https://{CANARY}@host/a", "https://host/a"),
            (f"https://user:{CANARY}@host:1/a", "https://host:1/a"),
            (f"https://host/a#{CANARY}", "https://host/a"),
            (f"http://[::1]:8080/a?x={CANARY}", "http://[::1]:8080/a?***"),
            ("s3://bucket/key/date=2024-01-01/x", "s3://bucket/key/date=2024-01-01/x"),
            (f"https://host?{CANARY}", "https://host?***"),
            (f"https://host:{CANARY}/a", "<malformed URL>"),
            (f"https://user:{CANARY}", "<malformed URL>"),
            (f"https://[{CANARY}/a", "<malformed URL>"),
            (f"data:{CANARY}", "data:***"),
            (f"//host/{CANARY}", "<relative URL>"),
            (f"{CANARY}", "<relative URL>"),
            ("", "<relative URL>"),
            ("file:///home/me/profile.share", "file:///home/me/profile.share"),
            ("hdfs:///home/me/profile.share", "hdfs:///home/me/profile.share"),
            (f"hdfs:///a?sig={CANARY}", "hdfs:///a?***"),
            (f"https://?sig={CANARY}", "https://?***"),
            (f"https://user:{CANARY}@", "https:***"),
            ("https://", "https://"),
            ("abfss://container@account/a", "abfss://container@account/a"),
            (f"abfss://container:{CANARY}@account/a", "abfss://account/a"),
        ],
    )
    def test_redacted_urls(self, url, shown):
        assert redact_url(url) == shown
        if CANARY in url:
            assert CANARY not in shown

    @given(
        path=st.text(st.characters(codec="utf-8", exclude_characters="?#\\@", exclude_categories=["C", "Z"])),
        query=st.text(),
        user=st.text(st.characters(codec="ascii", exclude_characters="/?#\\[]@", exclude_categories=["C", "Z"])),
    )
    @settings(max_examples=examples(100), deadline=None)
    def test_no_query_or_user_info_is_left(self, path, query, user):
        shown = redact_url(f"https://{user}{CANARY}@host/{path}?{query}{CANARY}")
        assert CANARY not in shown


SIGNED = [
    "https://b.s3.us-west-2.amazonaws.com/t/part-0.parquet?X-Amz-Algorithm=AWS4-HMAC-SHA256"
    f"&X-Amz-Credential=AKIA{CANARY}%2F20240101&X-Amz-Expires=900&X-Amz-Security-Token={CANARY}"
    f"&X-Amz-Signature={CANARY}",
    f"https://b.s3.amazonaws.com/k?AWSAccessKeyId={CANARY}&Signature={CANARY}%3D&Expires=1",
    f"https://acc.blob.core.windows.net/c/p.parquet?sv=2021-08-06&se=2024-01-01&sr=b&sp=r&sig={CANARY}%3D",
    f"abfss://c@acc.dfs.core.windows.net/p.parquet?sig={CANARY}",
    f"https://storage.googleapis.com/b/o.parquet?X-Goog-Algorithm=GOOG4&X-Goog-Signature={CANARY}",
    f"https://storage.googleapis.com/b/o?GoogleAccessId=x@y&Expires=1&Signature={CANARY}",
    f"https://r2.example/o?token={CANARY}",
    f"http://127.0.0.1:4343/files/part-0.parquet?e=1700000000&s={CANARY}",
]
AROUND = [
    "{}",
    "GET {} failed",
    "'{}'",
    '"{}"',
    "<{}>",
    "({})",
    "see {}, then {}.",
    "url={}",
    "[{}]",
    '{{"url":"{}"}}',
    "line one\n{}\nline three",
    "File not found: {}",
    "x{}",
    "1{}",
    "-{}",
]


def sentences(tree):
    """Yield the texts of a module with two words, without its docstrings; values in f-strings are empty."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    skipped = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and is_text(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            constants = [part for part in node.values if isinstance(part, ast.Constant)]
            skipped |= set(map(id, constants))
            text = "".join(part.value for part in constants)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            text = node.value
        else:
            continue
        if re.search(r"\w \w", text):
            yield node.lineno, text


def is_text(node):
    """Whether a module, class or function begins with an expression, as its docstring is one."""
    return bool(node.body) and isinstance(node.body[0], ast.Expr)


class TestRedactText:
    @pytest.mark.parametrize("url", SIGNED)
    @pytest.mark.parametrize("around", AROUND)
    def test_signed_urls(self, url, around):
        text = around.format(url, url)
        assert CANARY in text
        shown = redact_text(text)
        assert CANARY not in shown
        assert shown != MASK

    @pytest.mark.parametrize("url", SIGNED)
    def test_signed_urls_as_other_software_writes_them(self, url):
        host, _, path = url.partition("://")[2].partition("/")
        for text in (
            f"Max retries exceeded with url: /{path} (Caused by ConnectTimeoutError)",
            f"HTTPSConnectionPool(host='{host}', port=443): Read timed out. /{path}",
            json.dumps({"message": url}).replace("/", "\\/"),
            json.dumps(json.dumps({"message": url})),
            url.replace("&", "\\u0026"),
            url.replace("&", "&amp;"),
            repr(url.encode()),
        ):
            assert CANARY in text
            assert CANARY not in redact_text(text), text

    @pytest.mark.parametrize(
        "text",
        [
            f"Authorization: Bearer {CANARY}",
            f"authorization: bearer {CANARY}",
            f"{{'Authorization': 'Bearer {CANARY}'}}",
            f"{{'Authorization': 'Basic {CANARY}=='}}",
            f'{{"Authorization":"Bearer  {CANARY}"}}',
            f"Bearer {CANARY}.{CANARY}-{CANARY}_x",
            f"Bearer dapi{CANARY}",
            f"the token Bearer {CANARY}, sent",
            f"Bearer token: {CANARY}",
            f"Authorization: {CANARY}",
            f"-H 'Authorization: Token {CANARY}'",
            f"x-amz-security-token: {CANARY}",
        ],
    )
    def test_headers(self, text):
        shown = redact_text(text)
        assert CANARY not in shown
        assert MASK in shown

    @pytest.mark.parametrize(
        "field",
        [
            "bearerToken",
            "clientSecret",
            "client_secret",
            "password",
            "access_token",
            "accessToken",
            "refresh_token",
            "refreshToken",
            "pageToken",
            "nextPageToken",
            "id_token",
            "assertion",
            "client_assertion",
            "secretAccessKey",
            "sessionToken",
            "sasToken",
            "oauthToken",
            "privateKey",
            "sig",
            "Signature",
            "X-Amz-Signature",
            "X-Goog-Signature",
        ],
    )
    def test_token_fields(self, field):
        spaced = f"{CANARY} and, some & more' {CANARY}"
        for text in (
            json.dumps({"a": 1, field: CANARY, "b": 2}),
            json.dumps({field: spaced}),
            json.dumps({field: f'{CANARY}"{CANARY}\\{CANARY}'}),
            json.dumps({field: CANARY}, indent=2),
            repr({field: CANARY}),
            json.dumps(json.dumps({field: CANARY})),
            json.dumps(json.dumps(json.dumps({field: CANARY}))),
            f"grant_type=client_credentials&{field}={CANARY}&scope=all",
            f"{field}={CANARY}",
            repr(json.dumps({field: CANARY}).encode()),
        ):
            shown = redact_text(text)
            assert CANARY not in shown, text
            assert MASK in shown
        kept = redact_text(json.dumps({"a": "before", field: CANARY, "b": "after"}))
        assert "before" in kept
        assert "after" in kept

    def test_a_private_key(self):
        text = f"cannot use -----BEGIN PRIVATE KEY-----\n{CANARY}\n{CANARY}\n-----END PRIVATE KEY----- here"
        assert redact_text(text) == f"cannot use {MASK} here"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "profile: the field 'bearerToken' is missing",
            'profile.share: "bearerToken" is missing; it takes shareCredentialsVersion, endpoint, bearerToken',
            "the field clientSecret is not a string",
            "the bearer token is missing, wrong or expired",
            "a bearer token has expired",
            "Bearer tokens expire",
            "Basic authentication is not offered",
            "basic credentials are wrong",
            "the password is missing",
            "filters: 'a >= 1' cannot be understood",
            "a >= 1 AND b = 'x' OR c <> 3",
            "/data/date=2024-01-01/country=DE/part-00000.parquet",
            "cannot open /home/me/profiles/prod.share",
            "s3://bucket/date=2024-01-01/part-00000.snappy.parquet",
            "table share.schema.table: line 3 of the answer is not JSON: Expecting ',' delimiter: line 1 column 5",
            "column 'sig' is long in the table and string in the file",
            "the design: two floors",
            "is it there? a = b",
            "what? why = because",
            "the table has no column 'signature'; it has id, signature",
            "timeout: 10 s connect, 60 s read",
            "pip install 'delta-sharing-client[all]'",
            "https://sharing.example.com/delta-sharing/shares/a/schemas/b/tables/c",
            "file:///home/me/profile.share",
            "reader features that this release does not support: variantType, geospatial",
            "ünïcödé — 表 🦆",
            "whether the address should begin with http://",
            "use https://, or http:// on loopback.",
            "s3://<bucket>/<path>, api://<application-id>/.default",
            "a URL of the form abfss://container@account.dfs.core.windows.net/path",
            'JSON such as {"bearerToken": "...", "expirationTime": "2030-01-31T00:00:00Z"}',
        ],
    )
    def test_text_without_secrets_is_unchanged(self, text):
        assert redact_text(text) == text

    def test_no_message_of_the_package_masks_its_own_words(self):
        masked = [
            (path.name, line, text)
            for path in sorted(Path(secrets.__file__).parent.rglob("*.py"))
            for line, text in sentences(ast.parse(path.read_text(encoding="utf-8")))
            if redact_text(text) != text
        ]
        assert masked == []

    @given(st.text())
    @settings(max_examples=examples(200), deadline=None)
    def test_redacting_twice_is_redacting_once(self, text):
        once = redact_text(text)
        assert redact_text(once) == once

    @given(st.sampled_from(SIGNED), st.text(), st.text())
    @settings(max_examples=examples(200), deadline=None)
    def test_a_signed_url_anywhere(self, url, before, after):
        assert CANARY not in redact_text(f"{before} {url} {after}")

    @pytest.mark.parametrize(
        "unit",
        ["/", "a", "a:", "?", "=", "/?", "sig ", "X-Amz-", "bearer ", '"', "\\", 'password":"', "://", "- -"],
    )
    def test_redaction_takes_linear_time(self, unit):
        """In quadratic time it would not end before the limit of a test."""
        redact_text(unit * (900_000 // len(unit)))
