"""`ObjectStore`: files of a Delta table in an object store through fsspec; listings, reads, exclusive creates.

Serves "Creation of New Log Entries" of the Delta transaction protocol. A commit is created only if it is absent,
and only by drivers that send this condition to the store; two creates of an unused name prove that it is obeyed.
"""

from __future__ import annotations

import errno
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import unquote, urlsplit

from delta_sharing_client.errors import (
    CommitUnknownError,
    DeltaLogError,
    ExclusiveCreateError,
    MissingDependencyError,
)
from delta_sharing_client.fork_safe import ForkSafeLock
from delta_sharing_client.messages import module_logger
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import MASK, Secret, redact_text, redact_url

#: Packages whose create is one conditional request, and the first releases that send it.
EXCLUSIVE_DRIVERS: Final = {"s3fs": (2024, 12), "gcsfs": (2024, 12), "adlfs": (2024, 12)}
#: The package and the extra of this package for each scheme of a URL.
_DRIVERS: Final = {
    **dict.fromkeys(("s3", "s3a"), ("s3fs", "s3")),
    **dict.fromkeys(("gs", "gcs"), ("gcsfs", "gcs")),
    **dict.fromkeys(("abfs", "abfss", "az"), ("adlfs", "abfs")),
}
#: A larger object is sent in parts, whose condition the probe does not prove.
LARGEST_CREATE: Final = 48 * 1024 * 1024
#: Creates of one commit without an answer, and the seconds before the second one.
_ATTEMPTS: Final = 4
_PAUSE = 0.5
#: Small files of the log are kept: at most this size, and this many.
_KEPT_SIZE: Final = 64 * 1024
_KEPT: Final = 1_000
#: Names of the modification time in the drivers' listings.
_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "created")
_TAGS: Final = ("ETag", "etag", "generation", "md5Hash")
#: Shorter values of options are not secret: flags, regions.
_SECRET_LENGTH: Final = 8
_MAX_DETAIL: Final = 300
#: The parts of a URL that `redact_url` leaves out: the user with the password, and the query string.
_ADDRESS: Final = re.compile(r"(?s)[A-Za-z][A-Za-z0-9+.-]*://(?:([^/?#]*)@)?[^?#]*(?:[?#](.*))?")
#: How the drivers name a missing bucket, and the stores' codes.
_PROBE: Final = re.compile(r"_exclusive_create_[0-9a-f]{32}\.tmp")
_NO_BUCKET: Final = re.compile(
    r"(?i)\b(?:bucket|container|filesystem) does not exist|NoSuchBucket|(?:Container|Filesystem)NotFound"
)
#: fsspec's memory file system looks for a file and then writes it.
_MEMORY: Final = ForkSafeLock()

logger = module_logger(__name__)


class StoreStatus(NamedTuple):
    """The status of an object by the names of `os.stat_result`; `st_ino` is a hash of its ETag or generation."""

    st_ino: int
    st_size: int
    st_mtime_ns: int


