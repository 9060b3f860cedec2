"""Pages of the listings of shares, schemas and tables.

Serves "List Shares", "Get Share", "List Schemas in a Share", "List Tables in a Schema" and "List all
Tables in a Share".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delta_sharing_client.server.parameters import ListingParameters
from delta_sharing_client.server.sign import Signer


def list_page(
    items: Sequence[dict[str, Any]], asked: ListingParameters, *, what: str, page_size: int, signer: Signer
) -> dict[str, Any]:
    """Return one page of a listing.

    Args:
        items: all items, in a fixed order.
        asked: the parameters of the request.
        what: the path of the listing; a page token is bound to it.
        page_size: maximum items of a page.
        signer: the server's signer.

    Raises:
        Problem: 400, the token is for another listing.
    """
    first = 0
    if asked.page_token is not None:
        first = signer.open_token(f"list {what.lower()}", asked.page_token, "pageToken")["first"]
    size = page_size if asked.max_results is None else min(asked.max_results, page_size)
    page: dict[str, Any] = {"items": list(items[first : first + size])}
    if first + size < len(items):
        page["nextPageToken"] = signer.make_token(f"list {what.lower()}", {"first": first + size})
    return page
