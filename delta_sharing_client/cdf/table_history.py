"""`TableHistory`: metadata and protocols of a range of versions, and the check for one common schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from delta_sharing_client.errors import SchemaChangedError, TableReplacedError
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.column_mapping import MappingMode, mapping_mode
from delta_sharing_client.model.schema_evolution import ColumnChange, column_changes
from delta_sharing_client.scan.data_skipping import project
from delta_sharing_client.wire.answers import Answer


@dataclass(frozen=True)
class TableHistory:
    """The metadata and protocols of a range of versions, oldest first.

    A server without history sends one of each, the latest.

    Attributes:
        metadata: never empty; the first is the one at the start of the range.
        protocols: likewise.
    """

    metadata: tuple[Metadata, ...]
    protocols: tuple[Protocol, ...]

    @classmethod
    def of(cls, answer: Answer[Any, Any], ending_version: int | None, what: str) -> TableHistory:
        """Return the history in an answer.

        Args:
            answer: the answer.
            ending_version: the last requested version, which the server may exceed.
            what: the table, for messages.

        Raises:
            UnsupportedTableError: a version of the range needs something that this release cannot read.
        """
        later = [
            item
            for item in answer.historical
            if ending_version is None or item.version is None or item.version <= ending_version
        ]
        protocols = (answer.protocol, *answer.protocols)
        for protocol in protocols:
            protocol.check_readable(what)
        return cls((answer.metadata, *later), protocols)

    @property
    def last(self) -> Metadata:
        """The metadata at the end of the range."""
        return self.metadata[-1]

    @property
    def protocol(self) -> Protocol:
        """The protocol at the end of the range."""
        return self.protocols[-1]

    @property
    def mapping(self) -> MappingMode:
        """The column mapping of the files of the range.

        If mapping is enabled within the range, existing columns keep their names in files, so that the mapping at
        the end of the range is valid for earlier files too.
        """
        return self.modes[-1]

    @property
    def modes(self) -> tuple[MappingMode, ...]:
        """The column mapping in force with each metadata."""
        mapped = any(protocol.maps_columns for protocol in self.protocols)
        asked = [mapping_mode(item.configuration) for item in self.metadata]
        if not mapped and (len(asked) == 1 or asked[0] != "none"):
            # Mapping that is enabled in the range counts, even if the server sends no protocol but the first.
            return tuple("none" for _ in asked)
        return tuple(asked)

    def changes(self) -> Iterator[tuple[Metadata, tuple[ColumnChange, ...]]]:
        """Yield each metadata that changed the columns, and the changes."""
        modes = self.modes
        for number in range(1, len(self.metadata)):
            before, after = self.metadata[number - 1 : number + 1]
            changed = column_changes(before, after, (modes[number - 1], modes[number]))
            if changed:
                yield after, changed

    def check(self, columns: Iterable[str] | None, what: str) -> None:
        """Check that one schema fits the rows of the whole range.

        Args:
            columns: the columns that are read; None for all.
            what: the table, for messages.

        Raises:
            SchemaChangedError: it does not fit.
            TableReplacedError: the table was replaced within the range.
            ColumnError: a requested column is not in the table at the end of the range.
        """
        names = None if columns is None else set(project(self.last.schema, columns).names)
        self._check_identity(what)
        for metadata, changed in self.changes():
            broken = [item for item in changed if not item.additive and (names is None or item.top in names)]
            if broken:
                raise changed_schema(what, metadata.version, broken)

    def _check_identity(self, what: str) -> None:
        modes = self.modes
        for number, item in enumerate(self.metadata[1:], 1):
            if item.id != self.metadata[0].id:
                raise TableReplacedError(
                    f"{what}: {_at(item.version)} it was replaced by another table (its id changed); "
                    "read the changes from that version on",
                    version=item.version,
                    expected=self.metadata[0].id,
                    actual=item.id,
                )
            if modes[number - 1] != "none" and modes[number] != modes[number - 1]:
                raise SchemaChangedError(
                    f"{what}: {_at(item.version)} its column mapping changed from {modes[number - 1]!r} to "
                    f"{modes[number]!r}; {_ADVICE}",
                    version=item.version,
                )


_ADVICE = "read the changes before that version, and those from it on, one by one"


def changed_schema(
    what: str, version: int | None, changed: Sequence[ColumnChange], *, advice: str = _ADVICE
) -> SchemaChangedError:
    """Return the error for columns that were renamed or dropped, or changed their type.

    Args:
        what: the table.
        version: the version with the changes, if known.
        changed: the changes.
        advice: what to do, other than to leave the column out.
    """
    changes = "; ".join(map(str, changed))
    return SchemaChangedError(
        f"{what}: {_at(version)} {changes}; {advice}, or leave the column out with columns=[...]",
        version=version,
        columns=list(dict.fromkeys(item.column for item in changed)),
    )


def _at(version: int | None) -> str:
    return "within the range of versions" if version is None else f"in version {version}"
