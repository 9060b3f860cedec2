"""Whole answers to /metadata, /query and /changes, assembled from the actions of their pages.

Files are converted block by block as they are decoded, so that memory holds only the caller's items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from delta_sharing_client.errors import IncompleteResponseError, ProtocolError, VersionMismatchError
from delta_sharing_client.model.actions import (
    AddFile,
    CdcFile,
    EndStreamAction,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
)
from delta_sharing_client.model.redacted_struct import RedactedStruct
from delta_sharing_client.wire.decoder import Decoded
from delta_sharing_client.wire.duplicate_files import DuplicateFiles
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import AnyRequest

T = TypeVar("T")

#: The most lines of one page that list no new file; a longer page has no end.
MAX_OTHERS: Final = 1_000_000


#: Called once per page, as soon as its protocol and metadata are known. Returns the function that converts files
#: to items; it may drop files.
Convert: TypeAlias = Callable[[Protocol, Metadata], Callable[[FileBlock], list[T]]]


class TableInfo(RedactedStruct, frozen=True):
    """A table's protocol and metadata ("Query Table Metadata").

    Attributes:
        version: the table version they are for, if the server reports it.
        protocol: what a reader must support.
        metadata: schema, partition columns, properties.
    """

    version: int | None
    protocol: Protocol
    metadata: Metadata


class Answer(TableInfo, Generic[T, AnyRequest], frozen=True):
    """All pages of an answer to /query or /changes; `version` is the first version of changes.

    Attributes:
        items: the files, or what `Convert` made of them, in the server's order.
        end: refresh token of the first page and the earliest URL expiry of all pages, if known.
        request: requests the same files again: the request in the response format of the answer, on which their
            ids depend, and without hints if the server refused them.
        historical: the metadata of later versions of changes that changed it, each with its `version`.
        protocols: the protocols of later versions of changes that changed it.
        of_view: whether the changes are those of a view; its files have no versions.
        source: the reader of the files and what renews their URLs, if the URLs are not pre-signed.
    """

    redacted_fields: ClassVar = frozenset({"items", "request", "source"})

    items: list[T]
    end: EndStreamAction | None
    request: AnyRequest
    historical: tuple[Metadata, ...] = ()
    protocols: tuple[Protocol, ...] = ()
    of_view: bool = False
    source: Any = None


def keep_files(protocol: Protocol, metadata: Metadata) -> Callable[[FileBlock], list[FileAction]]:
    """The `Convert` that keeps each file's action."""
    return list


def keep_blocks(protocol: Protocol, metadata: Metadata) -> Callable[[FileBlock], list[FileBlock]]:
    """The `Convert` that keeps the blocks of files."""
    return lambda files: [files]


class Page(Struct, Generic[T]):
    """One page of an answer, read to its end; the first one grows into the whole (see `Answer`).

    A later page without files has neither protocol nor metadata.
    """

    version: int | None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    items: list[T] = msgspec.field(default_factory=list)
    end: EndStreamAction | None = None
    historical: list[Metadata] = msgspec.field(default_factory=list)
    protocols: list[Protocol] = msgspec.field(default_factory=list)
    of_view: bool = False
    _by_version: dict[tuple[str, int], Metadata | Protocol] = msgspec.field(default_factory=dict)

    @property
    def next_token(self) -> str | None:
        """The token of the page after this one; None at the end."""
        return self.end.next_page_token if self.end is not None else None

    def head(self, what: str) -> tuple[Protocol, Metadata]:
        """Return protocol and metadata; raise `ProtocolError` if one is missing."""
        if self.protocol is None or self.metadata is None:
            missing = "protocol" if self.protocol is None else "metadata"
            raise ProtocolError(f"{what}: the answer has no {missing} line")
        return self.protocol, self.metadata

    def add_protocol(self, protocol: Protocol, what: str, *, changes: bool) -> None:
        """Add a protocol line; in changes, one after the metadata is that of a later version."""
        if changes:
            self._check_version(protocol, what)
        if changes and self.metadata is not None:
            self.protocols.append(protocol)
        elif self.protocol in (None, protocol):
            self.protocol = protocol
        else:
            raise ProtocolError(f"{what}: the answer has two different protocol lines")

    def add_metadata(self, metadata: Metadata, what: str, *, changes: bool) -> None:
        """Add a metadata line; in changes, a second one is that of a later version."""
        if self.protocol is None:
            raise ProtocolError(f"{what}: the answer has a metadata line before its protocol line")
        if changes:
            self._check_version(metadata, what)
        if self.metadata is None:
            self.metadata = metadata
        elif changes:
            self.historical.append(metadata)
        elif metadata != self.metadata:
            raise ProtocolError(f"{what}: the answer has two different metadata lines")

    def _check_version(self, action: Metadata | Protocol, what: str) -> None:
        """Raise if a version has another metadata or protocol already; totals of files do not count."""
        if action.version is None:
            return
        part, compared = "protocol", action
        if isinstance(action, Metadata):
            part, compared = "metadata", replace(action, size=None, num_files=None)
        if self._by_version.setdefault((part, action.version), compared) != compared:
            raise ProtocolError(f"{what}: the answer has two different {part} lines for version {action.version}")

    def append(self, page: Page[T], what: str) -> None:
        """Add a following page; raise if it is of another table version, or has another protocol or metadata."""
        if None not in (self.version, page.version) and page.version != self.version:
            raise VersionMismatchError(
                f"{what}: the table moved from version {self.version} to {page.version} between two pages of "
                "the answer; run the query again, or pin its version",
                expected=self.version,
                actual=page.version,
            )
        if page.of_view != self.of_view:
            raise ProtocolError(f"{what}: only some pages of the answer are marked as the changes of a view")
        if page.protocol not in (None, self.protocol) or page.metadata not in (None, self.metadata):
            part = "metadata" if page.protocol in (None, self.protocol) else "protocol"
            raise ProtocolError(f"{what}: the table's {part} changed between two pages of the answer")
        self.items.extend(page.items)
        for action in page._by_version.values():
            self._check_version(action, what)
        self.historical += [item for item in page.historical if item not in self.historical]
        self.protocols += [item for item in page.protocols if item not in self.protocols]
        ends = [end for end in (self.end, page.end) if end is not None]
        expiries = [end.min_url_expiration_timestamp for end in ends if end.min_url_expiration_timestamp]
        self.end = EndStreamAction(
            refresh_token=self.end.refresh_token if self.end else None,
            next_page_token=page.next_token,
            min_url_expiration_timestamp=min(expiries, default=None),
        )


