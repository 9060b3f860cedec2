"""OAuth token requests: client credentials (RFC 6749) and signed assertions (RFC 7523)."""

from __future__ import annotations

import math
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import quote_plus

from msgspec import Struct

from delta_sharing_client.auth.profile import path_in_profile, read_private_key
from delta_sharing_client.auth.renewal import AccessToken, basic
from delta_sharing_client.errors import DeltaSharingError, MissingDependencyError, ProfileError, TokenError
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.credentials import HEADER_SAFE, ClientCredentials, PrivateKeyJwt, WorkloadIdentity
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import Secret, redact_text, redact_url
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.rest_transport import TokenTransport
from delta_sharing_client.transport.retry import (
    RETRYABLE_STATUSES,
    Attempt,
    Retrier,
    RetryLater,
    parse_retry_after,
)
from delta_sharing_client.transport.tls import TlsContext
from delta_sharing_client.wire.ndjson import parse_object

logger = module_logger(__name__)


class OAuthClient(Protocol):
    """A client of an authorization server."""

    @property
    def token_endpoint(self) -> str:
        """The URL that issues tokens."""

    @property
    def client_id(self) -> str:
        """The client's id."""


C = TypeVar("C", bound=OAuthClient)
T = TypeVar("T")
#: The fields of a request; those that are None are left out.
Form: TypeAlias = Mapping[str, str | Secret | None]

#: Validity of an assertion, in seconds.
LIFETIME: Final = 120

#: Deadline for a first token, or one that has expired.
_RETRY_DEADLINE: Final = timedelta(seconds=60)
#: Deadline for the renewal of a valid token, for which a request waits.
_SINGLE_DEADLINE: Final = timedelta(seconds=10)

_MAX_ANSWER: Final = 1024 * 1024
#: Characters of the endpoint's error message that are shown.
_MAX_MESSAGE: Final = 500
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class TokenAnswer(Struct, frozen=True):
    """A token endpoint's answer.

    Attributes:
        fields: its fields.
        asked_at: the time of the request in seconds since the epoch.
        scrub: masks the secrets of the request in a text of the answer.
    """

    fields: dict[str, Any]
    asked_at: float
    scrub: Callable[[str], str]


