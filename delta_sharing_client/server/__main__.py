"""`python -m delta_sharing_client.server DIR`: share the Delta tables of a directory until Ctrl-C."""

from __future__ import annotations

import argparse
import ipaddress
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.paths import local_path
from delta_sharing_client.server.options import ServerOptions
from delta_sharing_client.server.runner import SharingServer
from delta_sharing_client.shown_text import printable

_DESCRIPTION = """\
Share the Delta tables of a directory over the Delta Sharing protocol: for demos, notebooks and tests.

Every directory below DIR that has a _delta_log is a table. Its path gives its name:
  DIR/share/schema/table   share.schema.table
  DIR/schema/table         local.schema.table
  DIR/table                local.default.table
DIR may also be a table itself. The server speaks plain http to this machine only, unless --host
names another address, and the profile gives access to every table. It is no server for production."""

_EPILOG = """\
example:
  python -m delta_sharing_client.server warehouse --port 8787 --profile warehouse.share
  then, in Python: load_as_pandas("warehouse.share#local.default.orders")"""


def _path(text: str) -> Path:
    try:
        return local_path(text, "it")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m delta_sharing_client.server",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", metavar="DIR", type=_path, help="the directory with the Delta tables")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: any free one)")
    parser.add_argument(
        "--profile",
        metavar="PATH",
        type=_path,
        default=Path("embedded-server.share"),
        help="where to write the profile that clients need; only you can read it (default: %(default)s)",
    )
    parser.add_argument(
        "--url-lifetime",
        metavar="SECONDS",
        type=float,
        default=3600.0,
        help="lifetime of the signed URL of a file (default: 3600)",
    )
    parser.add_argument(
        "--token-file",
        metavar="PATH",
        type=_path,
        help="a file with the bearer token, for a token that outlives this run (default: a random one)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 0, or 2 if the server could not be started."""
    options = _parser().parse_args(arguments)
    if not _may_replace(options.profile):
        return _fail(f"--profile: {options.profile} exists and is not a profile; name another file")
    try:
        token = None if options.token_file is None else options.token_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        return _fail(f"--token-file {options.token_file} cannot be read: {reason}")
    try:
        chosen = ServerOptions(
            host=options.host,
            port=options.port,
            token=token,
            url_lifetime=timedelta(seconds=options.url_lifetime),
        )
        server = SharingServer(options.directory, options=chosen).start()
    except (DeltaSharingError, OSError, ValueError, RuntimeError) as error:
        return _fail(getattr(error, "strerror", None) or str(error))
    try:
        server.write_profile(options.profile)
        _announce(server, options.profile)
        server.wait()
    except OSError as error:
        return _fail(f"the profile cannot be written: {error.strerror}: {options.profile}")
    except KeyboardInterrupt:
        sys.stdout.write("\nStopped.\n")
    finally:
        server.stop()
    return 0


def _may_replace(path: Path) -> bool:
    """Whether a file is not there, empty, or a profile: nothing else may be lost for one."""
    try:
        text = path.read_bytes()
        return not text or "shareCredentialsVersion" in dict(json.loads(text))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, TypeError):
        return False


def _fail(message: str) -> int:
    sys.stderr.write(f"Error: {printable(' '.join(message.split()))}\n")
    return 2


def _announce(server: SharingServer, profile: Path) -> None:
    lines = [f"Listening on {server.endpoint}"]
    if not _is_loopback(server.options.host):
        lines.append("Warning: other machines can reach it, and plain http shows them the token and the data.")
    lines += ["Shared tables:", *(f"  {printable(name)}" for name in server.tables)]
    lines += [f"Profile with the token: {profile.absolute()}", "Ctrl-C stops the server."]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    sys.exit(main())
