"""Scripted token endpoint and sharing server, which accepts the tokens of that endpoint only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from faults.server import FaultServer, Reply, Request
from waiting import HANG, SleepClock, join

from delta_sharing_client.auth.oauth import ClientCredentialsTokens, PrivateKeyJwtTokens
from delta_sharing_client.auth.renewal import RenewingAuth
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.transport.rest_transport import ApiTransport
from delta_sharing_client.transport.retry import Retrier

TOKEN_CANARY = "canary-4cc355"
SECRET = "canary-s3cr3t"
#: The time at which clocks of tests start, in seconds since the epoch.
NOW = 1_800_000_000.0


class TokenServer:
    """Issues tokens numbered from 1 at `/token`, and answers `/shares` for valid tokens."""

    def __init__(self, server: FaultServer) -> None:
        self.server = server
        self.lifetime: Any = 3600
        self.refuse_all = False
        self.given = 0
        self.revoked: set[str] = set()
        self.check: Callable[[Request, dict[str, str]], Reply | None] = lambda request, form: None
        self._lock = threading.Lock()
        server.on("POST", "/token", self._token)
        server.on("GET", "/shares", self._shares)

    @property
    def asked(self) -> int:
        return len(self.server.seen("/token"))

    @property
    def forms(self) -> list[dict[str, str]]:
        return [dict(parse_qsl(request.body.decode())) for request in self.server.seen("/token")]

    def token(self, number: int) -> str:
        return f"{TOKEN_CANARY}-{number}"

    def profile(self, **fields: Any) -> Profile:
        return Profile.from_dict(self.fields(**fields))

    def fields(self, **fields: Any) -> dict[str, Any]:
        return {
            "shareCredentialsVersion": 2,
            "type": "oauth_client_credentials",
            "endpoint": self.server.url,
            "tokenEndpoint": f"{self.server.url}/token",
            "clientId": "client-1",
            "clientSecret": SECRET,
            **fields,
        }

    def key_fields(self, key: dict[str, Any], **auth: Any) -> dict[str, Any]:
        return {
            "shareCredentialsVersion": 2,
            "type": "oauth_jwt_bearer_private_key_jwt",
            "endpoint": self.server.url,
            "auth": {
                "tokenEndpoint": f"{self.server.url}/token",
                "clientId": "client-1",
                "issuer": "https://issuer.example",
                "audience": "https://sharing.example",
                "privateKey": {"keyId": "key-7", **key},
                **auth,
            },
        }

    def client(
        self, clock: SleepClock | None = None, profile: Profile | None = None, **options: Any
    ) -> RestClient:
        """A client; with a clock, time stands still for it."""
        profile = profile or self.profile()
        settings = TransportOptions(**options)
        if clock is None:
            return RestClient(profile, settings)

        def make_retrier(asked: TransportOptions) -> Retrier:
            return Retrier(asked, clock=clock, sleep=clock.sleep, random=lambda: 1.0)

        credential: Any = profile.credential
        tokens: Any
        if profile.type == "oauth_client_credentials":
            tokens = ClientCredentialsTokens(profile, credential, settings, now=clock, make_retrier=make_retrier)
        else:
            tokens = PrivateKeyJwtTokens(profile, credential, settings, now=clock, make_retrier=make_retrier)
        transport = ApiTransport(profile.endpoint, RenewingAuth(tokens, now=clock), settings)
        return RestClient(profile, settings, transport=transport, retrier=make_retrier(settings))

    def _token(self, request: Request) -> Reply:
        refused = self.check(request, dict(parse_qsl(request.body.decode())))
        if refused is not None:
            return refused
        with self._lock:
            self.given += 1
            number = self.given
        answer = {"access_token": self.token(number), "token_type": "Bearer"}
        if self.lifetime is not None:
            answer["expires_in"] = self.lifetime
        return Reply.of_json(answer)

    def _shares(self, request: Request) -> Reply:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        known = {self.token(number) for number in range(1, self.given + 1)} - self.revoked
        if scheme != "Bearer" or token not in known or self.refuse_all:
            return Reply.of_json({"errorCode": "UNAUTHENTICATED", "message": f"not good: {token}"}, status=401)
        return Reply.of_json({"items": [{"name": token.rpartition("-")[2]}]})


def used(client: RestClient) -> int:
    """The number of the token that a request is sent with."""
    (share,) = client.list_shares()
    return int(share.name)


def at_once(count: int, function: Callable[[], Any]) -> list[Any]:
    """Call a function on so many threads at once; what each returned or raised."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(index: int) -> None:
        barrier.wait(HANG)
        try:
            results[index] = function()
        except Exception as error:  # noqa: BLE001  # the test looks at it
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    join(threads)
    return results
