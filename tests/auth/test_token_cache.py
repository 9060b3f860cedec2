"""Cache of a person's tokens: permissions, processes that share it, kills, the keyring."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import keyring
import keyring.backend
import pytest
from keyring.errors import KeyringError, PasswordDeleteError
from openid_server import ACCESS, REFRESH, OpenIdServer, error
from waiting import HANG, wait_until

from delta_sharing_client.auth.renewal import AccessToken
from delta_sharing_client.auth.token_cache import TokenCache
from delta_sharing_client.errors import TokenError
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.secrets import Secret

ROOT = Path(__file__).resolve().parents[2]
posix = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")

#: Fetches a token in a process of its own: prints `ready`, waits for a line, prints the token or the error.
PROGRAM = """
import os, pathlib, signal, sys
from delta_sharing_client.auth.renewal import AccessToken
from delta_sharing_client.auth.token_cache import TokenCache
from delta_sharing_client.auth.user_tokens import UserTokens
from delta_sharing_client.errors import TokenError
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions

profile = Profile.from_json(sys.argv[1])
tokens = UserTokens(profile, profile.credential, TransportOptions(),
                    cache=TokenCache(profile.credential, pathlib.Path(sys.argv[2])))
if sys.argv[3] == "killed while it writes":
    pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
print("ready", flush=True)
sys.stdin.readline()
try:
    print(tokens.fetch(retry=True).token.reveal())
except TokenError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def openid(server):
    return OpenIdServer(server)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "tokens"


TIMES_THAT_ARE_NONE = ('"x"', "1e12", "1e300", "NaN", "-Infinity", "1" * 400, "true", "-1")


@pytest.fixture
def cache(openid, folder):
    return TokenCache(Profile.from_dict(openid.fields()).credential, folder)


@pytest.fixture
def entry(cache, folder):
    """The file of an expired token with a refresh token."""
    with cache.lock(HANG):
        cache.write(AccessToken(Secret(f"{ACCESS}-0"), 1.0, 1.0, Secret(f"{REFRESH}-0"), "ada"))
    (file,) = folder.glob("*.json")
    return file


def start(openid, folder, mode=""):
    command = [sys.executable, "-c", PROGRAM, json.dumps(openid.fields()), str(folder), mode]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def result(process):
    out, err = process.communicate("\n", timeout=HANG)
    assert (process.returncode, err) == (0, "")
    return out.strip()


class TestPermissions:
    @posix
    def test_folder_and_files_are_private(self, cache, folder):
        old = os.umask(0)
        try:
            with cache.lock(HANG):
                cache.write(AccessToken(Secret("a")))
        finally:
            os.umask(old)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}

    @posix
    def test_permissions_of_others_are_removed(self, cache, folder, entry):
        folder.chmod(0o755)
        entry.chmod(0o644)
        with cache.lock(HANG):
            assert cache.read().account == "ada"
        assert (folder.stat().st_mode & 0o777, entry.stat().st_mode & 0o777) == (0o700, 0o600)

    @posix
    @pytest.mark.parametrize("linked", ["folder", "file"])
    def test_links_are_refused(self, cache, folder, entry, tmp_path, linked):
        path = folder if linked == "folder" else entry
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(TokenError, match="is a link"), cache.lock(HANG):
            cache.read()

    @posix
    def test_a_file_of_another_user_is_refused(self, cache, entry, monkeypatch):
        monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
        with pytest.raises(TokenError, match="another user"), cache.lock(HANG):
            cache.read()

    @pytest.mark.parametrize(
        "damage",
        [
            *("", "{", "[]", "null", "[" * 100_000, '{"access_token": 1}', '{"access_token": "a", "account": 7}'),
            *(f'{{"access_token": "a", "expires": {expires}}}' for expires in TIMES_THAT_ARE_NONE),
            *(f'{{"access_token": "a", "renew_at": {expires}}}' for expires in TIMES_THAT_ARE_NONE),
        ],
    )
    def test_a_damaged_entry_is_no_entry(self, cache, entry, damage):
        entry.write_text(damage)
        with cache.lock(HANG):
            assert cache.read() is None

    def test_the_file_is_named_by_a_hash(self, entry):
        assert len(entry.stem) == 32
        assert int(entry.stem, 16)


