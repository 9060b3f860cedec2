"""Commands of a person's sign-in: `login` and `logout`."""

from __future__ import annotations

from datetime import timedelta

import click

import delta_sharing_client as ds
from delta_sharing_client.cli.command import examples
from delta_sharing_client.cli.options import Number, ServerCommand, transport_options
from delta_sharing_client.cli.output import echo


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
