"""`RestCatalog` of pyiceberg whose requests are sent by this package's transport.

So they have its credentials and their renewal, time-outs, retries, proxies, certificates, URL rules and errors,
none of which the session of pyiceberg has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests.adapters import BaseAdapter

from delta_sharing_client.errors import InsecureUrlError, ProtocolError
from delta_sharing_client.iceberg.file_io import VendedFileIO
from delta_sharing_client.representation import representation
from delta_sharing_client.rest.calls import Caller
from delta_sharing_client.rest.resources import Resource
from delta_sharing_client.transport.url_rules import is_loopback, same_origin

_ADVICE: Final[Mapping[int, str]] = {
    403: "The token is valid, but not for this; ask the provider for access through Iceberg",
    404: "Check the names with list_schemas() and list_tables() of client.iceberg, and the profile's "
    "icebergEndpoint; the provider may share the table without Iceberg",
}


class SharedCatalog(RestCatalog):
    """The Iceberg catalog of one share, which is its warehouse. Requests the catalog's configuration.

    Args:
        share: the share.
        endpoint: the profile's `icebergEndpoint`.
        caller: sends requests to the endpoint's host.
    """

    def __init__(self, share: str, endpoint: str, caller: Caller) -> None:
        self._caller = caller
        self._adapter = _CallerAdapter(share, caller)
        super().__init__(share, uri=endpoint, warehouse=share)

    @representation
    def __repr__(self) -> str:
        return f"SharedCatalog({self.name!r})"

    def _create_session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        self._config_headers(session)
        for scheme in ("http://", "https://"):
            session.mount(scheme, self._adapter)
        return session

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> VendedFileIO:
        transport = self._caller.transport
        given = {**self.properties, **properties}
        return VendedFileIO(given, transport.options, catalog_is_loopback=is_loopback(transport.endpoint))


class _CallerAdapter(BaseAdapter):
    """Adapter of `requests` that sends requests by a `Caller`, which raises the errors of this package."""

    def __init__(self, share: str, caller: Caller) -> None:
        super().__init__()
        self._share = share
        self._caller = caller

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """Send a request with its retries, and return its answer; one with an error status raises."""
        url = request.url or ""
        endpoint = self._caller.transport.endpoint
        if not same_origin(url, endpoint):
            raise InsecureUrlError(
                f"the configuration of the Iceberg catalog names another host than {endpoint}; credentials are "
                "not sent there",
                url=url,
            )
        parts = urlsplit(url)
        path = tuple(unquote(segment) for segment in parts.path.strip("/").split("/"))
        subject, params = self._subject(path), dict(parse_qsl(parts.query))
        resource = Resource(path, subject, _ADVICE)
        data = self._caller.call(
            request.method or "GET",
            resource,
            lambda response: self._caller.read_whole(response, resource),
            params=params,
            # The others are the transport's.
            headers={name: text for name, text in request.headers.items() if name.lower().startswith("x-")},
            body=json.loads(request.body) if request.body else None,
        )
        token = params.get("pageToken")
        if token is not None and json.loads(data).get("next-page-token") == token:
            raise ProtocolError(f"{subject}: the server gave the same page token twice; its listing never ends")
        answer = requests.Response()
        answer.status_code, answer.encoding, answer.url, answer.request = 200, "utf-8", url, request
        answer._content = data
        return answer

    def _subject(self, path: tuple[str, ...]) -> str:
        """Return the object of a path for messages."""
        names = [self._share]
        for kind in ("namespaces", "tables"):
            if kind in path[:-1]:
                names.append(path[path.index(kind) + 1])
        return f"Iceberg {('share', 'schema', 'table')[len(names) - 1]} {'.'.join(names)}"

    def close(self) -> None:
        """Keep the connections: they belong to the client."""
