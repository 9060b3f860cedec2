"""The command line `delta-sharing` (extra ``cli``), on the public API of the package."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec
from typing import NoReturn

from delta_sharing_client.extras import how_to_install


def main() -> NoReturn:
    """Run the command line with the arguments of the process, and exit with its code."""
    # Until a command runs there is nothing to clean up, and an interrupted import shows a traceback.
    signal.signal(signal.SIGINT, _stop)
    missing = [name for name in ("click", "rich") if find_spec(name) is None]
    if missing:
        sys.stderr.write(f"Error: the command line needs {' and '.join(missing)}: {how_to_install('cli')}\n")
        raise SystemExit(1)
    from delta_sharing_client.cli.app import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    # `kill` and schedulers send SIGTERM; as an exception it removes temporary files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cli(prog_name="delta-sharing")
    raise SystemExit(0)


def _stop(*_: object) -> NoReturn:
    """End the process at once, as after Ctrl-C in a command."""
    os.write(2, b"Stopped.\n")
    os._exit(130)