class OAuthTokens(ABC, Generic[C]):
    """Source of access tokens from a token endpoint.

    Raises:
        InsecureUrlError: the credential would be sent over plain http.
    """

    #: What answers, and the field of the profile with its URL, for messages.
    _subject, _field = "token endpoint", "tokenEndpoint"

    def __init__(
        self,
        profile: Profile,
        credential: C,
        options: TransportOptions,
        *,
        now: Callable[[], float] = time.time,
        make_retrier: Callable[[TransportOptions], Retrier] = Retrier,
        tls: TlsContext | None = None,
    ) -> None:
        self._transport = TokenTransport(credential.token_endpoint, options, tls)
        self._profile = profile
        self._credential: C = credential
        self._client_id = credential.client_id
        self._options = options
        self._now = now
        self._make_retrier = make_retrier
        self._shown = redact_url(credential.token_endpoint)

    def fetch(self, *, retry: bool) -> AccessToken:
        """Return a new token; with `retry` for up to 60 s and the attempts of the options, else once, for 10 s.

        Raises:
            TokenError: the endpoint refuses, cannot be reached, or returns no usable token.
            ProfileError: the private key cannot be used.
            MissingDependencyError: the extra `oauth` is required and not installed.
        """
        return self._call(lambda attempt: self._token(self._answer(attempt)), retry=retry)

    def _call(self, once: Callable[[Attempt], T], *, retry: bool) -> T:
        deadline = min(_RETRY_DEADLINE if retry else _SINGLE_DEADLINE, self._options.api_deadline)
        attempts = self._options.api_attempts if retry else 1
        options = replace(self._options, api_deadline=deadline, api_attempts=attempts)
        try:
            return self._make_retrier(options).call(once)
        except (TokenError, ProfileError, MissingDependencyError):
            raise
        except DeltaSharingError as error:
            raise TokenError(f"no access token for client {self._client_id!r}: {error}") from None
        finally:
            self._transport.close()

    def hint(self) -> str:
        """Return the remedy if the sharing server refuses a new token."""
        return (
            f"The access token is a new one of {self._shown} for client {self._client_id!r}: ask the provider "
            "whether this client has access, and whether scope and audience in the profile are right"
        )

    @representation
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown}, client {self._client_id!r})"

    @abstractmethod
    def _request_token(self, timeout: float) -> Response:
        """Send the token request; return the answer, unread."""

    def _post(self, form: Form, timeout: float, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
        """Send a form; return the answer, unread."""
        return self._transport.post(plain(form), headers, timeout)

    def _answer(self, attempt: Attempt) -> TokenAnswer:
        """Return the answer to a request, if it is no refusal."""
        asked_at = self._now()
        response = self._request_token(attempt.timeout)
        with response:
            attempt.answered()
            body = response.read(_MAX_ANSWER + 1)
            fields = _json(body)
            if not response.ok or fields is None or fields.get("error"):
                raise self._refusal(response, fields)
        return TokenAnswer(fields, asked_at, response.scrub)

    def _refusal(self, response: Response, fields: Mapping[str, Any] | None) -> TokenError | RetryLater:
        code, message = (clean_text(fields, name, response.scrub) for name in ("error", "error_description"))
        # No colon after the code: that of `expired_token` would read as a field with a secret, which is masked.
        details = ", ".join(redact_text(text)[:_MAX_MESSAGE] for text in (code, message) if text)
        sentence = f"the {self._subject} {self._shown} answered {response.status}"
        if details:
            sentence += f" ({details})"
        if 300 <= response.status < 400:
            sentence += (
                f": a redirect, which is not followed with a credential; correct {self._field} in the profile"
            )
        elif response.status == 404:
            sentence += f"; correct {self._field} in the profile"
        elif fields is None and response.ok:
            sentence += f", but not with a JSON object; correct {self._field} in the profile"
        elif code == "invalid_client" or response.status in (401, 403):
            sentence += f": the credential of client {self._client_id!r} is wrong, expired or not allowed here"
        error = TokenError(sentence, status=response.status, error_code=code)
        if response.status in RETRYABLE_STATUSES:
            return RetryLater(error, parse_retry_after(response.headers) or 0.0)
        return error

    def _token(self, answer: TokenAnswer) -> AccessToken:
        fields = answer.fields
        token, kind = fields.get("access_token"), str(fields.get("token_type") or "bearer")
        lifetime = seconds_of(fields.get("expires_in"))
        problem = ""
        if not isinstance(token, str) or not HEADER_SAFE.fullmatch(token):
            problem = "answered without a usable 'access_token'"
        elif kind.lower() != "bearer":
            problem = f"gave a token of type {answer.scrub(kind)[:40]!r}; sharing servers take bearer tokens"
        elif lifetime is not None and not lifetime > 0:
            problem = "answered with an 'expires_in' that is not a number above 0"
        if problem:
            raise TokenError(f"the token endpoint {self._shown} {problem}", status=200)
        logger.debug("a new access token for client %r, good for %s s", self._client_id, lifetime)
        return AccessToken.from_lifetime(Secret(str(token)), answer.asked_at, lifetime)


class ClientCredentialsTokens(OAuthTokens[ClientCredentials]):
    """Tokens for a client's id and secret (type `oauth_client_credentials`)."""

    _encoded = False

    def _request_token(self, timeout: float) -> Response:
        credential = self._credential
        name, secret = credential.client_id, credential.client_secret.reveal()
        usual, other = basic(name, secret), basic(quote_plus(name), quote_plus(secret))
        if self._encoded:
            usual, other = other, usual
        form = {
            "grant_type": "client_credentials",
            "scope": credential.scope,
            "audience": credential.audience,
        }
        response = self._post(form, timeout, usual)
        if response.status in (400, 401) and other != usual:
            # RFC 6749 requires id and secret to be form-encoded in the header; most servers expect them unencoded.
            response.close()
            self._encoded = not self._encoded
            response = self._post(form, timeout, other)
        return response


class PrivateKeyJwtTokens(OAuthTokens[PrivateKeyJwt]):
    """Tokens for assertions signed with a private key (type `oauth_jwt_bearer_private_key_jwt`).

    The key is read when the first token is requested.
    """

    _key: Secret | None = None

    def _request_token(self, timeout: float) -> Response:
        if self._key is None:
            self._key = read_private_key(self._profile)
        return self._post({"grant_type": _JWT_BEARER, "assertion": self._signed(self._key)}, timeout)

    def _signed(self, key: Secret) -> Secret:
        """Return an assertion that is valid for `LIFETIME` seconds."""
        credential = self._credential
        try:
            import cryptography  # noqa: F401
            import jwt
        except ImportError:
            purpose = f"a profile of type {credential.TYPE}"
            raise MissingDependencyError(package="PyJWT[crypto]", extra="oauth", purpose=purpose) from None
        issued = int(self._now())
        claims = {
            "aud": credential.issuer,
            "iss": credential.client_id,
            "iat": issued,
            "exp": issued + LIFETIME,
            "jti": str(uuid.uuid4()),
            "resource": credential.audience,
        }
        if credential.scope is not None:
            claims["scope"] = credential.scope
        headers = {"kid": credential.key_id}
        try:
            return Secret(jwt.encode(claims, key.reveal(), algorithm=credential.algorithm, headers=headers))
        except Exception as error:  # noqa: BLE001  # errors of PyJWT, cryptography or OpenSSL; their text may contain the key
            raise ProfileError(
                f"its private key cannot sign with {credential.algorithm} ({type(error).__name__}): it takes an "
                "unencrypted PEM key for that algorithm",
                field="privateKey",
                source=self._profile.source,
            ) from None


class WorkloadIdentityTokens(OAuthTokens[WorkloadIdentity]):
    """Tokens for the token file of a platform (type `oauth_workload_identity`)."""

    def _request_token(self, timeout: float) -> Response:
        credential = self._credential
        form: Form = {
            "grant_type": "client_credentials",
            "client_id": credential.client_id,
            "client_assertion_type": _CLIENT_ASSERTION,
            "client_assertion": self._read_token(),
            "scope": credential.scope,
            "audience": credential.audience,
        }
        return self._post(form, timeout)

    def _read_token(self) -> Secret:
        path = path_in_profile(self._profile, self._credential.token_file, "tokenFile")
        reason = "is empty, or contains no token"
        token = ""
        try:
            with path.open("rb") as file:
                token = file.read(_MAX_ANSWER).decode("ascii").strip()
        except OSError as error:
            reason = f"cannot be read: {error.strerror or type(error).__name__}"
        except ValueError:  # a null in the path, or no text
            pass
        if not HEADER_SAFE.fullmatch(token):
            raise ProfileError(
                f"its token file {path} {reason}; correct 'tokenFile', or let the platform write it",
                field="tokenFile",
                source=self._profile.source,
            )
        return Secret(token)


def plain(form: Form) -> dict[str, str]:
    """Return the fields of a form that have a value, for sending."""
    return {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in form.items()
        if value is not None
    }


def _json(body: bytes) -> dict[str, Any] | None:
    if len(body) > _MAX_ANSWER:
        return None
    try:
        return parse_object(body)
    except (ValueError, RecursionError):
        return None


def clean_text(
    fields: Mapping[str, Any] | None, name: str, scrub: Callable[[str], str] | None = None
) -> str | None:
    """Return a field of an answer as one printable line, masked by `scrub`; None if it is no text, or empty."""
    value = (fields or {}).get(name)
    if not isinstance(value, str) or not value:
        return None
    if scrub is not None:  # first, because an edited text would repeat a secret in another form
        value = scrub(value)
    return " ".join("".join(char if char.isprintable() else " " for char in value[: 4 * _MAX_MESSAGE]).split())


def seconds_of(value: Any) -> float | None:
    """Convert a number or its text to seconds; None stays None, and anything else becomes -1."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return -1.0
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return -1.0
    return seconds if math.isfinite(seconds) else -1.0
