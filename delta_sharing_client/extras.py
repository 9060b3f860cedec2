"""How to install an extra of this package; needs no library."""


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra, wherever the package itself came from."""
    return (
        f"pip install 'delta-sharing-client[{extra}]' (in a checkout: pip install '.[{extra}]'; from a wheel: "
        f"pip install '<file>.whl[{extra}]')"
    )
