"""The listings that a streaming query works with: asked for when needed, let go of once they are behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from delta_sharing_client.errors import BadRequestError, ChangesGoneError, ResponseFormatError, StreamError
from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.secrets import unsigned_url
from delta_sharing_client.spark.stream_offsets import BEFORE, Offset
from delta_sharing_client.spark.stream_plan import Listing, list_snapshot, list_versions
from delta_sharing_client.spark.stream_reading import Reading


class Listings:
    """Gives the listing that a position lies in.

    Args:
        rest: the server.
        reading: what is read.
    """

    def __init__(self, rest: RestClient, reading: Reading) -> None:
        self._rest = rest
        self._reading = reading
        self._kept: list[Listing] = []

    def covering(self, position: Offset, last: int, response_format: ResponseFormat | None = None) -> Listing:
        """Return the listing that a position lies in; one request, unless it is there already.

        A position within a version is looked up in the response format that it depends on.

        Args:
            position: the position.
            last: the last version to ask for, if it is asked for now.
            response_format: the format that the files of the position's version have to be listed in, where the
                position does not say so itself; None for any.

        Raises:
            ChangesGoneError: the provider has cleaned up what comes next.
            StreamError: the server no longer answers in that format, or gives the files other ids.
            DeltaSharingError: the server could not be asked, or its answer could not be used.
        """
        version = position.version
        needed = position.response_format or response_format
        for kept in self._kept:
            covers = kept.snapshot == position.is_snapshot and kept.first <= version <= kept.last
            if covers and needed in (None, kept.response_format):
                if kept.fresh:
                    return kept
                self._kept.remove(kept)
                last = max(version, min(last, kept.last))
                break
        listing = self._ask(position, last) if needed is None else self._ask_in(position, last, needed)
        listing.check(position, self._reading.options.what)
        if listing.last >= listing.first:
            self._kept.append(listing)
        return listing

    def forget(self, position: Offset) -> None:
        """Let go of what lies behind a position."""
        here = (position.version, not position.is_snapshot)
        self._kept = [kept for kept in self._kept if (kept.last, not kept.snapshot) >= here]

    def settle(self, position: Offset, latest: Callable[[], int]) -> Offset:
        """Return an offset of a first release with the response format that its index depends on.

        Those releases asked for a version alone or together with those after it, in any format: they were answered
        in the same one unless the table gained a feature there.

        Args:
            position: the offset; one that tells its format, or needs none, is returned as it is.
            latest: asks for the table's latest version.

        Raises:
            StreamError: either format may have been the one, and they put the files in another order.
            DeltaSharingError: the server could not be asked, or its answer could not be used.
        """
        version, options = position.version, self._reading.options
        if position.index == BEFORE or position.response_format is not None:
            return position
        alone = self._ask(position, version)
        until = version if position.is_snapshot else min(latest(), version + options.max_versions - 1)
        if until > version:
            ahead = self._ask(position, until)
            if ahead.response_format != alone.response_format and not _same_order(ahead, alone, version):
                raise StreamError(
                    f"{options.what}: the checkpoint is of an older release, its last batch ended within version "
                    f"{version}, and it does not say in which response format the files of that version were "
                    "counted; the table has gained a feature since, so that both are possible. Start the query "
                    f"with a new checkpoint location and startingVersion={version}, after removing the rows of "
                    "that version from what it wrote",
                    version=version,
                )
        if alone.last >= alone.first:
            self._kept.append(alone)
        return replace(position, response_format=alone.response_format)

    def _ask_in(self, position: Offset, last: int, response_format: ResponseFormat) -> Listing:
        """Ask in one response format; for the position's version alone where later ones cannot be had in it."""
        version = position.version
        for until in dict.fromkeys((last, version)):
            try:
                listing = self._list(position, until, (response_format,))
            except (BadRequestError, ResponseFormatError):
                continue
            if listing.response_format == response_format:
                return listing
        self._ask(position, version)  # raises if the version is gone
        raise StreamError(
            f"{self._reading.options.what}: a batch ended within version {version}, whose files were counted in "
            f"{response_format} format, and the server does not list them in {response_format} format any more. "
            "Start the query with a new checkpoint location",
            version=version,
        )

    def _ask(self, position: Offset, last: int) -> Listing:
        try:
            return self._list(position, last, self._reading.options.formats)
        except BadRequestError as error:
            if position == position.start:
                raise
            raise ChangesGoneError(
                f"{error}. If the provider has cleaned these versions up, they are lost to this query: start it "
                "with a new checkpoint location, and without startingVersion, to read the whole table first",
                version=position.version,
            ) from None

    def _list(self, position: Offset, last: int, formats: tuple[ResponseFormat, ...]) -> Listing:
        version, reading = position.version, self._reading
        if position.is_snapshot:
            return list_snapshot(self._rest, reading, version, formats)
        until = min(last, version + reading.options.max_versions - 1)
        return list_versions(self._rest, reading, version, until, formats)


def _same_order(one: Listing, other: Listing, version: int) -> bool:
    """Tell whether two listings have the files of a version in one order, whatever their ids.

    URLs tell: where they do so by their query strings alone, nothing is known.
    """
    first, second = (
        [
            unsigned_url(task.url)
            for file, task in zip(found.files, found.tasks, strict=True)
            if file.version == version
        ]
        for found in (one, other)
    )
    return first == second and len(set(first)) == len(first)
