"""The listings of shares, schemas and tables, page by page.

Serves "List Shares", "Get Share", "List Schemas in a Share", "List Tables in a Schema" and "List all
Tables in a Share".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delta_sharing_client.server.answers import integer, text
from delta_sharing_client.server.sign import Signer


def list_page(
    items: Sequence[dict[str, Any]], params: Mapping[str, str], *, what: str, page_size: int, signer: Signer
) -> dict[str, Any]:
    """Return one page of a listing.

    Args:
        items: everything there is, in a fixed order.
        params: the query string, with `maxResults` and `pageToken`.
        what: what is listed; a page token is bound to it.
        page_size: the most items of a page.
        signer: the server's signer.

    Raises:
        Problem: 400, a parameter is malformed, or the token is for another listing.
    """
    limit = integer(params.get("maxResults"), "maxResults")
    token = text(params.get("pageToken"), "pageToken")
    first = 0
    if token is not None:
        first = signer.open_token(f"list {what.lower()}", token, "pageToken")["first"]
    size = page_size if limit is None else min(limit, page_size)
    page: dict[str, Any] = {"items": list(items[first : first + size])}
    if first + size < len(items):
        page["nextPageToken"] = signer.make_token(f"list {what.lower()}", {"first": first + size})
    return page
