"""The listings that a streaming query works with: asked for when needed, let go of once they are behind."""

from __future__ import annotations

from delta_sharing_client.errors import BadRequestError, ChangesGoneError
from delta_sharing_client.rest import RestClient
from delta_sharing_client.spark.stream_offsets import Offset
from delta_sharing_client.spark.stream_plan import Listing, Reading, list_snapshot, list_versions


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

    def covering(self, position: Offset, last: int) -> Listing:
        """Return the listing that a position lies in; one request, unless it is there already.

        Args:
            position: the position.
            last: the last version to ask for, if it is asked for now.

        Raises:
            ChangesGoneError: the provider has cleaned up what comes next.
            DeltaSharingError: the server could not be asked, or its answer could not be used.
        """
        version = position.version
        for kept in self._kept:
            if kept.snapshot == position.is_snapshot and kept.first <= version <= kept.last:
                if kept.fresh:
                    return kept
                self._kept.remove(kept)
                last = max(version, min(last, kept.last))
                break
        listing = self._ask(position, last)
        if listing.last >= listing.first:
            self._kept.append(listing)
        return listing

    def forget(self, position: Offset) -> None:
        """Let go of what lies behind a position."""
        here = (position.version, not position.is_snapshot)
        self._kept = [kept for kept in self._kept if (kept.last, not kept.snapshot) >= here]

    def _ask(self, position: Offset, last: int) -> Listing:
        version, reading = position.version, self._reading
        try:
            if position.is_snapshot:
                return list_snapshot(self._rest, reading, version)
            until = min(last, version + reading.options.max_versions - 1)
            return list_versions(self._rest, reading, version, until)
        except BadRequestError as error:
            if position == position.start:
                raise
            raise ChangesGoneError(
                f"{error}. If the provider has cleaned these versions up, they are lost to this query: start it "
                "with a new checkpoint location, and without startingVersion, to read the whole table first",
                version=version,
            ) from None
