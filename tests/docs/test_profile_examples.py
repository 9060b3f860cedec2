"""Example profiles: valid, as described in profiles/README.md, and without secrets."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client import Profile, SharingClient
from delta_sharing_client.auth.profile import ProfileWarning
from delta_sharing_client.errors import ProfileError

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ROOT / "profiles"
TEXT = (PROFILES / "README.md").read_text(encoding="utf-8")
EXAMPLES = sorted(PROFILES.glob("*.example.share"))
PLACEHOLDER = re.compile(r"<[a-zA-Z-]+>")
PUBLIC = {"shareCredentialsVersion", "type", "endpoint", "tokenEndpoint", "expirationTime", "algorithm", "issuer"}
NEED_EXTRA = {"oauth_jwt_bearer_private_key_jwt", "oauth_authorization_code"}

ids = {"ids": lambda path: path.name}


def rows() -> dict[str, tuple[str, str]]:
    """The row of each example in the page: its type, and whether it is supported."""
    found = re.findall(r"^\| \[([^\]]+)\]\(\1\) \| (.*?) \| (.*?) \|$", TEXT, re.MULTILINE)
    return {name: (kind, support) for name, kind, support in found}


def leaves(value: Any) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, item in value.items():
        found += leaves(item) if isinstance(item, dict) else [(name, item)]
    return found


def test_the_page_lists_every_example() -> None:
    assert set(rows()) == {path.name for path in EXAMPLES}
    assert len(EXAMPLES) == 7


@pytest.mark.parametrize("path", EXAMPLES, **ids)
def test_an_example_behaves_as_the_page_says(path: Path) -> None:
    kind, support = rows()[path.name]
    fields = json.loads(path.read_text(encoding="utf-8"))
    assert f"version {fields['shareCredentialsVersion']}" in kind
    if "type" in fields:
        assert f"`{fields['type']}`" in kind
    assert support.split(", ")[0] == "supported"
    assert ("extra `oauth`" in support) == (fields.get("type") in NEED_EXTRA)
    profile = Profile.from_dict(fields)
    assert profile.type == fields.get("type", "bearer_token")
    assert not profile.expired()
    SharingClient(fields).close()


@pytest.mark.parametrize("path", EXAMPLES, **ids)
def test_an_example_holds_placeholders_only(path: Path) -> None:
    fields = json.loads(path.read_text(encoding="utf-8"))
    secret = [(name, value) for name, value in leaves(fields) if name not in PUBLIC]
    assert secret
    for name, value in secret:
        assert PLACEHOLDER.fullmatch(value), name
    assert fields["endpoint"].startswith("https://sharing.example.com/")


@pytest.mark.parametrize("path", EXAMPLES, **ids)
def test_the_page_explains_every_field_of_an_example(path: Path) -> None:
    for name, _ in leaves(json.loads(path.read_text(encoding="utf-8"))):
        assert f"`{name}`" in TEXT


def test_times_that_the_page_shows() -> None:
    text = TEXT.split("\n## expirationTime\n")[1]
    forms = [form for line in text.splitlines() if line.startswith("|") for form in re.findall(r"`([^`]+)`", line)]
    assert len(forms) == 7
    for form in forms:
        profile = Profile.from_dict(
            {"shareCredentialsVersion": 1, "endpoint": "https://h", "bearerToken": "x", "expirationTime": form}
        )
        assert profile.expiration_time is not None
        assert profile.expiration_time.isoformat().startswith("2099-12-31T00:00:00"), form


@pytest.mark.parametrize("form", [None, ""])
def test_times_that_mean_never(form: str | None) -> None:
    fields = {"shareCredentialsVersion": 1, "endpoint": "https://h", "bearerToken": "x", "expirationTime": form}
    assert Profile.from_dict(fields).expiration_time is None


def test_an_expired_profile_warns_and_works() -> None:
    fields = {"shareCredentialsVersion": 1, "endpoint": "https://h", "bearerToken": "x"}
    with pytest.warns(ProfileWarning, match="expired"):
        SharingClient({**fields, "expirationTime": "2001-01-01"})


def test_a_copy_that_others_can_read_warns(tmp_path: Path) -> None:
    copy = tmp_path / "mine.share"
    copy.write_text((PROFILES / "version-1.example.share").read_text(encoding="utf-8"), encoding="utf-8")
    copy.chmod(0o644)
    with pytest.warns(ProfileWarning, match="chmod 600"):
        SharingClient(copy)
    copy.chmod(0o600)
    SharingClient(copy)


def test_sources_that_the_page_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "mine.share"
    text = (PROFILES / "bearer-token.example.share").read_text(encoding="utf-8")
    copy.touch(0o600)
    copy.write_text(text, encoding="utf-8")
    endpoint = json.loads(text)["endpoint"]
    monkeypatch.setenv("HOME", str(tmp_path))
    with copy.open(encoding="utf-8") as readable, copy.open("rb") as binary:
        for source in (
            str(copy),
            copy,
            "~/mine.share",
            copy.as_uri(),
            readable,
            binary,
            json.loads(text),
            text,
            Profile.from_json(text),
        ):
            assert SharingClient(source).profile.endpoint == endpoint
    for value in (str(copy), copy.as_uri(), text):
        monkeypatch.setenv("DELTA_SHARING_PROFILE", value)
        assert SharingClient().profile.endpoint == endpoint


def test_a_profile_over_http_is_refused() -> None:
    with pytest.raises(ProfileError, match="https"):
        SharingClient("http://files.example.com/config.share")


def test_git_ignores_profiles_but_not_the_examples() -> None:
    def ignored(name: str) -> bool:
        done = subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT, check=False, capture_output=True)
        if done.returncode > 1:
            pytest.skip("not a git checkout")
        return done.returncode == 0

    assert ignored("profiles/local.share")
    assert ignored("config.share")
    assert not any(ignored(f"profiles/{path.name}") for path in EXAMPLES)
