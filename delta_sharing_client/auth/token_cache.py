"""Cache of a person's tokens: a private file per client of an OpenID provider, or the keyring of the system."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from delta_sharing_client.auth.renewal import AccessToken
from delta_sharing_client.delta.log.durable_files import remove_abandoned, replace_file
from delta_sharing_client.errors import MissingDependencyError, TokenError
from delta_sharing_client.locks import Timeout, file_lock
from delta_sharing_client.model.credentials import HEADER_SAFE, UserSignIn
from delta_sharing_client.model.numbers import LAST_TIME
from delta_sharing_client.secrets import Secret

_SERVICE: Final = "delta-sharing-client"
_MAX_SIZE: Final = 1024 * 1024


class UserToken(AccessToken, frozen=True):
    """An access token of a person, with the refresh token and the account, if the provider gave them."""

    refresh: Secret | None = None
    account: str | None = None


class TokenCache:
    """Cache of the tokens of one client; use it within `lock`.

    Args:
        credential: the client; its issuer, id, scope and audience select the entry.
        folder: the folder of the cache; by default in the user's cache folder (platformdirs).

    Raises:
        MissingDependencyError: the extra `oauth` is not installed.
    """

    def __init__(self, credential: UserSignIn, folder: Path | None = None) -> None:
        names = credential.issuer, credential.client_id, credential.scope, credential.audience
        self._key = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:32]
        self._folder = folder or _default_folder()
        self._file = self._folder / f"{self._key}.json"

    @contextmanager
    def lock(self, timeout: float) -> Iterator[None]:
        """Lock the entry between processes, and make its folder and file private.

        Raises:
            TokenError: the entry belongs to another user, or is locked for `timeout` seconds.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_private(self._folder, 0o700)
            with file_lock(self._file.with_suffix(".lock"), private=True).acquire(timeout=timeout):
                yield
        except Timeout:
            raise TokenError(f"another process signs in or renews the token, and holds {self._file}") from None
        except OSError as error:
            raise TokenError(f"the token cache {self._folder} cannot be used: {error.strerror or error}") from None

    def read(self) -> UserToken | None:
        """Return the token; None if there is none, or if the entry is damaged."""
        if not self._file.exists():
            return None
        _make_private(self._file, 0o600)
        with self._file.open("rb") as file:
            fields = _object(file.read(_MAX_SIZE))
        if fields.get("keyring"):
            fields |= _object((_keyring("get_password", self._key) or "").encode())
        access, refresh, account = (fields.get(name) for name in ("access_token", "refresh_token", "account"))
        times = [fields.get(name) for name in ("expires", "renew_at")]
        texts = [text for text in (access, refresh) if text is not None]
        if not access or not all(isinstance(text, str) and HEADER_SAFE.fullmatch(text) for text in texts):
            return None
        if not all(time is None or _is_time(time) for time in times) or not isinstance(account, str | None):
            return None
        return UserToken(Secret(access), times[0], times[1], Secret(refresh) if refresh else None, account)

    def write(self, token: UserToken, *, keyring: bool | None = None) -> None:
        """Replace the token atomically.

        Args:
            token: the new token.
            keyring: keep the secrets in the keyring of the system; by default where they are already.

        Raises:
            MissingDependencyError: the extra `keyring` is not installed.
        """
        was_in_keyring = self._in_keyring()
        if keyring is None:
            keyring = was_in_keyring
        tokens = {"access_token": token.token.reveal()}
        if token.refresh is not None:
            tokens["refresh_token"] = token.refresh.reveal()
        facts = {"account": token.account, "expires": token.expires, "renew_at": token.renew_at}
        if keyring:
            _keyring("set_password", self._key, json.dumps(tokens))
        content = {**facts, "keyring": True} if keyring else {**facts, **tokens}
        remove_abandoned(self._folder)
        replace_file(self._file, json.dumps(content).encode(), private=True)
        if was_in_keyring and not keyring:
            _keyring("delete_password", self._key)

    def try_keyring(self, keyring: bool | None) -> None:
        """Write, read and delete an entry of the keyring, if `write` with the same argument would use it.

        Raises:
            MissingDependencyError: the extra `keyring` is not installed.
            TokenError: the keyring cannot be used.
        """
        if not (self._in_keyring() if keyring is None else keyring):
            return
        name = f"{self._key}-test"
        _keyring("set_password", name, "test")
        if _keyring("get_password", name) != "test":
            raise TokenError("the keyring of the system failed (it keeps nothing); sign in without it")
        _keyring("delete_password", name)

    def delete(self) -> bool:
        """Delete the token; return whether there was an entry."""
        existed = self._file.exists()
        if self._in_keyring():
            _keyring("delete_password", self._key)
        self._file.unlink(missing_ok=True)
        for unfinished in self._folder.glob(f".{self._file.name}.*"):  # of a process that was killed
            unfinished.unlink(missing_ok=True)
        return existed

    def _in_keyring(self) -> bool:
        if not self._file.exists():
            return False
        with self._file.open("rb") as file:
            return bool(_object(file.read(_MAX_SIZE)).get("keyring"))


def _make_private(path: Path, mode: int) -> None:
    """Remove the permissions of other users; refuse a link and what another user owns."""
    if os.name != "posix":
        return
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.getuid():
        raise TokenError(
            f"the token cache {path} is a link or belongs to another user; remove it, and sign in again"
        )
    if status.st_mode & 0o077:
        path.chmod(mode)


def _default_folder() -> Path:
    try:
        import platformdirs
    except ImportError:
        purpose = f"a profile of type {UserSignIn.TYPE}"
        raise MissingDependencyError(package="platformdirs", extra="oauth", purpose=purpose) from None
    return platformdirs.user_cache_path("delta-sharing-client", appauthor=False) / "tokens"


def _keyring(function: str, *arguments: str) -> Any:
    try:
        import keyring
        from keyring.errors import PasswordDeleteError
    except ImportError:
        purpose = "tokens in the keyring of the system"
        raise MissingDependencyError(package="keyring", extra="keyring", purpose=purpose) from None
    try:
        return getattr(keyring, function)(_SERVICE, *arguments)
    except PasswordDeleteError:  # the user has deleted it already
        return None
    except Exception as error:  # noqa: BLE001  # each backend raises its own errors
        raise TokenError(
            f"the keyring of the system failed ({type(error).__name__}); sign in without it"
        ) from None


def _is_time(value: object) -> bool:
    """Whether a value is a time in seconds since the epoch that a datetime can have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LAST_TIME / 1000


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
