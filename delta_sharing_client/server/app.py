"""The ASGI application: routes, authorisation, and answers as HTTP."""

from __future__ import annotations

import hmac
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.messages import module_logger
from delta_sharing_client.secrets import Secret
from delta_sharing_client.server.async_queries import SubmittedQueries
from delta_sharing_client.server.capabilities import HEADER, Capabilities
from delta_sharing_client.server.catalog import Catalog
from delta_sharing_client.server.changes import query_feed, query_range
from delta_sharing_client.server.files import FileEndpoint
from delta_sharing_client.server.options import ServerOptions
from delta_sharing_client.server.parameters import (
    ChangesParameters,
    ListingParameters,
    Paging,
    PointInTime,
    QueryBody,
)
from delta_sharing_client.server.problems import Problem, bad_request, internal, problem_of, unauthenticated
from delta_sharing_client.server.recording import BODY_KEY
from delta_sharing_client.server.sign import Signer
from delta_sharing_client.server.snapshots import query_snapshot, table_metadata, table_version
from delta_sharing_client.server.table_request import TableRequest
from delta_sharing_client.server.table_response import TableResponse, encode

PREFIX: Final = "/delta-sharing"

_JSON: Final = "application/json; charset=utf-8"
_LINES: Final = "application/x-ndjson; charset=utf-8"
logger = module_logger(__name__)
_HOST: Final = re.compile(r"[A-Za-z0-9.\-_:\[\]]+")
_MAX_BODY_BYTES: Final = 16 * 1024 * 1024
_TABLE: Final = f"{PREFIX}/shares/{{share}}/schemas/{{schema}}/tables/{{table}}"


