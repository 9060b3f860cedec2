"""Incomplete files on disk: writes at positions, and notes of the completed length."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Lock
from typing import Any, Final


def write_durably(file: Path, data: bytes | memoryview) -> None:
    """Write a file and fsync it."""
    with file.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


_seeking: Final = Lock()


def write_at(descriptor: int, data: memoryview, position: int) -> None:
    """Write at a position of an open file; several threads may."""
    while data:
        if hasattr(os, "pwrite"):
            written = os.pwrite(descriptor, data, position)
        else:  # pragma: no cover  # Windows
            with _seeking:
                os.lseek(descriptor, position, os.SEEK_SET)
                written = os.write(descriptor, data)
        data = data[written:]
        position += written


def note_of(temporary: Path) -> Path:
    """Return the path of the note of an incomplete file."""
    return temporary.with_name(temporary.name + ".json")


def read_note(temporary: Path, size: int) -> tuple[str | None, int]:
    """Return the ETag and the completed length from the note of an earlier run; (None, 0) if it is not usable."""
    try:
        note: Any = json.loads(note_of(temporary).read_bytes())
        etag, done = note["etag"], note["done"]
        usable = note["size"] == size and isinstance(etag, str) and 0 < done < size and size_of(temporary) >= done
    except (OSError, ValueError, LookupError, TypeError):
        return None, 0
    return (etag, done) if usable else (None, 0)


def size_of(file: Path) -> int:
    """Return the size of a file in bytes."""
    return file.stat().st_size
