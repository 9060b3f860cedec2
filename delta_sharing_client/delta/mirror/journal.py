"""Journal of the files that a sync writes, so that the next sync can remove the files of a crashed one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from delta_sharing_client.delta.log.durable_files import TEMPORARY, remove_quietly, replace_file, writing
from delta_sharing_client.delta.log.log_segment import LOG_DIRECTORY, SIDECARS
from delta_sharing_client.delta.log.symbolic_links import LinkCheck
from delta_sharing_client.delta.table.file_download import PARTIAL, PRIVATE_FOLDER

_NAME: Final = "pending.json"


class Journal:
    """The paths that unfinished syncs have made or were about to make.

    They are noted before the first of them is made, and forgotten after the commit that names them.

    Args:
        directory: the mirror's directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / PRIVATE_FOLDER / _NAME
        self.pending = self._read()

    def begin(self, paths: Iterable[str]) -> None:
        """Note what is about to be made, beside what earlier syncs left; what lies there already is not."""
        new = {path for path in paths if not (self._directory / path).exists()}
        if new <= self.pending:
            return
        self.pending |= new
        with writing("the mirror's journal", self._directory):
            replace_file(self._file, json.dumps(sorted(self.pending)).encode())

    def end(self, committed: Iterable[str] = ()) -> int:
        """Remove what no commit names, and forget the rest.

        Args:
            committed: the paths that the newest version names.

        Returns:
            How many files were removed.

        Raises:
            DeltaLogError: a folder with such a file is a link.
        """
        removed = 0
        links = LinkCheck(self._directory)
        for path in self.pending - set(committed):
            file = self._directory / path
            links.folder(file.parent)
            if file.is_file():
                remove_quietly(file)
                removed += 1
        for file in self._unfinished():
            remove_quietly(file)
        self.pending = set()
        remove_quietly(self._file)
        return removed

    def _unfinished(self) -> Iterator[Path]:
        """Yield the unfinished files of a crashed process; no other process writes while this one has the lock."""
        log = self._directory / LOG_DIRECTORY
        yield from (self._directory / PRIVATE_FOLDER / PARTIAL).glob("*")
        for folder in (self._directory / PRIVATE_FOLDER, log, log / SIDECARS):
            yield from folder.glob(f".*{TEMPORARY}")

    def _read(self) -> set[str]:
        try:
            paths = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return set()
        if not isinstance(paths, list):
            return set()
        # Only files of the mirror are removed, whatever the journal contains.
        return {p for p in paths if isinstance(p, str) and not Path(p).is_absolute() and ".." not in Path(p).parts}
