"""Whole answers to /metadata, /query and /changes, assembled from the actions of their pages.

Files are converted block by block as they are decoded, so that memory holds only the caller's items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct, structs

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
from delta_sharing_client.wire.answer_checks import check_time_travel, check_view_changes
from delta_sharing_client.wire.decoder import Decoded
from delta_sharing_client.wire.duplicate_files import DuplicateFiles
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import AnyRequest, QueryRequest

T = TypeVar("T")
H = TypeVar("H", Protocol, Metadata)

#: The most lines of one page that list no new file; a longer page has no end.
MAX_OTHERS: Final = 1_000_000


#: Called once per page, as soon as its protocol and metadata are known. Returns the function that converts files
#: to items, which may drop files; None if the answer is of no use, which ends the reading.
Convert: TypeAlias = Callable[[Protocol, Metadata], Callable[[FileBlock], list[T]] | None]


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
        complete: False if `Convert` refused the answer, which then has no items.
    """

    redacted_fields: ClassVar = frozenset({"items", "request", "source"})

    items: list[T]
    end: EndStreamAction | None
    request: AnyRequest
    historical: tuple[Metadata, ...] = ()
    protocols: tuple[Protocol, ...] = ()
    of_view: bool = False
    source: Any = None
    complete: bool = True


def keep_files(protocol: Protocol, metadata: Metadata) -> Callable[[FileBlock], list[FileAction]]:
    """The `Convert` that keeps each file's action."""
    return list


def keep_blocks(protocol: Protocol, metadata: Metadata) -> Callable[[FileBlock], list[FileBlock]]:
    """The `Convert` that keeps the blocks of files."""
    return lambda files: [files]