class TestProcesses:
    def test_one_of_several_processes_renews(self, openid, folder, entry):
        processes = [start(openid, folder) for _ in range(3)]
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        assert [result(process) for process in processes] == [f"{ACCESS}-1"] * 3
        assert [form["refresh_token"] for form in openid.forms()] == [f"{REFRESH}-0"]

    def test_a_process_killed_during_a_renewal_leaves_the_cache_usable(self, openid, folder, entry, server):
        gone = threading.Event()

        def answer(request):
            if len(server.seen("/token")) == 1:
                gone.wait(HANG)
                return error("invalid_grant")
            return openid._token(request)

        server.on("POST", "/token", answer)
        process = start(openid, folder)
        process.stdin.write("\n")
        process.stdin.flush()
        wait_until(lambda: server.seen("/token"))
        process.kill()
        process.communicate(timeout=HANG)
        assert result(start(openid, folder)) == f"{ACCESS}-1"
        gone.set()

    @posix
    @pytest.mark.parametrize(("rotates", "found"), [(False, f"{ACCESS}-2"), (True, "SignInRequiredError")])
    def test_a_process_killed_while_it_writes(self, openid, folder, entry, rotates, found, cache):
        openid.rotates = rotates
        before = entry.read_bytes()
        killed = start(openid, folder, "killed while it writes")
        killed.communicate("\n", timeout=HANG)
        assert killed.returncode == -signal.SIGKILL
        assert entry.read_bytes() == before
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
        assert result(start(openid, folder)) == found
        with cache.lock(HANG):
            cache.delete()
        assert [file.suffix for file in folder.iterdir()] == [".lock"]

    def test_waiting_for_another_process_is_bounded(self, cache, entry):
        with cache.lock(HANG), pytest.raises(TokenError, match="another process"), cache.lock(0):
            pass


class Keyring(keyring.backend.KeyringBackend):
    priority = 1

    def __init__(self):
        self.entries = {}
        self.broken = False

    def get_password(self, service, username):
        if self.broken:
            raise KeyringError("locked")
        return self.entries.get((service, username))

    def set_password(self, service, username, password):
        if self.broken:
            raise KeyringError("locked")
        self.entries[service, username] = password

    def delete_password(self, service, username):
        if self.entries.pop((service, username), None) is None:
            raise PasswordDeleteError("none")


class TestKeyring:
    @pytest.fixture
    def ring(self, monkeypatch):
        ring = Keyring()
        monkeypatch.setattr(keyring.core, "_keyring_backend", ring)
        return ring

    def test_secrets_are_in_the_keyring_and_stay_there(self, cache, entry, ring):
        token = AccessToken(Secret("canary-a"), 1.0, 1.0, Secret("canary-r"), "ada")
        with cache.lock(HANG):
            cache.write(token, keyring=True)
            assert cache.read() == token
            cache.write(token)
            assert "canary" not in entry.read_text()
            assert len(ring.entries) == 1
            cache.write(token, keyring=False)
            assert ring.entries == {}
            assert cache.read() == token

    def test_a_full_disk_keeps_the_secrets_in_the_keyring(self, cache, entry, ring):
        """The system limits the size of files."""
        resource = pytest.importorskip("resource")
        with cache.lock(HANG):
            before = cache.read()
            cache.write(before, keyring=True)
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
            try:
                with pytest.raises(OSError, match="too large"):
                    cache.write(AccessToken(Secret("other")), keyring=False)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert cache.read() == before

    def test_deleting_clears_the_keyring(self, cache, entry, ring):
        with cache.lock(HANG):
            cache.write(cache.read(), keyring=True)
            assert cache.delete()
        assert ring.entries == {}

    def test_trying_the_keyring_leaves_it_as_it_was(self, cache, entry, ring):
        with cache.lock(HANG):
            cache.try_keyring(True)
            assert ring.entries == {}
            cache.write(cache.read(), keyring=True)
            before = dict(ring.entries)
            cache.try_keyring(None)
            assert ring.entries == before
            ring.broken = True
            cache.try_keyring(False)
            with pytest.raises(TokenError, match="keyring of the system failed"):
                cache.try_keyring(None)

    def test_a_keyring_that_fails(self, cache, entry, ring):
        with cache.lock(HANG):
            cache.write(cache.read(), keyring=True)
            ring.broken = True
            with pytest.raises(TokenError, match="keyring of the system failed"):
                cache.read()
