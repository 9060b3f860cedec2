"""`TableHistory`: metadata and protocols of a range of versions, and the check for one common schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from delta_sharing_client.errors import SchemaChangedError
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.column_mapping import MappingMode, mapping_mode
from delta_sharing_client.model.schema_evolution import ColumnChange, column_changes
from delta_sharing_client.model.table_identity import check_same_table
from delta_sharing_client.scan.file_tasks import errors_naming, project
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
    def of(cls, answer: Answer[Any, Any], ending_version: int | None, subject: str) -> TableHistory:
        """Return the history in an answer; the server may exceed `ending_version`, the last requested version.

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
            protocol.check_readable(subject)
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
        configured = [mapping_mode(item.configuration) for item in self.metadata]
        if not mapped and (len(configured) == 1 or configured[0] != "none"):
            # Mapping that is enabled in the range counts, even if the server sends no protocol but the first.
            return tuple("none" for _ in configured)
        return tuple(configured)

    def check(
        self,
        columns: Iterable[str] | None,
        subject: str,
        replaced_advice: str = "Read the changes from that version on",
    ) -> None:
        """Check that one schema fits the rows of the whole range, of these columns if any are given.

        `replaced_advice` is the remedy if the table was replaced.

        Raises:
            SchemaChangedError: it does not fit.
            TableReplacedError: the table was replaced within the range.
            ColumnError: a requested column is not in the table at the end of the range.
        """
        with errors_naming(subject):
            names = None if columns is None else project(self.last.schema, columns).names
        steps = zip(pairwise(self.metadata), pairwise(self.modes), strict=True)
        for (before, after), modes in steps:
            check_same_table(before.id, after, subject, replaced_advice, version=after.version)
            if modes[0] not in ("none", modes[1]):
                raise SchemaChangedError(
                    f"{subject}: {_at(after.version)} its column mapping changed from {modes[0]!r} to "
                    f"{modes[1]!r}; {_ADVICE}",
                    version=after.version,
                )
            broken = breaking_changes(before, after, modes, names)
            if broken:
                raise changed_schema(subject, after.version, broken)


_ADVICE = "read the changes before that version, and those from it on, one by one"


def breaking_changes(
    before: Metadata, after: Metadata, modes: tuple[MappingMode, MappingMode], columns: Iterable[str] | None
) -> list[ColumnChange]:
    """Return the changes because of which one schema does not fit two versions, of all columns or of some."""
    names = None if columns is None else {name.lower() for name in columns}
    changes = column_changes(before, after, modes)
    return [item for item in changes if not item.additive and (names is None or item.top.lower() in names)]


def changed_schema(
    subject: str, version: int | None, changed: Sequence[ColumnChange], *, advice: str = _ADVICE
) -> SchemaChangedError:
    """Return the error for columns that a version renamed, dropped or retyped; `advice` is the remedy."""
    changes = "; ".join(map(str, changed))
    return SchemaChangedError(
        f"{subject}: {_at(version)} {changes}; {advice}, or leave the column out with columns=[...]",
        version=version,
        columns=list(dict.fromkeys(item.column for item in changed)),
    )


def _at(version: int | None) -> str:
    return "within the range of versions" if version is None else f"in version {version}"
