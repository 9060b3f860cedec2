"""Checks for symbolic links below a table's directory, so that no file outside is read, replaced or removed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from delta_sharing_client.errors import DeltaLogError

#: The tag of a directory junction, a link between folders on Windows.
_JUNCTION: Final = 0xA0000003


def refuse_links(table: Path, *names: str) -> None:
    """Raise if a folder below a table's directory, or a file or folder in it, is a link.

    Args:
        table: the table's directory, with its own links resolved.
        names: the folders to check, relative to the directory; by default the whole directory.

    Raises:
        DeltaLogError: there is a link, or a folder cannot be listed.
    """
    folders = [table / name for name in names] or [table]
    for folder in folders:
        if folder != table:
            _refuse(table, folder)
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink() or os.name == "nt":
                        _refuse(table, Path(entry.path))
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise DeltaLogError(f"its directory cannot be listed: {error.strerror}", path=str(table)) from error


class LinkCheck:
    """Refuses files of a table that are reached through a link; each folder is checked once.

    Args:
        table: the table's directory, with its own links resolved.
    """

    def __init__(self, table: Path) -> None:
        self._table = table
        self._checked = {table}

    def folder(self, folder: Path) -> None:
        """Raise `DeltaLogError` if a folder or one above it is a link, or is outside the table's directory."""
        if folder in self._checked:
            return
        if self._table not in folder.parents or folder.name == "..":
            raise DeltaLogError(f"{folder} is outside the table's directory", path=str(self._table))
        self.folder(folder.parent)
        _refuse(self._table, folder)
        self._checked.add(folder)

    def file(self, file: Path) -> None:
        """Raise `DeltaLogError` if a file or a folder above it is a link, or is outside the table's directory."""
        self.folder(file.parent)
        _refuse(self._table, file)


def is_link(path: Path) -> bool:
    """Return whether a path exists and is a symbolic link or a junction."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == _JUNCTION  # Windows


def _refuse(table: Path, path: Path) -> None:
    if is_link(path):
        raise DeltaLogError(
            f"{path.relative_to(table).as_posix()} is a symbolic link, and no link below a table's directory is "
            "followed: remove the link, or replace it with what it points to",
            path=str(table),
        )
