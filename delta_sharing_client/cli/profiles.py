"""Commands about profiles: `profile check`, and `login` and `logout` for a person's sign-in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

import delta_sharing_client as ds
from delta_sharing_client.cli.command import CommandGroup, examples
from delta_sharing_client.cli.options import Number, ServerCommand, connect, output_option, transport_options
from delta_sharing_client.cli.output import echo, show_facts


@click.group(cls=CommandGroup)
def profile() -> None:
    """Check profiles."""


@profile.command(
    cls=ServerCommand,
    epilog=examples(
        "delta-sharing profile check config.share",
        "delta-sharing profile check --output json",
    ),
)
@click.argument("source", metavar="[PROFILE]", required=False)
@output_option
def check(source: str | None, output: str) -> None:
    """Check that a profile works: endpoint, credential, clock, shares, and what the server supports.

    The capabilities are those of the answer for the first table that the server lists. The exit code is 0 if the
    server accepts the profile.
    """
    with connect(source) as client:
        found = client.profile
        shares = [share.name for share in client.list_shares()]
        facts: dict[str, Any] = {
            "profile": found.source or "given as JSON text",
            "type": found.type,
            "endpoint": found.endpoint,
            "reachable": True,
            "clock_skew_seconds": round(client.clock_offset.total_seconds()),
            **_validity_of(found),
            "shares": shares,
            **_capabilities(client),
        }
    show_facts(facts, output)


@click.command(
    cls=ServerCommand,
    epilog=examples("delta-sharing login config.share", "delta-sharing login config.share --device-code"),
)
@click.argument("profile", metavar="[PROFILE]", required=False)
@click.option("--device-code", is_flag=True, help="Show a code to enter in a browser on any device.")
@click.option("--no-browser", is_flag=True, help="Show the page to open, and open no browser.")
@click.option("--keyring/--no-keyring", default=None, help="Keep the tokens in the keyring of the system, or not.")
@click.option("--timeout", type=Number(1, example=300), default=300, show_default=True, help="Seconds to wait.")
def login(profile: str | None, device_code: bool, no_browser: bool, keyring: bool | None, timeout: int) -> None:
    """Sign in at the OpenID provider of a profile.

    The profile is of the type oauth_authorization_code. The tokens are kept in a private file in the user's cache
    folder, and renewed. Without a browser on this machine, a device code is used if the provider supports it.
    """
    found = ds.sign_in(
        profile or None,
        device_code=device_code,
        open_browser=not no_browser,
        keyring=keyring,
        timeout=timedelta(seconds=timeout),
        options=transport_options(),
    )
    until = "" if found.expires is None else f" until {found.expires:%Y-%m-%d %H:%M:%S} UTC"
    renewed = ", and is renewed" if found.renewable else ", and is not renewed"
    echo(f"Signed in as {found.account or 'an account without a name'}. The token is valid{until}{renewed}.")


@click.command(cls=ServerCommand, epilog=examples("delta-sharing logout config.share"))
@click.argument("profile", metavar="[PROFILE]", required=False)
def logout(profile: str | None) -> None:
    """Delete the tokens of a sign-in, and revoke the refresh token at the provider if it supports that."""
    existed = ds.sign_out(profile or None, options=transport_options())
    echo("Signed out." if existed else "Nobody was signed in.")


def _validity_of(found: ds.Profile) -> dict[str, Any]:
    """Return until when the credential is valid, and for a person's sign-in the account."""
    if found.type != "oauth_authorization_code":
        return {"valid_until": _validity(found.expiration_time)}
    signed_in = ds.signed_in(found)
    if signed_in is None:  # signed out since the first request
        return {"signed_in_as": None}
    renewed = " (renewed automatically)" if signed_in.renewable else ""
    return {
        "signed_in_as": signed_in.account or "the provider names no account",
        "valid_until": _validity(signed_in.expires) + renewed,
    }


def _validity(expires: datetime | None) -> str:
    if expires is None:
        return "no expiration stated"
    left = expires - datetime.now(UTC)
    stated = f"{expires:%Y-%m-%d %H:%M:%S} UTC"
    if left < timedelta(0):
        return f"{stated} (expired, and the server still accepts it)"
    return f"{stated} ({left.days} days left)" if left.days else f"{stated} ({left.seconds // 3600} hours left)"


def _capabilities(client: ds.SharingClient) -> dict[str, Any]:
    """Return what the server answers about the first table; nothing if there is no table."""
    name = next(client.iter_all_tables(), None)
    if name is None:
        return {"first_table": None}
    table = client.table(name)
    metadata, protocol = table.metadata(), table.protocol()
    return {
        "first_table": name.full_name,
        "response_format": protocol.response_format,
        "access": list(name.access_modes) or ["url"],
        "reader_features": list(protocol.reader_features),
        "change_data_feed": _change_data_feed(metadata.configuration, protocol.response_format),
    }


def _change_data_feed(properties: Mapping[str, str], response_format: str) -> bool | None:
    """Return whether the table has a change data feed; None if the parquet format states no property for it."""
    for name in ("delta.enableChangeDataFeed", "enableChangeDataFeed"):  # the parquet format omits the prefix
        if name in properties:
            return properties[name].lower() == "true"
    return False if response_format == "delta" else None
