"""`install_as_delta_sharing`: imports of the official client's names, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from script_modules import ROOT, load_script

from delta_sharing_client.errors import ProfileError
from delta_sharing_client.official import __version__
from delta_sharing_client.official.protocol import DeltaSharingProfile

INSTALL = "import delta_sharing_client as ds; ds.install_as_delta_sharing(); "
FIELDS = {"shareCredentialsVersion": 1, "endpoint": "https://host/x", "bearerToken": "canary"}


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """A folder with another package of that name."""
    package = tmp_path / "delta_sharing"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = 'other'\n")
    return tmp_path


@pytest.mark.parametrize(
    "code",
    [
        "import delta_sharing; assert delta_sharing.load_as_pandas is ds.load_as_pandas",
        "from delta_sharing import SharingClient; assert SharingClient is ds.SharingClient",
        "from delta_sharing.delta_sharing import load_as_spark; assert load_as_spark is ds.load_as_spark",
        "from delta_sharing.protocol import Table; assert Table is ds.Table",
        "import delta_sharing.protocol as p; assert p.Metadata is ds.Metadata",
        "import delta_sharing; assert delta_sharing.protocol.DeltaSharingProfile",
        "import delta_sharing.reader; assert not hasattr(delta_sharing.reader, 'anything')",
        "ds.install_as_delta_sharing()  # twice",
    ],
)
def test_names_of_the_official_client_are_those_of_this_package(code: str, official: Path) -> None:
    done = run(INSTALL + code, official)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("from delta_sharing.reader import DeltaSharingReader", "has no counterpart in delta_sharing_client"),
        ("from delta_sharing.rest_client import DataSharingRestClient", "SharingClient has a method"),
        ("from delta_sharing.protocol import AddFile", "lists and reads files"),
        ("from delta_sharing.converter import to_converters", "types of the table's schema"),
        ("from delta_sharing.protocol import Nothing", "cannot import name 'Nothing'"),
        ("import delta_sharing.fake_checkpoint", "No module named 'delta_sharing.fake_checkpoint'"),
    ],
)
def test_a_name_without_counterpart_raises_an_import_error(code: str, message: str) -> None:
    done = run(f"{INSTALL}\ntry:\n    {code}\nexcept ImportError as error:\n    print(error)")
    assert done.returncode == 0, done.stderr
    assert message in done.stdout


def test_the_official_client_must_not_be_imported_before(official: Path) -> None:
    done = run(f"import delta_sharing; {INSTALL}", official)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: the official client, delta_sharing, has been")


def test_without_the_call_nothing_changes(official: Path) -> None:
    done = run("import delta_sharing_client, delta_sharing; print(delta_sharing.__version__)", official)
    assert done.stdout == "other\n"


def test_the_version_is_that_of_the_comparison() -> None:
    assert f"delta-sharing=={__version__}" in load_script("benchmarks/peer.py").PACKAGES


class TestDeltaSharingProfile:
    def test_positional_fields(self) -> None:
        profile = DeltaSharingProfile(1, "https://host/x", "canary", "2999-01-01T00:00:00Z")
        assert profile.bearer_token.reveal() == "canary"
        assert profile.expiration_time is not None
        assert "canary" not in repr(profile)

    def test_client_credentials(self) -> None:
        profile = DeltaSharingProfile(
            2,
            "https://host/x",
            type="oauth_client_credentials",
            token_endpoint="https://host/token",
            client_id="me",
            client_secret="canary",
        )
        assert profile.type == "oauth_client_credentials"

    def test_private_key(self) -> None:
        profile = DeltaSharingProfile(
            2,
            "https://host/x",
            type="oauth_jwt_bearer_private_key_jwt",
            token_endpoint="https://host/token",
            client_id="me",
            issuer="https://host",
            audience="sharing",
            private_key={"privateKeyFile": "key.pem", "keyId": "1", "algorithm": "RS256"},
        )
        assert profile.type == "oauth_jwt_bearer_private_key_jwt"

    @pytest.mark.parametrize("text", [FIELDS, json.dumps(FIELDS), json.dumps(FIELDS).encode()])
    def test_json(self, text: object) -> None:
        assert DeltaSharingProfile.from_json(text) == DeltaSharingProfile(1, "https://host/x", "canary")  # type: ignore[arg-type]

    def test_a_malformed_profile(self) -> None:
        with pytest.raises(ProfileError, match="endpoint"):
            DeltaSharingProfile(1, "", "canary")
