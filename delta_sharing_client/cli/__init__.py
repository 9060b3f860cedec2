"""The command line `delta-sharing` (extra ``cli``), on the public API of the package."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from typing import NoReturn

from delta_sharing_client.extras import how_to_install


def main() -> NoReturn:
    """Run the command line with the arguments of the process, and exit with its code."""
    missing = [name for name in ("click", "rich") if find_spec(name) is None]
    if missing:
        sys.stderr.write(f"Error: the command line needs {' and '.join(missing)}: {how_to_install('cli')}\n")
        raise SystemExit(1)
    from delta_sharing_client.cli.app import cli

    # `kill` and schedulers send SIGTERM; as an exception it removes temporary files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cli(prog_name="delta-sharing")
    raise SystemExit(0)