class ObjectStore:
    """The objects below the URL of one table. May be used by several threads.

    Errors of the driver are raised as `OSError`, with the credentials in their texts masked.

    Args:
        url: the table's URL.
        options: the options of fsspec's file system, such as credentials.

    Raises:
        MissingDependencyError: fsspec or the driver is not installed.
        DeltaLogError: the URL is malformed, or the driver does not accept the options.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.shown = redact_url(url)
        self._secrets = [Secret(text) for text in _texts(options) if len(text) >= _SECRET_LENGTH]
        self._netloc = urlsplit(url).netloc
        self._lock = ForkSafeLock()
        self._proven = False
        self._system, self.root = self._open(url, options)
        self.read_cached = lru_cache(maxsize=_KEPT)(self._read_small)

    @representation
    def __repr__(self) -> str:
        return f"ObjectStore({self.shown!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an object store has credentials and cannot be pickled: open the log where it is needed")

    def resolve(self, uri: str, *, absolute: bool) -> str:
        """Return the path of a URI in the log: relative, or `absolute` in the same bucket or container.

        Raises:
            DeltaLogError: it is elsewhere.
        """
        path = unquote(uri)
        scheme, separator, _ = path.partition("://")
        if not separator and not any(part in ("", ".", "..") for part in path.split("/")):
            return f"{self.root}/{path}"
        if absolute and urlsplit(path).netloc == self._netloc and scheme in _protocols(self._system):
            return str(self._system._strip_protocol(path))
        raise DeltaLogError(
            f"the log names the file {redact_url(uri) if separator else uri[:200]!r}, which is not in the table's "
            "directory; copy the table with its files, or open it with an engine that reads both places",
            path=self.shown,
        )

    def list(self, folder: str) -> dict[str, StoreStatus]:
        """Return the files of a folder by name; raise `FileNotFoundError` if there are none."""
        with self._errors():
            self._system.invalidate_cache(folder)
            found = self._system.ls(folder, detail=True)
            files = [info for info in found if info["type"] == "file" and info["name"].startswith(f"{folder}/")]
            return {info["name"].rpartition("/")[2]: self._status(info) for info in files}

    def status(self, path: str) -> StoreStatus:
        """Return the status of a file; raise `FileNotFoundError` if there is none."""
        with self._errors():
            return self._status(self._system.info(path))

    def read(self, path: str, start: int | None = None, stop: int | None = None) -> bytes:
        """Read a file, or a range of its bytes."""
        with self._errors():
            data: bytes = self._system.cat_file(path, start=start, end=stop)
            return data

    def is_kept(self, status: StoreStatus | None) -> bool:
        """Return whether `read_cached` keeps a file."""
        return status is not None and status.st_size <= _KEPT_SIZE

    def _read_small(self, path: str, status: StoreStatus) -> bytes:
        return self.read(path)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError), self._errors():
            self._system.rm_file(path)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        """Write a file; raise `ExclusiveCreateError` if the store is not one for writing."""
        self.check_exclusive(path)
        with self._errors():
            self._system.pipe_file(path, bytes(data))

    def create(self, path: str, data: bytes) -> bool:
        """Create a file unless it exists; its content must differ from that of every other writer.

        A create without an answer is resolved by reading the file, and repeated if there is none: the store
        refuses the second one if it has the first.

        Returns:
            False if another writer's file exists.

        Raises:
            ExclusiveCreateError: the store cannot create exclusively.
            CommitUnknownError: whether the file was created is unknown.
            OSError: the store refuses files in the folder.
        """
        if len(data) > LARGEST_CREATE:
            raise DeltaLogError(
                f"a commit in an object store has at most {LARGEST_CREATE:,} bytes, not {len(data):,}: divide it",
                path=self.shown,
            )
        self.check_exclusive(path)
        for attempt in range(_ATTEMPTS):
            time.sleep(attempt and _PAUSE * 2 ** (attempt - 1))
            try:
                with self._errors():
                    self._create(path, data)
                return True
            except OSError as error:
                failure = error
            with suppress(OSError):
                return self.read(path) == data
        raise CommitUnknownError(
            f"the store did not confirm {path.rpartition('/')[2]}, which may be written now or later "
            f"({failure.strerror}); read the log before the commit is repeated",
            path=self.shown,
        ) from None

    def check_exclusive(self, path: str) -> None:
        """Raise `ExclusiveCreateError` unless creates in the folder of a file are exclusive; proven once."""
        with self._lock:
            if not self._proven:
                self._check_driver()
                folder = path.rpartition("/")[0]
                self._probe(f"{folder}/_exclusive_create_{uuid.uuid4().hex}.tmp")
                self._remove_old_probes(folder)
                self._proven = True

    def _remove_old_probes(self, folder: str) -> None:
        """Remove the files of probes that processes left which ended within it; those of today may be running."""
        before = (datetime.now(UTC) - timedelta(days=1)).timestamp() * 1_000_000_000
        with suppress(OSError, DeltaLogError):
            for name, status in self.list(folder).items():
                if _PROBE.fullmatch(name) and status.st_mtime_ns < before:
                    self.remove(f"{folder}/{name}")

    def _check_driver(self) -> None:
        if self._is_memory:
            return
        driver = type(self._system).__module__.partition(".")[0]
        needed = EXCLUSIVE_DRIVERS.get(driver)
        if needed is None:
            known = ", ".join(EXCLUSIVE_DRIVERS)
            raise self._refused(f"the driver {driver} is not known to create files exclusively, as {known} do")
        version = str(getattr(import_module(driver), "__version__", "0"))
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < needed:
            raise self._refused(
                f"{driver} {version} is too old, update it to {'.'.join(map(str, needed))} or later"
            )

    def _probe(self, path: str) -> None:
        """Create a file twice: the second create must be refused, and change nothing."""
        try:
            with suppress(FileExistsError), self._errors():  # a driver may repeat its request
                self._create(path, b"first")
            try:
                self._create(path, b"second")
            except FileExistsError:
                refused = True
            except Exception as error:  # noqa: BLE001  # each driver raises its own errors
                raise self._refused(f"a second create fails in another way ({self._detail(error)})") from None
            else:
                refused = False
            if not refused or self.read(path) != b"first":
                raise self._refused("the store lets a second create replace a file")
        finally:
            try:
                self.remove(path)
            except OSError as error:
                logger.warning("%s of %s was not removed: %s", path.rpartition("/")[2], self.shown, error)

    def _create(self, path: str, data: bytes) -> None:
        if not self._is_memory:
            self._system.pipe_file(path, data, mode="create")
            return
        with _MEMORY:
            if self._system.exists(path):
                raise FileExistsError(errno.EEXIST, "it exists")
            self._system.pipe_file(path, data)

    @property
    def _is_memory(self) -> bool:
        return type(self._system).__module__ == "fsspec.implementations.memory"

    def _refused(self, reason: str) -> ExclusiveCreateError:
        return ExclusiveCreateError(f"{reason}; the table can be read, and commits are refused", path=self.shown)

    def _open(self, url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
        scheme = url.partition("://")[0].lower()
        if "::" in url or urlsplit(url).query:
            raise DeltaLogError(
                "chained URLs and URLs with a query string are not read; give credentials as storage_options",
                path=self.shown,
            )
        purpose = f"the Delta log {self.shown}"
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise MissingDependencyError(package="fsspec", extra="remote", purpose=purpose) from None
        try:
            # A cached listing would hide the commits of others.
            system, root = url_to_fs(url, **{**options, "use_listings_cache": False, "skip_instance_cache": True})
        except Exception as error:  # noqa: BLE001  # each driver raises its own errors
            package, extra = _DRIVERS.get(scheme, ("", ""))
            if package and find_spec(package) is None:
                raise MissingDependencyError(package=package, extra=extra, purpose=purpose) from None
            raise DeltaLogError(f"fsspec cannot open it: {self._detail(error)}", path=self.shown) from None
        return system, root.rstrip("/")

    def _status(self, info: Mapping[str, Any]) -> StoreStatus:
        moment = next((info[name] for name in _TIMES if info.get(name) is not None), None)
        try:
            moment = self._system.modified(info["name"]) if moment is None else moment
        except NotImplementedError:
            raise DeltaLogError(
                "the store has no times of files, and versions need them", path=self.shown
            ) from None
        if isinstance(moment, str):
            moment = datetime.fromisoformat(moment)
        if isinstance(moment, datetime):
            moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        tag = hash(next((str(info[name]) for name in _TAGS if info.get(name)), ""))
        return StoreStatus(tag, int(info["size"] or 0), int(moment * 1_000_000) * 1_000)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise the errors of a driver as errors of the file system."""
        try:
            yield
        except DeltaLogError:
            raise
        except (FileNotFoundError, NotADirectoryError) as error:
            if _NO_BUCKET.search(f"{error} {error.__cause__}"):
                raise DeltaLogError(
                    "there is no such bucket or container; create it, or correct the URL or its options",
                    path=self.shown,
                ) from None
            raise FileNotFoundError(errno.ENOENT, "there is no such file") from None
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, "it exists") from None
        except Exception as error:  # noqa: BLE001  # each driver raises its own errors
            number = errno.EACCES if isinstance(error, PermissionError) else errno.EIO
            raise OSError(number, self._detail(error)) from None

    def _detail(self, error: Exception) -> str:
        """Return the text of a driver's error without credentials."""
        text = redact_text(str(error))
        for secret in self._secrets:
            text = text.replace(secret.reveal(), MASK)
        return " ".join(f"{type(error).__name__}: {text}".split())[:_MAX_DETAIL]


def _protocols(system: Any) -> tuple[str, ...]:
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of options that may be secret: of a URL what is not shown of it."""
    if isinstance(value, str):
        address = _ADDRESS.match(value)
        yield from re.split("[:&=]", ":".join(address.groups(""))) if address else [value]
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
