"""The options of the embedded server."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of the embedded server: its address, its limits, and older servers that it imitates.

    Attributes:
        host: the address to listen on; 127.0.0.1 by default, because the server uses plain http.
        port: the port; 0 (the default) selects a free one.
        token: the bearer token that clients must send; a random one by default.
        token_lifetime: lifetime of the token from the start on; 1 day by default. It is the profile's
            `expirationTime`.
        url_lifetime: lifetime of the signed URL of a file; 1 hour by default.
        page_size: maximum items of a page of shares, schemas or tables; 500 by default.
        max_files_per_page: maximum files of one answer to a client that can page; None (the default) for the
            client's `maxFiles`.
        send_end_stream_action: send an EndStreamAction to clients that request it; True by default. False
            imitates an older server, without pages of queries and refresh tokens.
        all_tables: serve `/all-tables`; True by default. False imitates an older server, which answers 404.
        history: serve versions, timestamps and changes; True by default. False answers them with 400.
        prefer_format: `auto` (the default) answers in parquet format if the client accepts it and the table
            allows it; `delta` answers in delta format if the client accepts it; `parquet` imitates an older
            server, which has no other format and ignores the capabilities header.
        file_ids_by_format: give a file another id in each response format, as the reference server does: the
            MD5 of its path in parquet format, the SHA-256 in delta format. The URLs end with the path, as those of
            object stores. False (the default) gives it one id, and URLs without the path.
        limit_counts_deleted_rows: count the rows that deletion vectors delete for `limitHint`, as some servers do,
            so that the listed files may have too few rows; False by default.
        query_time: duration of the preparation of an asynchronous query, for clients that accept it; None (the
            default) answers every query at once.
        removed_files: report the files that versions removed in queries with `startingVersion`, and the rows that
            they removed in the change data feed; True by default. False imitates a server that reports added files
            only, against the protocol.
        totals: the size and the number of files in metadata: `exact` (the default); `none` leaves them out, as
            servers do that do not know them; `stale` imitates a server that reports those of the version before.
        recorded_requests: maximum requests in `SharingServer.requests`, the newest ones; 10,000 by default.
        imitate: `reference` answers as the reference server does, see `like_reference`; None (the default)
            follows the protocol.
        default_share: the share of tables less than three levels below the directory; `local` by default.
        default_schema: the schema of tables less than two levels below the directory; `default` by default.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    token_lifetime: timedelta = timedelta(days=1)
    url_lifetime: timedelta = timedelta(hours=1)
    page_size: int = 500
    max_files_per_page: int | None = None
    send_end_stream_action: bool = True
    all_tables: bool = True
    history: bool = True
    prefer_format: Literal["auto", "delta", "parquet"] = "auto"
    file_ids_by_format: bool = False
    limit_counts_deleted_rows: bool = False
    query_time: timedelta | None = None
    removed_files: bool = True
    totals: Literal["exact", "none", "stale"] = "exact"
    recorded_requests: int = 10_000
    imitate: Literal["reference"] | None = None
    default_share: str = "local"
    default_schema: str = "default"

    @classmethod
    def like_reference(cls, **changes: Any) -> ServerOptions:
        """Return options for a server that behaves as the reference sharing server 1.4.1 was seen to behave.

        A file's id is the MD5 of its path in parquet format and the SHA-256 in delta format, and file lines have
        no `deletionVectorFileId`. `jsonPredicateHints` are accepted for every table. Tables that need reader
        version 2 or 3 are served in delta format only. For them `predicateHints`, `maxFiles`, page tokens,
        `startingVersion` and the change data feed are refused with 400 `UNSUPPORTED_OPERATION`. A query with
        `asyncquery=true` is answered asynchronously without `asyncquery` in the capabilities of the answer, which
        is always the latest version in parquet format. The answer to a wrong token is not JSON.

        Args:
            **changes: other options, such as `history=False`.
        """
        return replace(cls(imitate="reference", file_ids_by_format=True), **changes)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: an option is out of range.
        """
        if self.token is not None and (not self.token or not self.token.isascii() or " " in self.token):
            raise ValueError("token must be ASCII text without spaces")
        for name, lifetime in (("url_lifetime", self.url_lifetime), ("token_lifetime", self.token_lifetime)):
            if lifetime <= timedelta(0):
                raise ValueError(f"{name} is {lifetime.total_seconds():g} s; it must be positive")
        if self.query_time is not None and self.query_time <= timedelta(0):
            raise ValueError("query_time must be positive, or None")
        if self.page_size < 1:
            raise ValueError("page_size must be at least 1")
        if self.max_files_per_page is not None and self.max_files_per_page < 1:
            raise ValueError("max_files_per_page must be at least 1")
        if self.prefer_format not in ("auto", "delta", "parquet"):
            raise ValueError("prefer_format must be 'auto', 'delta' or 'parquet'")
        if self.totals not in ("exact", "none", "stale"):
            raise ValueError("totals must be 'exact', 'none' or 'stale'")
        if self.recorded_requests < 0:
            raise ValueError("recorded_requests must not be negative")
        if self.imitate not in (None, "reference"):
            raise ValueError("imitate must be 'reference' or None")
        if not 0 <= self.port <= 65535:
            raise ValueError("port must be between 0 and 65535")
