"""Profile sources: files, URLs, dictionaries, JSON text, file objects and the environment.

A profile may name further files, such as that of its private key.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, NoReturn, Protocol, TypeAlias, runtime_checkable

from delta_sharing_client.errors import MissingDependencyError, ProfileError
from delta_sharing_client.messages import warn
from delta_sharing_client.model.credentials import Credential, ExternalCredential, PrivateKeyJwt
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.model.timestamps import format_time
from delta_sharing_client.paths import local_path
from delta_sharing_client.secrets import MASK, Secret, SecretUrl, redact_text, redact_url
from delta_sharing_client.transport.url_rules import is_loopback

#: Environment variable with the default profile: a path, a URL or JSON text.
ENVIRONMENT_VARIABLE: Final = "DELTA_SHARING_PROFILE"
#: Environment variables with the fields of the default profile, if `ENVIRONMENT_VARIABLE` is not set.
ENDPOINT_VARIABLE: Final = "DELTA_SHARING_ENDPOINT"
TOKEN_VARIABLE: Final = "DELTA_SHARING_BEARER_TOKEN"  # noqa: S105  # the name of a variable

#: Source of a profile.
ProfileSource: TypeAlias = "Profile | str | os.PathLike[str] | Mapping[str, Any] | IO[str] | IO[bytes] | None"

_MAX_SIZE: Final = 1024 * 1024
_MAX_KEY: Final = 64 * 1024
#: Extras of fsspec, by the scheme of a URL.
_FSSPEC_EXTRAS: Final = {
    **dict.fromkeys(("http", "https"), "http"),
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("abfs", "abfss", "adl", "az"), "abfs"),
}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?:::|://)")  # a single letter is a drive of Windows

_SUPPORTED: Final = "a path of this machine, its file: URL, or the text of a URL such as s3://bucket/config.share"
#: What a path begins or ends with; a token does neither.
_PATH = re.compile(r"(?:[~/.\\]|[A-Za-z]:).{0,1000}|.{1,250}\.[A-Za-z]{2,10}(?:#.*)?", re.DOTALL)


@runtime_checkable
class _Readable(Protocol):
    def read(self, size: int, /) -> str | bytes: ...


class ProfileWarning(UserWarning):
    """The profile's token has expired, or other users can read its file."""


class _Text(NamedTuple):
    """The content of a profile file, where it is from, and whether other users can read it."""

    content: str | bytes
    source: str | None = None
    is_exposed: bool = False


def load_profile(source: ProfileSource = None, *, external: bool = False, stacklevel: int = 2) -> Profile:
    """Read a profile ("Profile File Format").

    Args:
        source: a path (`~` is the home directory), a `file:` URL, a URL of another scheme that fsspec supports, a
            dictionary, JSON text, an open file, or a `Profile`, which is returned unchanged. None reads the
            environment variable `DELTA_SHARING_PROFILE`: a path, a URL or JSON text; or, if that is not set,
            `DELTA_SHARING_ENDPOINT` and `DELTA_SHARING_BEARER_TOKEN`.
        external: a credential provider returns the tokens; only endpoint and scope of the profile are used.
        stacklevel: the caller to which warnings are attributed, as in `warnings.warn`.

    Raises:
        UnsupportedProfileError: the profile has a newer version or an unsupported credential type.
        ProfileError: the profile cannot be read, or is malformed.
        TransportError: the URL cannot be reached.
        MissingDependencyError: the URL requires fsspec.

    Warns:
        ProfileWarning: the token has expired, or other users can read a file with a secret.
    """
    if isinstance(source, Profile):
        credential = ExternalCredential(getattr(source.credential, "scope", None))
        return replace(source, type=credential.TYPE, credential=credential) if external else source
    exposed = False
    if isinstance(source, Mapping):
        profile = Profile.from_dict(source, external=external)
    else:
        content, name, exposed = _read(source)
        if len(content) > _MAX_SIZE:
            raise ProfileError("it has more than 1 MB; that is not a profile", source=name)
        profile = Profile.from_json(content, name, external=external)
    for warning in _warnings(profile, exposed):
        warn(warning, ProfileWarning, stacklevel=stacklevel)
    return profile


