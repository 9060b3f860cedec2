"""Renewal of expired URLs on the executors, once per host, and of credentials for tables shared by directory.

The only module that sends requests to the sharing server from executors, which need the profile's credential for
that; it is not sent if `executorCredentials` is off. Beside the code that signs requests, only this module reveals
secrets.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from delta_sharing_client.auth.profile import read_private_key
from delta_sharing_client.locks import file_lock
from delta_sharing_client.model.credentials import PrivateKeyJwt
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.representation import representation
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.scan.url_renewal import ListedUrlRenewal, ListedUrls, UrlLister
from delta_sharing_client.secrets import Secret, SecretUrl
from delta_sharing_client.storage.byte_source import StorageReader, UrlRenewal
from delta_sharing_client.storage.directory import DirectoryFiles, directory_reader, open_files

#: Lifetime of the file of renewed URLs on a host, seconds; longer than that of any URL.
_LIFETIME: Final = 24 * 3600


def encode_renewer(profile: Profile, options: TransportOptions, plan: ScanPlan) -> bytes:
    """Return the pickled `HostUrlRenewer` or `HostDirectory` of a plan, with the credential of the profile.

    A private key is included itself, because the path of its file is valid on the driver alone.

    Raises:
        ProfileError: the private key cannot be read.
    """
    credential = profile.credential
    if isinstance(credential, PrivateKeyJwt):
        key = read_private_key(profile)
        profile = replace(profile, credential=structs.replace(credential, private_key=key, private_key_file=None))
    buffer = io.BytesIO()
    renewer: HostUrlRenewer | HostDirectory = HostUrlRenewer(profile, options, plan, secrets.token_hex(16))
    if plan.source is not None:
        table = replace(plan.table, auxiliary_locations=getattr(plan.source[1], "auxiliary", ()))
        renewer = HostDirectory(profile, options, table)
    _SecretPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(renewer)
    return buffer.getvalue()


class _SecretPickler(pickle.Pickler):
    """Pickles secrets, which `pickle.dumps` refuses."""

    def reducer_override(self, value: Any) -> Any:
        return (Secret, (value.reveal(),)) if isinstance(value, Secret) else NotImplemented


class HostDirectory(UrlRenewal):
    """A table's directory, opened on an executor with temporary credentials that it requests and renews by itself.

    The driver's temporary credentials stay there, and no worker writes its own to a disk.

    Args:
        profile: the profile with its credential.
        options: options of the HTTP client.
        table: the table, with its auxiliary locations.
    """

    def __init__(self, profile: Profile, options: TransportOptions, table: Table) -> None:
        self._profile = profile
        self._options = options
        self._table = table

    @representation
    def __repr__(self) -> str:
        return f"HostDirectory({self._table.full_name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return HostDirectory, (self._profile, self._options, self._table)

    def renew(self, file_id: str, refused: SecretUrl) -> SecretUrl:
        """See `DirectoryFiles`."""
        return self._files.renew(file_id, refused)

    def current_url(self, file_id: str, url: SecretUrl) -> SecretUrl:
        """See `DirectoryFiles`."""
        return self._files.current_url(file_id, url)

    @cached_property
    def reader(self) -> StorageReader:
        """The reader of the files."""
        return directory_reader(self._files, self._options)

    @cached_property
    def _files(self) -> DirectoryFiles:
        return open_files(RestClient(self._profile, self._options), self._table)


class HostUrlRenewer(ListedUrlRenewal):
    """Returns fresh URLs for a plan's files, on an executor.

    The first worker of a host that needs one lists the table's files, at the same version, and writes the URLs to
    a file that only this user can read. The other workers of the host read it.

    Args:
        profile: the profile with its credential.
        options: options of the HTTP client.
        plan: the plan, without its tasks.
        key: name of the plan's file on the executors' hosts.
    """

    def __init__(self, profile: Profile, options: TransportOptions, plan: ScanPlan, key: str) -> None:
        super().__init__(
            plan.table, plan.version, _HostUrlLister(profile, options, plan, key).list_urls, ListedUrls({})
        )
        self._arguments = profile, options, plan, key

    @representation
    def __repr__(self) -> str:
        return f"HostUrlRenewer({self._table.full_name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return HostUrlRenewer, self._arguments


class _HostUrlLister:
    """Lists the files of a plan for a worker, once per host; see `HostUrlRenewer`."""

    def __init__(self, profile: Profile, options: TransportOptions, plan: ScanPlan, key: str) -> None:
        self._profile = profile
        self._options = options
        self._plan = plan
        self._key = key
        self._last: Mapping[str, SecretUrl] = {}

    def list_urls(self) -> ListedUrls:
        """Return the URLs that another worker of this host has listed since the last ones, else list them."""
        listed = self._shared()
        self._last = listed.urls
        return listed

    def _shared(self) -> ListedUrls:
        folder = _private_folder()
        if folder is None:
            return self._list_urls()
        path, listed = folder / f"{self._key}.json", None
        # Without a disk to write to, each worker lists the files.
        with contextlib.suppress(OSError), file_lock(folder / f"{self._key}.lock", private=True):
            known = _read(path)
            if known != self._last:
                return ListedUrls(known)
            listed = self._list_urls()
            _write(path, listed.urls)
        return self._list_urls() if listed is None else listed

    def _list_urls(self) -> ListedUrls:
        with RestClient(self._profile, self._options) as rest:
            return UrlLister(rest, self._plan.table, self._plan).list_urls()


def _private_folder() -> Path | None:
    """A folder that only this user can read; None if there is none, or another user made it."""
    if sys.platform == "win32":  # folders have no such mode there
        return None
    folder = Path(tempfile.gettempdir()) / f"delta-sharing-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
    try:
        state = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o077
    return folder if private else None


def _read(path: Path) -> dict[str, SecretUrl]:
    try:
        return {file_id: SecretUrl(url) for file_id, url in json.loads(path.read_bytes()).items()}
    except (OSError, ValueError):
        return {}


def _write(path: Path, urls: Mapping[str, SecretUrl]) -> None:
    """Write the URLs for the other workers, and delete old files."""
    for old in path.parent.iterdir():
        with contextlib.suppress(OSError):
            if old.lstat().st_mtime < time.time() - _LIFETIME:
                old.unlink()
    descriptor, name = tempfile.mkstemp(dir=path.parent)  # of mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps({file_id: url.reveal() for file_id, url in urls.items()}).encode())
        Path(name).replace(path)
    except OSError:
        Path(name).unlink()
        raise
