"""Cache of the listings that a streaming query works with; they are released once they are read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from msgspec import structs

from delta_sharing_client.errors import BadRequestError, ChangesGoneError, ResponseFormatError
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.rest.status_errors import is_unsupported
from delta_sharing_client.secrets import unsigned_url
from delta_sharing_client.spark.stream_files import Listing, list_snapshot, list_versions, unknown_files
from delta_sharing_client.spark.stream_offsets import BEFORE, Offset
from delta_sharing_client.spark.stream_table import StreamTable
from delta_sharing_client.wire.requests import VersionsRequest

logger = module_logger(__name__)


class ListingCache:
    """Returns the listing that contains an offset, from memory or from the server."""

    def __init__(self, rest: RestClient, table: StreamTable) -> None:
        self._rest = rest
        self._table = table
        self._listings: list[Listing] = []
        self._repeated = set[int]()

    def covering(self, position: Offset, last: int, end: Offset | None = None) -> Listing:
        """Return the listing that contains an offset; it may contain later versions, up to `last`.

        A version in which a file was counted, by the offset or by the `end` of the batch, is listed alone.

        Raises:
            ChangesGoneError: the provider has removed the next versions.
            StreamError: the server no longer lists the files that were counted.
        """
        counted = next((offset for offset in (position, end) if offset and offset.index != BEFORE), None)
        listing = self._find(position, last, counted)
        listing.check(position, self._table.options.what)
        return listing

    def _find(self, position: Offset, last: int, counted: Offset | None) -> Listing:
        for listing in self._listings:
            covers = listing.snapshot == position.is_initial_snapshot
            covers &= listing.first <= position.version <= listing.last
            if covers and (counted is None or listing.counts(counted)):
                if listing.is_fresh(self._rest.clock_offset.total_seconds()):
                    return listing
                self._listings.remove(listing)
                break
        listing = self._list(position, last) if counted is None else self._list_alone(position, counted)
        if listing.stopped is None and (counted is None or listing.counts(counted)):
            self._listings.append(listing)
        return listing

    def release(self, position: Offset) -> None:
        """Release the listings before an offset."""
        here = (position.version, not position.is_initial_snapshot)
        self._listings = [item for item in self._listings if (item.last, not item.snapshot) >= here]

    def settle(self, position: Offset, latest: Callable[[], int], *, is_end: bool = False) -> Offset:
        """Return an offset that the files after it can be determined from.

        If it is unknown which files of a version were read, and the version may be repeated, a batch begins before
        its first file, or ends after its last one. Nothing is lost: no batch has a part of such a version.
        `latest` returns the latest version.

        Raises:
            StreamError: the response format that the offset needs is unknown, and the version may not be repeated.
        """
        version, options = position.version, self._table.options
        if position.index == BEFORE:
            return position
        known = self._with_format(position, latest)
        if not options.repeats(version):
            if known is None:
                raise unknown_files(
                    position,
                    f"{options.what}: the checkpoint is of an older release, its last batch ended within version "
                    f"{version}, after {position.index + 1} of its files, and it lacks the response format that "
                    "they were counted in; the table has gained a feature since, so both formats are possible",
                )
            return known
        if known is not None and self._find(known, version, known).counts(known):
            return known
        if version not in self._repeated:
            self._repeated.add(version)
            logger.warning(
                "%s: allowRepeatedVersion accepts version %d: it is unknown which of its files were read, so that "
                "all of them are read again, %d of them a second time",
                options.what,
                version,
                position.index + 1,
            )
        return position.after(version) if is_end else position.again(position.repeats + 1)

    def _with_format(self, position: Offset, latest: Callable[[], int]) -> Offset | None:
        """Add to an offset of an early release the response format that its index depends on.

        Those releases listed a version alone or with later ones, in the format that the server chose. An offset
        with a format is returned unchanged. None if the two listings have different formats, because the table
        gained a feature, and the order of the files differs between them.
        """
        version, options = position.version, self._table.options
        if position.response_format is not None:
            return position
        alone = ahead = self._list(position, version, by_id=True)
        if not position.is_initial_snapshot:
            last = min(latest(), version + options.max_versions - 1)
            ahead = self._list(position, last, by_id=True)
        if ahead.response_format != alone.response_format and not _same_order(ahead, alone, version):
            return None
        return structs.replace(position, response_format=alone.response_format)

    def _list_alone(self, position: Offset, counted: Offset) -> Listing:
        """List the version of an offset alone, in the order and the response format that its index was counted in.

        If that format is no longer available, or has other ids, another one is used. The listing returned last
        need not count the offset.
        """
        version, by_id, wanted = position.version, counted.paths is None, counted.response_format
        if wanted is not None:
            with suppress(BadRequestError, ResponseFormatError):
                listing = self._request(position, version, (wanted,), by_id=by_id)
                if listing.response_format == wanted and listing.counts(counted):
                    return listing
        listing = self._list(position, version, by_id=by_id)  # raises if the version is gone
        if listing.lost:
            formats = listing.request.formats if wanted is None else (wanted,)
            return replace(listing, request=structs.replace(listing.request, formats=formats))
        return listing.in_order_of(counted) if by_id and not listing.counts(counted) else listing

    def _list(self, position: Offset, last: int, *, by_id: bool = False) -> Listing:
        """List the offset's version and later ones, in the format that the server chooses."""
        try:
            return self._request(position, last, self._table.options.query.formats, by_id=by_id)
        except BadRequestError as error:
            if position == position.start or is_unsupported(error):
                raise
            if not self._table.options.fail_on_data_loss and not position.is_initial_snapshot:
                return self._lost(position, error)
            raise ChangesGoneError(
                f"{error}. If the provider has removed these versions, this query cannot read them: start it with "
                "a new checkpoint location, and without startingVersion, to read the whole table first",
                version=position.version,
            ) from None

    def _lost(self, position: Offset, error: BadRequestError) -> Listing:
        """Return an empty listing of the versions that the provider has removed, found by binary search."""
        first, options = position.version, self._table.options
        formats, latest = options.query.formats, self._rest.table_version(options.table)
        low, high = first, latest + 1
        while high - low > 1:
            middle = (low + high) // 2
            try:
                self._request(position.after(middle - 1), middle, formats)
            except BadRequestError:
                low = middle
            else:
                high = middle
        if high > latest:
            raise error  # no version can be read: it need not be lost
        logger.warning("%s; failOnDataLoss is false: skipping versions %d to %d", error, first, low)
        request = VersionsRequest(formats=formats, starting_version=first, ending_version=low)
        return Listing(False, first, low, (), request, lost=True)

    def _request(
        self, position: Offset, last: int, formats: tuple[ResponseFormat, ...], *, by_id: bool = False
    ) -> Listing:
        version, table = position.version, self._table
        if position.is_initial_snapshot:
            return list_snapshot(self._rest, table, version, formats, by_id=by_id)
        until = min(last, version + table.options.max_versions - 1)
        return list_versions(self._rest, table, version, until, formats, by_id=by_id)


def _same_order(one: Listing, other: Listing, version: int) -> bool:
    """Whether two listings have the files of a version in one order, compared by their unsigned URLs."""
    first, second = (
        [unsigned_url(file.task.url) for file in listing.files if file.version == version]
        for listing in (one, other)
    )
    return first == second and len(set(first)) == len(first)
