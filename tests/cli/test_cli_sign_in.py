"""`login`, `logout`, and `profile check` of a person's sign-in."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path

import platformdirs
import pytest
from click.shell_completion import ShellComplete
from command_runs import run
from faults.server import FaultServer, Reply

import delta_sharing_client as ds
from delta_sharing_client.cli.app import cli

sys.path.append(str(Path(__file__).parents[1] / "auth"))

from openid_server import ACCESS, DEVICE, REFRESH, OpenIdServer


@pytest.fixture
def openid(tmp_path, monkeypatch):
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: tmp_path / "cache")
    with FaultServer() as running:
        openid = OpenIdServer(running)
        openid.device["interval"] = 0.001
        yield openid


@pytest.fixture
def config(openid, tmp_path):
    file = tmp_path / "person.share"
    file.touch(0o600)
    file.write_text(json.dumps(openid.fields()))
    return str(file)


def test_sign_in_check_and_sign_out(openid, config):
    refused = run("ls", config, code=4)
    assert f"run: delta-sharing login {config}" in refused.stderr
    done = run("login", config, "--device-code")
    assert "Signed in as ada@example.com" in done.stdout
    assert "WDJB-MJHT" in done.stderr
    assert run("ls", config, "--output", "csv").stdout.split() == ["share,comment", "1,"]
    assert "Signed out." in run("logout", config).stdout
    assert "Nobody was signed in." in run("logout", config).stdout
    assert "nobody has signed in" in run("ls", config, code=4).stderr
    assert not [secret for secret in (ACCESS, REFRESH, DEVICE) if secret in done.output]


def test_check_names_the_account_and_the_expiration(openid, config):
    run("login", config, "--device-code")
    openid.server.on("GET", "/shares/1/all-tables", Reply.of_json({"items": []}))
    facts = json.loads(run("profile", "check", config, "--output", "json").stdout)
    assert facts["signed_in_as"] == "ada@example.com"
    assert "renewed automatically" in facts["valid_until"]


def test_a_refusal_is_one_line(openid, config):
    openid.pending = ["access_denied"]
    refused = run("login", config, "--device-code", code=4)
    assert "refused by the person" in refused.stderr


def test_nobody_signs_in(config):
    assert "nobody signed in within 1 s" in run("login", config, "--no-browser", "--timeout", "1", code=4).stderr


def test_a_profile_that_needs_no_sign_in(profile):
    assert "needs no sign-in" in run("login", profile, code=4).stderr


class Terminal(StringIO):
    def isatty(self):
        return True


def test_completion_starts_no_sign_in_at_a_terminal(openid, config, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    openid.device["interval"] = 0.001
    monkeypatch.setattr("webbrowser.open", lambda page: openid.browser(page))
    assert ShellComplete(cli, {}, "delta-sharing", "_COMPLETE").get_completions(["head"], f"{config}#") == []
    assert openid.server.seen("/.well-known/openid-configuration") == []
    monkeypatch.setattr("webbrowser.get", lambda: None)
    with ds.SharingClient(config) as client:  # the same terminal signs in for a client
        assert [share.name for share in client.list_shares()] == ["1"]
