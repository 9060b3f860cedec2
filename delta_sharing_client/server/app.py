"""The ASGI application: routes, authorisation, and answers as HTTP."""

from __future__ import annotations

import hmac
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.secrets import Secret
from delta_sharing_client.server.answers import Answer, TableRequest, encode
from delta_sharing_client.server.async_queries import SubmittedQueries
from delta_sharing_client.server.capabilities import HEADER, Capabilities
from delta_sharing_client.server.catalog import Catalog
from delta_sharing_client.server.changes import feed_query, query_changes, range_query
from delta_sharing_client.server.files import FileEndpoint
from delta_sharing_client.server.listings import list_page
from delta_sharing_client.server.options import ServerOptions
from delta_sharing_client.server.parameters import (
    ChangesParameters,
    ListingParameters,
    PointInTime,
    QueryBody,
    ResultParameters,
)
from delta_sharing_client.server.problems import Problem, bad_request, from_log_error, internal, unauthenticated
from delta_sharing_client.server.recording import BODY_KEY
from delta_sharing_client.server.reference import StubQueries, check_old_reader, forgetful, unauthorized
from delta_sharing_client.server.sign import Signer
from delta_sharing_client.server.snapshots import query_snapshot, table_metadata, table_version

PREFIX: Final = "/delta-sharing"