def _warnings(profile: Profile, exposed: bool) -> Iterator[str]:
    if exposed and _may_contain_secret(profile.credential):
        yield (
            f"the profile {profile.source} contains a secret and can be read by other users of this machine; "
            f"run: chmod 600 {profile.source}"
        )
    key = private_key_path(profile)  # the key itself is checked when it is used
    with contextlib.suppress(OSError, ValueError):
        if key is not None and _others_can_read(key.stat().st_mode):
            yield f"the private key {key} can be read by other users of this machine; run: chmod 600 {key}"
    if profile.expired():
        yield (
            f"the credential in the profile {profile.source or '(given as data)'} expired at "
            f"{format_time(profile.expiration_time)}; ask the provider for a new profile"
        )


def _may_contain_secret(credential: Credential) -> bool:
    """Return whether a profile's file contains a secret; that of an external credential is not looked at."""
    values = (getattr(credential, name) for name in credential.__struct_fields__)
    return isinstance(credential, ExternalCredential) or any(isinstance(value, Secret) for value in values)


def _read(source: Any) -> _Text:
    if source is None:
        return _from_environment()
    if isinstance(source, str):
        return _from_text(source)
    if isinstance(source, os.PathLike) and isinstance(os.fspath(source), str):
        return _from_path(source)
    if isinstance(source, _Readable):
        return _from_file_object(source)
    raise TypeError(
        f"a profile is a path, a URL, a dict, JSON text, an open file or a Profile, not {type(source).__name__}"
    )


def _from_environment() -> _Text:
    value = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    endpoint = os.environ.get(ENDPOINT_VARIABLE, "").strip()
    if not value and endpoint:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        fields = {"shareCredentialsVersion": 1, "endpoint": endpoint, **({"bearerToken": token} if token else {})}
        return _Text(json.dumps(fields), f"in ${TOKEN_VARIABLE} and ${ENDPOINT_VARIABLE}")
    if not value:
        raise ProfileError(
            f"none was given and the environment variable {ENVIRONMENT_VARIABLE} is not set; pass the path of "
            f"a profile file, or set it: export {ENVIRONMENT_VARIABLE}=/path/to/profile.share"
        )
    return _Text(value, f"in ${ENVIRONMENT_VARIABLE}") if value.startswith("{") else _from_text(value)


def _from_text(text: str) -> _Text:
    stripped = text.strip().removeprefix("\ufeff")
    if stripped.startswith("{"):
        return _Text(stripped)
    if not stripped:
        raise ProfileError("the path is empty; pass the path of a profile file")
    is_url = _URL.match(stripped) and stripped[:5].lower() != "file:"
    return _from_url(stripped) if is_url else _from_path(text)


def _from_path(given: str | os.PathLike[str]) -> _Text:
    text = os.fspath(given)
    try:
        path = local_path(given, "it", supported=_SUPPORTED)
    except ValueError as error:
        raise ProfileError(str(error), source=_shown_path(text)) from None
    if text.lstrip()[:5].lower() == "file:":
        text = os.fspath(path)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MAX_SIZE + 1)
    except FileNotFoundError:
        where = "" if path.is_absolute() else f" in {Path.cwd()}"
        hint = (
            "; a table URL is an argument of load_as_pandas() and the other load functions" if "#" in text else ""
        )
        raise ProfileError(f"there is no such file{where}{hint}", source=_shown_path(text)) from None
    except IsADirectoryError:
        raise ProfileError("it is a directory, not a profile file", source=text) from None
    except (OSError, ValueError) as error:  # no permission; a surrogate in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ProfileError(f"it cannot be read: {reason}", source=_shown_path(text)) from None
    return _Text(content, text, _others_can_read(mode))


def _shown_path(text: str) -> str:
    """Return a path for a message; masked if it is no path of a file here, because it may be a token instead."""
    looks_like_path = _PATH.fullmatch(text) and redact_text(text) == text
    with contextlib.suppress(OSError, ValueError):
        looks_like_path = looks_like_path or (Path(text).parent != Path() and Path(text).parent.is_dir())
    return text if looks_like_path else f"{MASK} (not shown: it does not look like a path, and may be a token)"


def _others_can_read(mode: int) -> bool:
    return os.name == "posix" and stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


def _from_file_object(file: _Readable) -> _Text:
    name = getattr(file, "name", None)  # not every file object has one
    source = name if isinstance(name, str) else None
    try:
        content: str | bytes = file.read(_MAX_SIZE + 1)
    except (OSError, ValueError) as error:  # closed, or not UTF-8
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise ProfileError(f"it cannot be read: {reason}", source=source) from None
    return _Text(content, source)