def read_page(
    actions: Iterable[Decoded],
    *,
    version: int | None,
    what: str,
    convert: Convert[T],
    duplicates: DuplicateFiles,
    changes: bool = False,
    ending_version: int | None = None,
    of_view: bool = False,
) -> Page[T]:
    """Read one page of an answer to /query or /changes to its end.

    Args:
        actions: the page's actions, as `decode_actions` yields them.
        version: its `Delta-Table-Version`.
        what: the requested object, for messages.
        convert: makes the items of files.
        duplicates: the files of the pages before.
        changes: whether changes were requested; a snapshot has only added files.
        ending_version: the last version; files of later versions are dropped.
        of_view: whether the changes are those of a view.

    Raises:
        ProtocolError: an action has no place in the answer.
    """
    page: Page[T] = Page(version, of_view=of_view)
    duplicates.begin_page()
    make: Callable[[FileBlock], list[T]] | None = None
    others = 0
    for action in actions:
        if isinstance(action, FileBlock):
            if make is None:
                raise ProtocolError(f"{what}: the answer has a file before its metadata line")
            if not changes and action.kind is not AddFile:
                raise ProtocolError(f"{what}: the answer has a {_NAMES[action.kind]} in a snapshot")
            new = duplicates.new_files(action if ending_version is None else _up_to(ending_version, action))
            page.items += make(new)
            others += len(action) - len(new)
        else:
            others += 1
        if others > MAX_OTHERS:
            raise ProtocolError(f"{what}: the answer has no end: {MAX_OTHERS:,} of its lines name no new file")
        if isinstance(action, EndStreamAction):
            page.end = action
        elif isinstance(action, Protocol):
            page.add_protocol(action, what, changes=changes)
        elif isinstance(action, Metadata):
            page.add_metadata(action, what, changes=changes)
            if make is None:
                make = convert(*page.head(what))
    duplicates.commit_page()
    return page


def _up_to(version: int, files: FileBlock) -> FileBlock:
    return files.take([n for n, known in enumerate(files.versions) if known is None or known <= version])


_NAMES = {CdcFile: "change data file", RemoveFile: "removed file"}


def read_metadata(actions: Iterable[Decoded], *, version: int | None, what: str) -> TableInfo:
    """Read an answer to /metadata to its end; raise `ProtocolError` if it is incomplete or has a file."""
    page: Page[None] = read_page(
        actions, version=version, what=what, convert=_no_files, duplicates=DuplicateFiles(what, changes=False)
    )
    if page.metadata is None and page.end is None:
        raise IncompleteResponseError(f"{what}: the answer ends before its metadata line")
    protocol, metadata = page.head(what)
    return TableInfo(version, protocol, metadata)


def _no_files(protocol: Protocol, metadata: Metadata) -> Callable[[FileBlock], list[None]]:
    def refuse(files: FileBlock) -> list[None]:
        raise ProtocolError(f"the answer to the request for metadata has the file {files.ids[0]}")

    return refuse
