"""Conversion of deltalake's errors to this package's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from delta_sharing_client.errors import (
    CommitConflictError,
    DeltaLogError,
    DeltaSharingError,
    DiskFullError,
    SinkError,
    UnsupportedFeatureError,
)
from delta_sharing_client.log.durable_files import FULL
from delta_sharing_client.log.log_segment import list_log

_FEATURES: Final = re.compile(r"table features required: \[([^][]*)\]|Feature '(\w+)' is not supported")
#: Features whose names in deltalake differ from the protocol, apart from case.
_NAMES: Final = {"ClusteredTable": "clustering"}
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
#: The start of rows or of a backtrace in an error's text.
_DETAILS: Final = re.compile(r"\n|Preview of invalid data|\s0: <unknown>")


@contextmanager
def typed_errors(path: Path, table: DeltaTable | None = None) -> Iterator[None]:
    """Convert errors of deltalake; `table` is None while it is opened or created.

    Raises:
        CommitConflictError: another writer committed a conflicting version.
        UnsupportedFeatureError: deltalake does not support a feature of the table.
        DiskFullError: the disk is full.
        DeltaLogError: the log is damaged, or the file system failed.
        SinkError: the rows break a constraint of the table, or any other error.
    """
    version = None if table is None else table.version()
    try:
        yield
    except (DeltaError, OSError) as error:
        raise _typed(error, path, version) from None


def _typed(error: Exception, path: Path, version: int | None) -> DeltaSharingError:
    text = _DETAILS.split(str(error), maxsplit=1)[0].rstrip()
    if named := _FEATURES.search(text):
        parts = (re.findall(r"\w+", part) for part in (named[1] or named[2]).split(","))
        names = [words[-1] for words in parts if words]
        features = [_NAMES.get(name, name[0].lower() + name[1:]) for name in names]
        return UnsupportedFeatureError(
            f"Delta table {path}: deltalake does not support features of the table: {', '.join(features)}",
            features=features,
        )
    if number := _OS_ERROR.search(text):
        if int(number[1]) in FULL:
            return DiskFullError(f"{text}; nothing was committed: make room and try again", path=str(path))
        return DeltaLogError(text, path=str(path))
    if isinstance(error, CommitFailedError):
        newest = list_log(path).latest_version
        if version is not None and newest > version:
            return CommitConflictError(f"another writer committed first: {text}", path=str(path), version=newest)
        return DeltaLogError(text, path=str(path))
    if version is None:
        if "already exists" in text:
            return CommitConflictError("another writer made the table first", path=str(path), version=0)
        return DeltaLogError(text, path=str(path))
    if "validation check" in text or "non-nullable" in text:
        text = f"rows break a rule of the table (NOT NULL, CHECK, an invariant or a generated column): {text}"
    return SinkError(f"deltalake rejected the batch: {text}", target=f"Delta table {path}")
