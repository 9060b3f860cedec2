"""Scripted OpenID provider on loopback, and a sharing server that accepts its access tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from faults.server import FaultServer, Reply, Request

ACCESS = "canary-access"
REFRESH = "canary-refresh"
CODE = "canary-code"
DEVICE = "canary-device"


class OpenIdServer:
    """Issues numbered tokens; each refresh token works once (rotation)."""

    def __init__(self, server: FaultServer) -> None:
        self.server = server
        self.lifetime: Any = 3600
        self.rotates = True
        self.gives_refresh_token = True
        self.configuration: dict[str, Any] = {
            "issuer": server.url,
            **{
                name: f"{server.url}/{name.partition('_endpoint')[0]}"
                for name in (
                    "authorization_endpoint",
                    "token_endpoint",
                    "device_authorization_endpoint",
                    "revocation_endpoint",
                )
            },
        }
        #: Errors to answer to polls with a device code, before the token.
        self.pending: list[str] = []
        self.device: dict[str, Any] = {
            "device_code": DEVICE,
            "user_code": "WDJB-MJHT",
            "verification_uri": f"{server.url}/device",
            "expires_in": 900,
            "interval": 5,
        }
        self.refuse_refresh: Reply | None = None
        self.given = 0
        self.revoked: set[str] = set()
        self._challenges: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()
        server.on("GET", "/.well-known/openid-configuration", lambda _: Reply.of_json(self.configuration))
        server.on("POST", "/token", self._token)
        server.on("POST", "/device_authorization", lambda _: Reply.of_json(self.device))
        server.on("POST", "/revocation", self._revoke)
        server.on("GET", "/shares", self._shares)

    def fields(self, **fields: Any) -> dict[str, Any]:
        return {
            "shareCredentialsVersion": 2,
            "type": "oauth_authorization_code",
            "endpoint": self.server.url,
            "issuer": self.server.url,
            "clientId": "client-1",
            **fields,
        }

    def forms(self, grant: str = "") -> list[dict[str, str]]:
        forms = [dict(parse_qsl(request.body.decode())) for request in self.server.seen("/token")]
        return [form for form in forms if grant in form["grant_type"]]

    def approve(self, page: str, **changes: str) -> dict[str, str]:
        """Approve an authorization request as a person's browser does; return the parameters of the redirect."""
        asked = dict(parse_qsl(urlsplit(page).query))
        code = f"{CODE}-{len(self._challenges) + 1}"
        self._challenges[code] = asked
        return {"code": code, "state": asked["state"], "iss": self.server.url, **changes}

    def browser(self, page: str, **changes: str) -> int:
        """Open the page, approve, and follow the redirect; return the status of the answer."""
        asked = dict(parse_qsl(urlsplit(page).query))
        return visit(f"{asked['redirect_uri']}?{urlencode(self.approve(page, **changes))}")[0]

    def _token(self, request: Request) -> Reply:
        form = dict(parse_qsl(request.body.decode()))
        grant = form["grant_type"]
        with self._lock:
            if grant == "authorization_code":
                asked = self._challenges.pop(form["code"], {})
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                if proof != asked.get("code_challenge") or form["redirect_uri"] != asked["redirect_uri"]:
                    return error("invalid_grant", f"code {form['code']} does not fit")
            elif grant == "refresh_token":
                if self.refuse_refresh is not None:
                    return self.refuse_refresh
                if form["refresh_token"] in self.revoked:
                    return error("invalid_grant", f"the refresh token {form['refresh_token']} was used")
                if self.rotates:
                    self.revoked.add(form["refresh_token"])
            elif self.pending:
                return error(self.pending.pop(0))
            self.given += 1
            return self._answer(self.given)

    def _answer(self, number: int) -> Reply:
        claims = base64.urlsafe_b64encode(
            json.dumps({"sub": "7", "preferred_username": "ada@example.com"}).encode()
        )
        answer = {
            "access_token": f"{ACCESS}-{number}",
            "token_type": "Bearer",
            "id_token": f"e30.{claims.decode().rstrip('=')}.c2ln",
        }
        if self.gives_refresh_token:
            answer["refresh_token"] = f"{REFRESH}-{number}"
        if self.lifetime is not None:
            answer["expires_in"] = self.lifetime
        return Reply.of_json(answer)

    def _revoke(self, request: Request) -> Reply:
        self.revoked.add(dict(parse_qsl(request.body.decode()))["token"])
        return Reply()

    def _shares(self, request: Request) -> Reply:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in {f"{ACCESS}-{number}" for number in range(1, self.given + 1)} - self.revoked:
            return Reply.of_json({"errorCode": "UNAUTHENTICATED", "message": f"not good: {token}"}, status=401)
        return Reply.of_json({"items": [{"name": token.rpartition("-")[2]}]})


def error(code: str, description: str = "") -> Reply:
    return Reply.of_json({"error": code, "error_description": description}, status=400)


def visit(url: str) -> tuple[int, str]:
    """Return status and body of a page."""
    try:
        with urllib.request.urlopen(url) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()
