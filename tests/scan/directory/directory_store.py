"""An imitation of S3 that serves a local folder, and a sharing server that hands out credentials for it."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

from faults.server import FaultServer, Reply, Request, file_reply

BUCKET = "canary-free-bucket"
SECRET = "canary-secret-access-key"
SESSION = "canary-session-token"
TABLE = {"name": "t", "share": "s", "schema": "d", "accessModes": ["dir"], "location": f"s3://{BUCKET}/x/t"}
PATH = "/shares/s/schemas/d/tables/t"


def refusal(status: int, code: str) -> Reply:
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'
    return Reply(status=status, body=body.encode(), headers={"Content-Type": "application/xml"})


class DirectoryServer:
    """Shares the folder `path` as `s.d.t`; its `store` is the S3 imitation, with the table at `x/t`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.api = FaultServer()
        self.store = FaultServer()
        self.given = 0
        self.expires_in: float | None = 3600
        self.item: dict[str, Any] = dict(TABLE)
        self.location = f"s3://{BUCKET}/x/t"
        #: Session tokens that the store takes no more.
        self.expired: set[str] = set()
        #: Folders of auxiliary locations, by their keys in the store, and the session tokens that open them.
        self.auxiliary: dict[str, Path] = {}
        self.opened: dict[str, set[str]] = {}

    def __enter__(self) -> DirectoryServer:
        self.api.__enter__()
        self.store.__enter__()
        self.api.on(
            "GET", re.compile("/tables$|/all-tables$"), lambda request: Reply.of_json({"items": [self.item]})
        )
        self.api.on("GET", "/shares", Reply.of_json({"items": [{"name": "s"}]}))
        self.api.on("POST", f"{PATH}/temporary-table-credentials", self._credentials)
        self.api.on("POST", f"{PATH}/query", self._no_urls)
        for name in ("metadata", "version", "changes"):
            self.api.on("GET", f"{PATH}/{name}", self._no_urls)
        self.store.on("*", "*", self._object)
        return self

    def __exit__(self, *exception: object) -> None:
        self.store.__exit__()
        self.api.__exit__()

    def session(self, number: int) -> str:
        return f"{SESSION}-{number}"

    @property
    def fetched(self) -> list[str]:
        """Names of the objects that were fetched."""
        return [unquote(r.path).rpartition("/")[2] for r in self.store.requests if "list-type" not in r.target]

    @property
    def asked(self) -> int:
        return len(self.api.seen(f"{PATH}/temporary-table-credentials"))

    def _no_urls(self, request: Request) -> Reply:
        said = "Access mode url is not offered for this table; request temporary credentials."
        return Reply.of_json({"errorCode": "INVALID_PARAMETER_VALUE", "message": said}, status=400)

    def _credentials(self, request: Request) -> Reply:
        self.given += 1
        requested = request.json().get("location", self.location)
        self.opened.setdefault(requested, set()).add(self.session(self.given))
        credentials: dict[str, Any] = {
            "location": requested,
            "awsTempCredentials": {
                "accessKeyId": f"AKIA{self.given}",
                "secretAccessKey": SECRET,
                "sessionToken": self.session(self.given),
            },
        }
        if self.expires_in is not None:
            credentials["expirationTime"] = int((time.time() + self.expires_in) * 1000)
        return Reply.of_json({"credentials": credentials})

    def _object(self, request: Request) -> Reply:
        if (
            request.headers.get("x-amz-security-token", "")
            not in {self.session(number) for number in range(1, self.given + 1)} - self.expired
        ):
            return refusal(400, "ExpiredToken")
        if "AWS4-HMAC-SHA256" not in request.headers.get("authorization", ""):
            return refusal(403, "AccessDenied")
        if request.query.get("list-type") == "2":
            return self._list(request.query.get("prefix", ""), request.query.get("delimiter"))
        key = unquote(request.path).removeprefix(f"/{BUCKET}/")
        for place, folder in self.auxiliary.items():
            if key.startswith(place):
                opened = self.opened.get(f"s3://{BUCKET}/{place.rstrip('/')}", set())
                if request.headers["x-amz-security-token"] not in opened:
                    return refusal(403, "AccessDenied")
                return file_reply((folder / key.removeprefix(place)).read_bytes())(request)
        file = self.path / key.removeprefix("x/t/")
        if not key.startswith("x/t/") or not file.is_file():
            return refusal(404, "NoSuchKey")
        return file_reply(file.read_bytes())(request)

    def _list(self, prefix: str, delimiter: str | None) -> Reply:
        folder = self.path / prefix.removeprefix("x/t/")
        entries = sorted(folder.iterdir()) if prefix.startswith("x/t/") and folder.is_dir() else []
        files = "".join(_entry(prefix + path.name, path) for path in entries if path.is_file())
        folders = "".join(
            f"<CommonPrefixes><Prefix>{escape(prefix + path.name)}/</Prefix></CommonPrefixes>"
            for path in entries
            if path.is_dir()
        )
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(entries)}</KeyCount>"
            f"<MaxKeys>1000</MaxKeys><Delimiter>{delimiter or ''}</Delimiter><IsTruncated>false</IsTruncated>"
            f"{files}{folders}</ListBucketResult>"
        )
        return Reply(body=body.encode(), headers={"Content-Type": "application/xml"})


def _entry(key: str, path: Path) -> str:
    state = path.stat()
    changed = datetime.fromtimestamp(state.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{changed}</LastModified><ETag>&quot;v1&quot;</ETag>"
        f"<Size>{state.st_size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
    )