class AnswerReader(Generic[T, AnyRequest]):
    """Reads an answer to /query or /changes, page by page.

    An attempt to read a page that fails leaves nothing behind, so that the page can be requested again.

    Args:
        request: requests the first page.
        subject: the requested object, for messages.
        convert: makes the items of files.
    """

    def __init__(self, request: AnyRequest, subject: str, convert: Convert[T]) -> None:
        self._request = request
        self._subject = subject
        self._convert = convert
        self._changes = not isinstance(request, QueryRequest)
        self._duplicates = DuplicateFiles(subject, changes=self._changes)
        self._answer: Answer[T, AnyRequest] | None = None

    def read_page(
        self, actions: Iterator[Decoded], *, version: int | None, of_view: bool = False
    ) -> Answer[T, AnyRequest]:
        """Read the next page to its end; return the answer up to there.

        A page that `convert` refuses is not read further; its head is returned, as an answer that is not
        `complete`.

        Args:
            actions: the page's actions, as `decode_actions` yields them.
            version: its `Delta-Table-Version`.
            of_view: whether it is marked as the changes of a view.

        Raises:
            VersionMismatchError: the page is for another version or a later time than requested, or for another
                version than the pages before.
            ViewChangesError: the answer lists the changes of a view, and the request needs versions.
            ProtocolError: an action has no place in the page.
        """
        self._duplicates.begin_page()
        page: _Page[T] = _Page(version, of_view)
        make: Callable[[FileBlock], list[T]] | None = None
        others = 0
        for action in self._checked(actions, page):
            if isinstance(action, FileBlock):
                if make is None:
                    raise ProtocolError(f"{self._subject}: the answer has a file before its metadata line")
                new = self._new_files(action)
                page.items += make(new)
                others += len(action) - len(new)
            else:
                others += 1
            if others > MAX_OTHERS:
                raise ProtocolError(
                    f"{self._subject}: the answer has no end: {MAX_OTHERS:,} of its lines name no new file"
                )
            if isinstance(action, EndStreamAction):
                page.end = action
            elif isinstance(action, Protocol):
                self._add("protocol", action, page.protocols, page)
            elif isinstance(action, Metadata):
                self._add("metadata", action, page.metadata, page)
                make = make or self._convert(page.protocols[0], page.metadata[0])
                if make is None:
                    return self._first(page, complete=False)
        answer = self._first(page) if self._answer is None else self._joined(self._answer, page)
        if self._changes:
            self._check_versions((answer.protocol, *answer.protocols, answer.metadata, *answer.historical))
        if self._answer is not None:
            answer.items.extend(page.items)
        self._duplicates.commit_page()
        self._answer = answer
        return answer

    def _checked(self, actions: Iterator[Decoded], page: _Page[T]) -> Iterator[Decoded]:
        """Return the actions, with a check that they are of the requested version or time."""
        if isinstance(self._request, QueryRequest):
            return check_time_travel(actions, request=self._request, answered=page.version, subject=self._subject)
        if page.of_view:
            return check_view_changes(actions, request=self._request, answered=page.version, subject=self._subject)
        return actions

    def _new_files(self, files: FileBlock) -> FileBlock:
        """Return the files of the requested versions that were not listed before."""
        if not self._changes and files.kind is not AddFile:
            raise ProtocolError(f"{self._subject}: the answer has a {_NAMES[files.kind]} in a snapshot")
        last: int | None = getattr(self._request, "ending_version", None)
        if last is not None:
            wanted = [n for n, version in enumerate(files.versions) if version is None or version <= last]
            files = files.take(wanted)
        return self._duplicates.new_files(files)

    def _add(self, part: str, line: H, lines: list[H], page: _Page[T]) -> None:
        """Add a protocol or metadata line; in changes, one after the metadata is that of a later version."""
        if not page.protocols and part == "metadata":
            raise ProtocolError(f"{self._subject}: the answer has a metadata line before its protocol line")
        if not lines or (self._changes and page.metadata):
            lines.append(line)
        elif line != lines[0]:
            raise ProtocolError(f"{self._subject}: the answer has two different {part} lines")

    def _check_versions(self, heads: Iterable[Protocol | Metadata]) -> None:
        """Raise if a version has two different metadata or protocols; totals of files do not count."""
        known: dict[tuple[str, int], Protocol | Metadata] = {}
        for head in heads:
            part = "metadata" if isinstance(head, Metadata) else "protocol"
            compared = replace(head, size=None, num_files=None) if isinstance(head, Metadata) else head
            if head.version is not None and known.setdefault((part, head.version), compared) != compared:
                raise ProtocolError(
                    f"{self._subject}: the answer has two different {part} lines for version {head.version}"
                )

    def _first(self, page: _Page[T], *, complete: bool = True) -> Answer[T, AnyRequest]:
        """Return the answer of one page."""
        if not page.metadata and page.end is None:
            raise IncompleteResponseError(f"{self._subject}: the answer ends before its metadata line")
        if not page.metadata:
            missing = "metadata" if page.protocols else "protocol"
            raise ProtocolError(f"{self._subject}: the answer has no {missing} line")
        return Answer(
            page.version,
            page.protocols[0],
            page.metadata[0],
            page.items,
            page.end,
            self._request,
            tuple(page.metadata[1:]),
            tuple(page.protocols[1:]),
            page.of_view,
            complete=complete,
        )

    def _joined(self, before: Answer[T, AnyRequest], page: _Page[T]) -> Answer[T, AnyRequest]:
        """Return the answer with the head lines of another page; a page without files may have none."""
        if None not in (before.version, page.version) and page.version != before.version:
            raise VersionMismatchError(
                f"{self._subject}: the table moved from version {before.version} to {page.version} "
                "between two pages of the answer; run the query again, or pin its version",
                expected=before.version,
                actual=page.version,
            )
        if page.of_view != before.of_view:
            raise ProtocolError(
                f"{self._subject}: only some pages of the answer are marked as the changes of a view"
            )
        for part, known, lines in (
            ("protocol", before.protocol, page.protocols),
            ("metadata", before.metadata, page.metadata),
        ):
            if lines and lines[0] != known:
                raise ProtocolError(f"{self._subject}: the table's {part} changed between two pages of the answer")
        ends = [end for end in (before.end, page.end) if end is not None]
        expiries = [end.min_url_expiration_timestamp for end in ends if end.min_url_expiration_timestamp]
        return structs.replace(
            before,
            end=EndStreamAction(
                refresh_token=before.end.refresh_token if before.end else None,
                next_page_token=page.end.next_page_token if page.end else None,
                min_url_expiration_timestamp=min(expiries, default=None),
            ),
            historical=_added(before.historical, page.metadata[1:]),
            protocols=_added(before.protocols, page.protocols[1:]),
        )


class _Page(Struct, Generic[T]):
    """What an attempt to read a page has found so far.

    Attributes:
        protocols, metadata: the lines of the first version, and of later versions that changed them.
    """

    version: int | None
    of_view: bool
    protocols: list[Protocol] = []
    metadata: list[Metadata] = []
    items: list[T] = []
    end: EndStreamAction | None = None


def _added(known: tuple[T, ...], more: Iterable[T]) -> tuple[T, ...]:
    return (*known, *(item for item in more if item not in known))


_NAMES = {CdcFile: "change data file", RemoveFile: "removed file"}


def read_metadata(
    actions: Iterator[Decoded], *, request: QueryRequest, version: int | None, subject: str
) -> TableInfo:
    """Read an answer to /metadata to its end; raises as `AnswerReader.read_page`, and if the answer has a file."""
    answer: Answer[None, QueryRequest] = AnswerReader(request, subject, _no_files).read_page(
        actions, version=version
    )
    return TableInfo(version, answer.protocol, answer.metadata)


def _no_files(protocol: Protocol, metadata: Metadata) -> Callable[[FileBlock], list[None]]:
    def refuse(files: FileBlock) -> list[None]:
        raise ProtocolError(f"the answer to the request for metadata has the file {files.ids[0]}")

    return refuse