@dataclass(frozen=True, kw_only=True)
class Api:
    """The endpoints of the protocol.

    Attributes:
        catalog: the shared tables.
        options: the server's options.
        token: the bearer token.
        token_expires: its expiration, in seconds since the epoch.
    """

    catalog: Catalog
    options: ServerOptions
    token: Secret
    token_expires: float
    signer: Signer = field(default_factory=Signer)
    queries: SubmittedQueries = field(default_factory=SubmittedQueries)

    def application(self) -> Starlette:
        """Return the ASGI application."""
        share = f"{PREFIX}/shares/{{share}}"
        catalog = self.catalog
        listings: dict[str, Callable[[Mapping[str, str]], list[dict[str, Any]]]] = {
            f"{PREFIX}/shares": lambda _: catalog.shares(),
            f"{share}/schemas": lambda names: catalog.schemas(names["share"]),
            f"{share}/schemas/{{schema}}/tables": lambda names: catalog.list_tables(
                names["share"], names["schema"]
            ),
        }
        if self.options.all_tables:
            listings[f"{share}/all-tables"] = lambda names: catalog.list_tables(names["share"], None)
        files = FileEndpoint(catalog=self.catalog, signer=self.signer)
        return Starlette(
            routes=[
                # Data files first: most requests are for them.
                Route("/files/{key:path}", files.answer, methods=["GET"]),
                Route(f"{_TABLE}/version", self._endpoint(self._version), methods=["GET"]),
                Route(_TABLE, self._endpoint(self._version), methods=["HEAD"]),
                Route(f"{_TABLE}/metadata", self._endpoint(self._metadata), methods=["GET"]),
                Route(f"{_TABLE}/query", self._endpoint(self._query), methods=["POST"]),
                Route(f"{_TABLE}/queries/{{query}}", self._endpoint(self._query_result), methods=["POST"]),
                Route(f"{_TABLE}/changes", self._endpoint(self._changes), methods=["GET"]),
                Route(share, self._endpoint(self._share), methods=["GET"]),
                *(
                    Route(path, self._endpoint(partial(self._listing, find)), methods=["GET"])
                    for path, find in listings.items()
                ),
            ],
            exception_handlers={
                HTTPException: _no_endpoint,
                Problem: self._problem,
                DeltaLogError: self._problem,
                ClientDisconnect: lambda *_: Response(status_code=499),
                Exception: self._problem,
            },
        )

    def _endpoint(self, answer: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that checks the token, reads the body, and runs `answer` in a thread."""

        async def endpoint(request: Request) -> Response:
            self._authorise(request)
            if request.method == "POST":
                request.scope[BODY_KEY] = await _json_body(request)
            return await run_in_threadpool(answer, request)

        return endpoint

    def _problem(self, request: Request, error: Exception) -> Response:
        """Return the response for an error."""
        if isinstance(error, DeltaLogError):
            logger.info("%s: %s", request.url.path, type(error).__name__)
        elif not isinstance(error, Problem):
            logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
            error = internal()
        problem = problem_of(error, ".".join(str(name) for name in list(request.path_params.values())[:3]))
        if problem.status == 401 and self.options.imitate == "reference":
            return PlainTextResponse("401 Unauthorized", status_code=401)
        headers = {"www-authenticate": "Bearer"} if problem.status == 401 else None
        return _error_response(problem.status, problem.code, problem.message, headers)

    def _authorise(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise unauthenticated("The request has no bearer token.")
        if not hmac.compare_digest(given.strip().encode("latin-1"), self.token.reveal().encode()):
            raise unauthenticated("The bearer token is not valid.")
        if time.time() >= self.token_expires:
            raise unauthenticated("The bearer token has expired.")

    def _share(self, request: Request) -> Response:
        self.catalog.refresh()
        return JSONResponse({"share": self.catalog.share(request.path_params["share"])}, media_type=_JSON)

    def _listing(self, find: Callable[[Mapping[str, str]], list[dict[str, Any]]], request: Request) -> Response:
        """Return one page of a listing; its page tokens are bound to the path."""
        self.catalog.refresh()
        items = find(request.path_params)
        parameters = ListingParameters.parse(request.query_params)
        purpose = f"list {request.url.path.lower()}"
        first = 0
        if parameters.page_token is not None:
            first = self.signer.open_token(purpose, parameters.page_token, "pageToken")["first"]
        own = self.options.page_size
        after = first + (own if parameters.max_results is None else min(parameters.max_results, own))
        page: dict[str, Any] = {"items": items[first:after]}
        if after < len(items):
            page["nextPageToken"] = self.signer.make_token(purpose, {"first": after})
        return JSONResponse(page, media_type=_JSON)

    def _version(self, request: Request) -> Response:
        point = PointInTime.parse(request.query_params)
        version = table_version(self._table_request(request), point.starting_timestamp)
        return Response(headers={"delta-table-version": str(version)})

    def _metadata(self, request: Request) -> Response:
        table_request = self._table_request(request)
        return _stream(table_metadata(table_request, PointInTime.parse(request.query_params)), table_request)

    def _query(self, request: Request) -> Response:
        table_request = self._table_request(request)
        raw = request.scope[BODY_KEY]
        body = QueryBody.parse(raw)
        if table_request.capabilities.asynchronous and self.options.imitate == "reference":
            query = self.queries.submit(table_request, {}, secrets.token_hex(16))
            return _status(query.status("pending"), _without_capabilities(table_request))
        key = raw.get("idempotencyKey", raw.get("idempotency_key"))
        if table_request.capabilities.asynchronous and key and body.page_token is None:
            if not isinstance(key, str):
                raise bad_request("idempotencyKey must be a string.")
            query = self.queries.submit(table_request, raw, key)
            if query.is_pending():
                return _status(query.status("pending"), table_request)
        return _answer_query(table_request, body)

    def _query_result(self, request: Request) -> Response:
        table_request = self._table_request(request)
        paging = Paging.parse(request.scope[BODY_KEY])
        query = self.queries.find(table_request, request.path_params["query"])
        is_reference = self.options.imitate == "reference"
        if is_reference:
            table_request, paging = _without_capabilities(table_request), Paging()
        if query.is_pending():
            return _status(query.status("pending"), table_request)
        try:
            table_request.check_old_reader()
            return _answer_query(table_request, QueryBody.parse(query.page(paging)))
        except (Problem, DeltaLogError) as error:
            if is_reference:
                raise
            message = problem_of(error, table_request.table.full_name).message
            return _status(query.status("failed", message), table_request)

    def _changes(self, request: Request) -> Response:
        table_request = self._table_request(request)
        return _stream(query_feed(table_request, ChangesParameters.parse(request.query_params)), table_request)

    def _table_request(self, request: Request) -> TableRequest:
        names = [request.path_params[part] for part in ("share", "schema", "table")]
        host = request.headers.get("host", "")
        # URLs of files use the host of the request, so that they work through proxies and tunnels.
        if not _HOST.fullmatch(host):
            raise bad_request("The Host header is malformed.")
        if self.catalog.find(*names) is None:
            self.catalog.refresh()
        return TableRequest(
            table=self.catalog.table(*names),
            capabilities=Capabilities.parse(request.headers.get(HEADER), self.options),
            options=self.options,
            signer=self.signer,
            base_url=f"{request.url.scheme}://{host}",
        )


def _without_capabilities(request: TableRequest) -> TableRequest:
    """Return a request without capabilities: the reference server loses them in asynchronous queries."""
    return replace(request, capabilities=Capabilities())


def _answer_query(table_request: TableRequest, body: QueryBody) -> Response:
    query = query_snapshot if body.starting_version is None else query_range
    return _stream(query(table_request, body), table_request)


def _status(line: dict[str, Any], table_request: TableRequest) -> Response:
    headers = {
        "delta-table-version": "0",
        HEADER: table_request.capabilities.echo(table_request.capabilities.formats[0]),
    }
    return Response(json.dumps(line) + "\n", headers=headers, media_type=_LINES)


async def _json_body(request: Request) -> dict[str, Any]:
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > _MAX_BODY_BYTES:
            raise bad_request("The body of the request is too large.")
    try:
        body = json.loads(bytes(raw) or b"{}")
    except (ValueError, RecursionError):
        raise Problem(400, "MALFORMED_REQUEST", "The body of the request is not JSON.") from None
    if not isinstance(body, dict):
        raise Problem(400, "MALFORMED_REQUEST", "The body of the request is not a JSON object.")
    return body


def _stream(answer: TableResponse, request: TableRequest) -> Response:
    headers = {"delta-table-version": str(answer.version)}
    if request.options.prefer_format != "parquet":
        headers[HEADER] = request.capabilities.echo(answer.format)
    chunks = encode(answer, request)
    # A failure before the first chunk is reported by the status.
    first = next(chunks, b"")
    return StreamingResponse(chain([first], chunks), headers=headers, media_type=_LINES)


def _error_response(status: int, code: str, message: str, headers: Mapping[str, str] | None) -> Response:
    return JSONResponse({"errorCode": code, "message": message}, status_code=status, headers=headers)


def _no_endpoint(_: Request, error: Any) -> Response:  # Starlette passes an HTTPException
    code = {404: "ENDPOINT_NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "BAD_REQUEST")
    messages = {404: "There is no such endpoint.", 405: "This endpoint does not support that method."}
    message = messages.get(error.status_code, str(error.detail))
    return _error_response(error.status_code, code, message, error.headers)
