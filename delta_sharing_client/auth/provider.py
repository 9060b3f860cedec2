"""From a profile's credential to the headers that authorize a request. One provider per kind of credential."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from delta_sharing_client.protocol.profile import Profile


class BearerAuth:
    """Sends the profile's bearer token with each request.

    Args:
        profile: a profile with a bearer token.
        now: gives the present time in UTC.
    """

    #: There is but one token: asking again gives the same.
    renewable = False

    def __init__(self, profile: Profile, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._profile = profile
        self._now = now

    def headers(self, *, force: bool = False) -> Mapping[str, str]:
        """Return the `Authorization` header ("REST APIs").

        Args:
            force: asks for a fresh credential; a bearer token has none.
        """
        return {"Authorization": f"Bearer {self._profile.bearer_token.reveal()}"}

    def hint(self) -> str:
        """Return what to tell the user when the server refuses the token."""
        profile = self._profile
        which = f"the profile {profile.source}" if profile.source else "the profile"
        if profile.expired(self._now()):
            return (
                f"The token in {which} has expired: its expirationTime is {format_time(profile.expiration_time)}. "
                "Ask the provider for a new profile"
            )
        return f"The token in {which} is missing, wrong or revoked; ask the provider for a new profile"

    def __repr__(self) -> str:
        return f"BearerAuth({self._profile.endpoint})"


def provider_for(profile: Profile) -> BearerAuth:
    """Return the provider for a profile's kind of credential."""
    return BearerAuth(profile)


def format_time(moment: datetime | None) -> str:
    """Return a time in UTC to the second, as profiles write it."""
    return "never" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