_JSON: Final = "application/json; charset=utf-8"
_LINES: Final = "application/x-ndjson; charset=utf-8"
_LOGGER: Final = logging.getLogger(__name__)
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
    stub: StubQueries = field(default_factory=StubQueries)

    def application(self) -> Starlette:
        """Return the ASGI application."""
        share = f"{PREFIX}/shares/{{share}}"
        listings = [
            Route(f"{PREFIX}/shares", self._endpoint(self._shares), methods=["GET"]),
            Route(share, self._endpoint(self._share), methods=["GET"]),
            Route(f"{share}/schemas", self._endpoint(self._schemas), methods=["GET"]),
            Route(f"{share}/schemas/{{schema}}/tables", self._endpoint(self._tables), methods=["GET"]),
        ]
        if self.options.all_tables:
            listings.append(Route(f"{share}/all-tables", self._endpoint(self._tables), methods=["GET"]))
        tables = [
            Route(f"{_TABLE}/version", self._endpoint(self._version), methods=["GET"]),
            Route(_TABLE, self._endpoint(self._version), methods=["HEAD"]),
            Route(f"{_TABLE}/metadata", self._endpoint(self._metadata), methods=["GET"]),
            Route(f"{_TABLE}/query", self._endpoint(self._query), methods=["POST"]),
            Route(f"{_TABLE}/queries/{{query}}", self._endpoint(self._query_result), methods=["POST"]),
            Route(f"{_TABLE}/changes", self._endpoint(self._changes), methods=["GET"]),
        ]
        files = FileEndpoint(catalog=self.catalog, signer=self.signer)
        data = Route("/files/{key}", files.answer, methods=["GET"])
        return Starlette(
            # Data files first: most requests are for them.
            routes=[data, *tables, *listings],
            exception_handlers={HTTPException: _http_error},
        )

    def _endpoint(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Wrap an endpoint: check the token, and convert errors to responses."""

        async def endpoint(request: Request) -> Response:
            try:
                self._authorise(request)
                return await answer(request)
            except Problem as problem:
                if problem.status == 401 and self.options.imitate == "reference":
                    return unauthorized()
                return _problem_response(problem)
            except DeltaLogError as error:
                _LOGGER.info("%s: %s", request.url.path, type(error).__name__)
                params = request.path_params
                name = f"{params.get('share')}.{params.get('schema')}.{params.get('table')}"
                return _problem_response(from_log_error(error, name))
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception:
                _LOGGER.exception("%s %s failed", request.method, request.url.path)
                return _problem_response(internal())

        return endpoint

    def _authorise(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise unauthenticated("The request has no bearer token.")
        if not hmac.compare_digest(given.strip().encode("latin-1"), self.token.reveal().encode()):
            raise unauthenticated("The bearer token is not valid.")
        if time.time() >= self.token_expires:
            raise unauthenticated("The bearer token has expired.")

    async def _shares(self, request: Request) -> Response:
        await run_in_threadpool(self.catalog.refresh)
        return self._listing(request, self.catalog.shares())

    async def _share(self, request: Request) -> Response:
        await run_in_threadpool(self.catalog.refresh)
        return JSONResponse({"share": self.catalog.share(request.path_params["share"])}, media_type=_JSON)

    async def _schemas(self, request: Request) -> Response:
        await run_in_threadpool(self.catalog.refresh)
        return self._listing(request, self.catalog.schemas(request.path_params["share"]))

    async def _tables(self, request: Request) -> Response:
        await run_in_threadpool(self.catalog.refresh)
        params = request.path_params
        return self._listing(request, self.catalog.list_tables(params["share"], params.get("schema")))

    def _listing(self, request: Request, items: list[dict[str, Any]]) -> Response:
        page = list_page(
            items,
            ListingParameters.parse(request.query_params),
            what=request.url.path,
            page_size=self.options.page_size,
            signer=self.signer,
        )
        return JSONResponse(page, media_type=_JSON)

    async def _version(self, request: Request) -> Response:
        asked = await self._table_request(request)
        point = PointInTime.parse(request.query_params)
        version = await run_in_threadpool(table_version, asked, point.starting_timestamp)
        return Response(headers={"delta-table-version": str(version)})

    async def _metadata(self, request: Request) -> Response:
        asked = await self._table_request(request)
        point = PointInTime.parse(request.query_params)
        return await _stream(await run_in_threadpool(table_metadata, asked, point), asked)

    async def _query(self, request: Request) -> Response:
        asked = await self._table_request(request)
        raw = await _json_body(request)
        request.scope[BODY_KEY] = raw
        body = QueryBody.parse(raw)
        if asked.capabilities.asynchronous and self.options.imitate == "reference":
            return _status(self.stub.submit(asked), forgetful(asked))
        key = raw.get("idempotencyKey", raw.get("idempotency_key"))
        if asked.capabilities.asynchronous and key and body.page_token is None:
            if not isinstance(key, str):
                raise bad_request("idempotencyKey must be a string.")
            query = self.queries.submit(asked, raw, key)
            if query.pending:
                return _status(query.status("pending"), asked)
        return await _answer_query(asked, body)

    async def _query_result(self, request: Request) -> Response:
        asked = await self._table_request(request)
        paging = await _json_body(request)
        request.scope[BODY_KEY] = paging
        if self.options.imitate == "reference":
            pending, asked = self.stub.poll(asked, request.path_params["query"]), forgetful(asked)
            if pending is not None:
                return _status(pending, asked)
            await run_in_threadpool(check_old_reader, asked)
            return await _answer_query(asked, QueryBody.parse({}))
        query = self.queries.find(asked, request.path_params["query"])
        if query.pending:
            return _status(query.status("pending"), asked)
        page = query.page(ResultParameters.parse(paging))
        try:
            return await _answer_query(asked, QueryBody.parse(page))
        except (Problem, DeltaLogError) as error:
            problem = error if isinstance(error, Problem) else from_log_error(error, asked.table.full_name)
            return _status(query.status("failed", problem.message), asked)

    async def _changes(self, request: Request) -> Response:
        asked = await self._table_request(request)
        query = await run_in_threadpool(feed_query, asked, ChangesParameters.parse(request.query_params))
        return await _stream(await run_in_threadpool(query_changes, asked, query), asked)

    async def _table_request(self, request: Request) -> TableRequest:
        names = [request.path_params[part] for part in ("share", "schema", "table")]
        host = request.headers.get("host", "")
        # URLs of files use the host of the request, so that they work through proxies and tunnels.
        if not _HOST.fullmatch(host):
            raise bad_request("The Host header is malformed.")
        table = self.catalog.find(*names)
        if table is None:
            await run_in_threadpool(self.catalog.refresh)
            table = self.catalog.table(*names)
        return TableRequest(
            table=table,
            capabilities=Capabilities.parse(request.headers.get(HEADER), self.options),
            options=self.options,
            signer=self.signer,
            base_url=f"{request.url.scheme}://{host}",
        )


async def _answer_query(asked: TableRequest, body: QueryBody) -> Response:
    if body.starting_version is not None:
        return await _stream(await run_in_threadpool(query_changes, asked, range_query(asked, body)), asked)
    return await _stream(await run_in_threadpool(query_snapshot, asked, body), asked)


def _status(line: dict[str, Any], asked: TableRequest) -> Response:
    headers = {"delta-table-version": "0", HEADER: asked.capabilities.echo(asked.capabilities.formats[0])}
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


async def _stream(answer: Answer, request: TableRequest) -> Response:
    headers = {"delta-table-version": str(answer.version)}
    if request.options.prefer_format != "parquet":
        headers[HEADER] = request.capabilities.echo(answer.format)
    chunks = encode(answer, request)
    # A failure before the first chunk is reported by the status.
    first = await run_in_threadpool(next, chunks, b"")
    return StreamingResponse(chain([first], chunks), headers=headers, media_type=_LINES)


def _problem_response(problem: Problem) -> Response:
    headers = {"www-authenticate": "Bearer"} if problem.status == 401 else None
    body = {"errorCode": problem.code, "message": problem.message}
    return JSONResponse(body, status_code=problem.status, headers=headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer a request without a route."""
    if not isinstance(error, HTTPException):
        return _problem_response(internal())
    code = {404: "ENDPOINT_NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "BAD_REQUEST")
    message = {404: "There is no such endpoint.", 405: "This endpoint does not take that method."}
    body = {"errorCode": code, "message": message.get(error.status_code, str(error.detail))}
    return JSONResponse(body, status_code=error.status_code, headers=error.headers)
