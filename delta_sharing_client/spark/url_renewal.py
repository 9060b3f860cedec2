"""URLs that expire while a job runs: renewed on the executors, once per host.

This is the one part of the executor's side that asks the sharing server, so the profile's credential is in it.
It is sent only where `executorCredentials` is on, which it is unless it is turned off.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from delta_sharing_client.errors import StorageError
from delta_sharing_client.locks import file_lock
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.representation import representation
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.scan.url_renewal import UrlRenewer
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.spark.credential import profile_fields

#: How long renewed URLs are kept on a host, seconds; longer than any store lets them live.
_KEPT: Final = 24 * 3600


class Renewal:
    """Gives fresh URLs for a plan's files, on an executor.

    Workers of one host share what they are told: whoever needs a URL first lists the table's files, at the same
    version, and leaves the answer in a file that only this user can read.

    Args:
        profile: the profile, credential included.
        options: how to reach the server.
        plan: the plan, without its tasks.
        key: names the plan's file on the executors' hosts.
    """

    def __init__(self, profile: Profile, options: TransportOptions, plan: ScanPlan, key: str) -> None:
        self._profile = profile
        self._options = options
        self._plan = plan
        self._key = key
        self._lock = threading.Lock()
        self._urls: dict[str, SecretUrl] = {}

    @representation
    def __repr__(self) -> str:
        return f"Renewal({self._plan.table.full_name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (profile_fields(self._profile), self._options, self._plan, self._key)

    def __call__(self, file_id: str, expired: SecretUrl) -> SecretUrl:
        """Return a fresh URL for a file.

        Args:
            file_id: the file's id.
            expired: the URL that does not work any more; empty where there was none.

        Raises:
            StorageError: the server does not list the file any more.
            DeltaSharingError: the server cannot be asked.
        """
        with self._lock:
            if self._urls.get(file_id, expired) == expired:
                self._urls = self._shared(file_id, expired)
            url = self._urls.get(file_id)
        if url is None:
            plan = self._plan
            raise StorageError(
                "its URL expired, and the server does not list the file any more: "
                f"table {plan.table.full_name} moved on from version {plan.version}; load it again",
                file_id=file_id,
            )
        return url

    def _shared(self, file_id: str, expired: SecretUrl) -> dict[str, SecretUrl]:
        """What another worker of this host was told, or else what the server tells now."""
        folder = _private_folder()
        if folder is None:
            return self._ask()
        path = folder / f"{self._key}.json"
        with file_lock(folder / f"{self._key}.lock", private=True):
            known = _read(path)
            if known.get(file_id, expired) != expired:
                return known
            urls = self._ask()
            _write(path, urls)
            return urls

    def _ask(self) -> dict[str, SecretUrl]:
        with RestClient(self._profile, self._options) as rest:
            return UrlRenewer(rest, self._plan).list_urls()


def _rebuild(fields: Mapping[str, Any], options: TransportOptions, plan: ScanPlan, key: str) -> Renewal:
    return Renewal(Profile.from_dict(fields), options, plan, key)


def _private_folder() -> Path | None:
    """A folder of this user alone; None where there cannot be one, or somebody else made it."""
    if not hasattr(os, "getuid"):
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
    """Leave the URLs for the others, and throw away what is too old to be of use."""
    for old in path.parent.iterdir():
        with contextlib.suppress(OSError):
            if old.lstat().st_mtime < time.time() - _KEPT:
                old.unlink()
    descriptor, name = tempfile.mkstemp(dir=path.parent)  # of mode 0600
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps({file_id: url.reveal() for file_id, url in urls.items()}).encode())
    Path(name).replace(path)
