"""Cache of a person's tokens: a private file per client of an OpenID provider, or the keyring of the system."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from delta_sharing_client.auth.renewal import AccessToken
from delta_sharing_client.errors import MissingDependencyError, TokenError
from delta_sharing_client.locks import Timeout, file_lock
from delta_sharing_client.log.durable_files import remove_abandoned, replace_file
from delta_sharing_client.model.credentials import HEADER_SAFE, UserSignIn
from delta_sharing_client.model.numbers import LAST_TIME
from delta_sharing_client.model.redacted_struct import RedactedStruct
from delta_sharing_client.secrets import Secret

_SERVICE: Final = "delta-sharing-client"
_MAX_SIZE: Final = 1024 * 1024


_Text: TypeAlias = Annotated[str, Meta(pattern=rf"\A(?:{HEADER_SAFE.pattern})\Z")]
#: A time that a datetime can have, in seconds since the epoch.
_Time: TypeAlias = Annotated[float, Meta(ge=0, le=LAST_TIME / 1000)]


class _Entry(RedactedStruct, frozen=True, omit_defaults=True):
    """The JSON of an entry; its tokens are in the file, or in the keyring in the same form."""

    redacted_fields: ClassVar = frozenset({"access_token", "refresh_token"})

    access_token: _Text | None = None
    refresh_token: _Text | None = None
    account: str | None = None
    expires: _Time | None = None
    renew_at: _Time | None = None
    keyring: bool = False

    @classmethod
    def decode(cls, text: bytes) -> _Entry:
        """Return the entry of a JSON text; an empty one if it is damaged."""
        try:
            return msgspec.json.decode(text, type=_Entry)
        except (ValueError, RecursionError):
            return cls()


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

    def read(self) -> AccessToken | None:
        """Return the token; None if there is none, or if the entry is damaged."""
        if not self._file.exists():
            return None
        _make_private(self._file, 0o600)
        entry = tokens = self._entry()
        if entry.keyring:
            tokens = _Entry.decode((_keyring("get_password", self._key) or "").encode())
        if tokens.access_token is None:
            return None
        refresh = None if tokens.refresh_token is None else Secret(tokens.refresh_token)
        return AccessToken(Secret(tokens.access_token), entry.expires, entry.renew_at, refresh, entry.account)

    def write(self, token: AccessToken, *, keyring: bool | None = None) -> None:
        """Replace the token atomically.

        Args:
            token: the new token.
            keyring: keep the secrets in the keyring of the system; by default where they are already.

        Raises:
            MissingDependencyError: the extra `keyring` is not installed.
        """
        was_in_keyring = self._entry().keyring
        if keyring is None:
            keyring = was_in_keyring
        tokens = _Entry(token.token.reveal(), token.refresh.reveal() if token.refresh is not None else None)
        if keyring:
            _keyring("set_password", self._key, msgspec.json.encode(tokens).decode())
            tokens = _Entry(keyring=True)
        entry = replace(tokens, account=token.account, expires=token.expires, renew_at=token.renew_at)
        remove_abandoned(self._folder)
        replace_file(self._file, msgspec.json.encode(entry), private=True)
        if was_in_keyring and not keyring:
            _keyring("delete_password", self._key)

    def try_keyring(self, keyring: bool | None) -> None:
        """Write, read and delete an entry of the keyring, if `write` with the same argument would use it.

        Raises:
            MissingDependencyError: the extra `keyring` is not installed.
            TokenError: the keyring cannot be used.
        """
        if not (self._entry().keyring if keyring is None else keyring):
            return
        name = f"{self._key}-test"
        _keyring("set_password", name, "test")
        if _keyring("get_password", name) != "test":
            raise TokenError("the keyring of the system failed (it keeps nothing); sign in without it")
        _keyring("delete_password", name)

    def delete(self) -> bool:
        """Delete the token; return whether there was an entry."""
        existed = self._file.exists()
        if self._entry().keyring:
            _keyring("delete_password", self._key)
        self._file.unlink(missing_ok=True)
        for unfinished in self._folder.glob(f".{self._file.name}.*"):  # of a process that was killed
            unfinished.unlink(missing_ok=True)
        return existed

    def _entry(self) -> _Entry:
        if not self._file.exists():
            return _Entry()
        with self._file.open("rb") as file:
            return _Entry.decode(file.read(_MAX_SIZE))


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