def _from_url(url: str) -> _Text:
    shown = redact_url(url)
    if url[:7].lower() == "http://" and not is_loopback(url):
        raise ProfileError("a profile over plain http would expose its token; use https", source=shown)
    try:
        import fsspec
    except ImportError:
        raise MissingDependencyError(
            package="fsspec", extra="remote", purpose=f"reading the profile {shown}"
        ) from None
    try:
        with fsspec.open(url, "rb") as file:
            content = file.read(_MAX_SIZE + 1)
    except ImportError as error:  # fsspec names the package that the scheme needs
        extra = _FSSPEC_EXTRAS.get(url.partition(":")[0].lower())
        remedy = f"; pip install 'fsspec[{extra}]'" if extra else ""
        raise ProfileError(f"fsspec cannot read it: {error}{remedy}", source=shown) from None
    except Exception as error:  # noqa: BLE001  # each backend of fsspec raises its own errors
        if isinstance(error, ValueError) and str(error).startswith("Protocol not known"):
            raise ProfileError(f"fsspec knows no such scheme; a profile is {_SUPPORTED}", source=shown) from None
        _raise_unreadable(url, error)
    return _Text(content, shown)


def _raise_unreadable(url: str, error: Exception) -> NoReturn:
    """Raise the error for a URL; over http fsspec wraps every failure in a `FileNotFoundError`."""
    from ssl import SSLError

    from delta_sharing_client.transport.exception_mapping import CA_BUNDLE, causes, translate, with_message

    links = causes(error)
    first = links[-1]  # an error of the system without the URL, if there was no connection
    status = next(filter(None, (getattr(link, "status", None) for link in links)), None)
    answered = isinstance(first, ValueError | FileNotFoundError) and not isinstance(first, SSLError)
    if url[:4].lower() == "http" and status is None and not answered:
        unreachable = translate(first if isinstance(first, Exception) else error, url=SecretUrl(url))
        text = str(unreachable).replace(CA_BUNDLE, "set SSL_CERT_FILE")  # fsspec has no such options
        raise with_message(unreachable, f"profile {text}") from first
    reason = f"it cannot be read ({type(error).__name__})"
    if isinstance(error, FileNotFoundError):
        reason = "there is no such file" if status in (None, 404, 410) else f"the server answered {status}"
    raise ProfileError(reason, source=redact_url(url)) from None


def private_key_path(profile: Profile) -> Path | None:
    """Return the path of a profile's private key file; None if the profile names no file.

    A relative path starts at the profile's directory if the file exists there, else at the working directory.

    Raises:
        ProfileError: it is no path of this machine.
    """
    credential = profile.credential
    if not isinstance(credential, PrivateKeyJwt) or credential.private_key_file is None:
        return None
    return path_in_profile(profile, credential.private_key_file, "privateKeyFile")


def path_in_profile(profile: Profile, text: str, field: str) -> Path:
    """Return a path that a field of a profile contains, found as by `private_key_path`.

    Raises:
        ProfileError: it is no path of this machine.
    """
    try:
        path = local_path(text, repr(field))
    except ValueError as error:
        raise ProfileError(str(error), field=field, source=profile.source) from None
    if not path.is_absolute() and profile.source is not None:
        with contextlib.suppress(OSError, ValueError):  # a profile at a URL
            beside = local_path(profile.source, "source").parent / path
            if beside.is_file():
                return beside
    return path


def read_private_key(profile: Profile) -> Secret:
    """Return the private key of a profile of type `oauth_jwt_bearer_private_key_jwt`, in PEM.

    Raises:
        ProfileError: the profile has no key, or its file cannot be read.
    """
    credential = profile.credential
    if isinstance(credential, PrivateKeyJwt) and credential.private_key is not None:
        return credential.private_key
    path = private_key_path(profile)
    if path is None:
        raise ProfileError(f"it is of type {profile.type} and has no private key", source=profile.source)
    name = "privateKeyFile"
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_KEY + 1)
        text = content.decode("ascii")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ProfileError(
            f"its private key {path} cannot be read: {reason}; correct {name!r}", field=name, source=profile.source
        ) from None
    except ValueError:  # a null in the path, or no text
        text = ""
    if len(text) > _MAX_KEY or "PRIVATE KEY-----" not in text:
        raise ProfileError(
            f"{path} is not a private key in PEM format; correct {name!r}", field=name, source=profile.source
        )
    return Secret(text)
