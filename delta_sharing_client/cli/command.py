"""Classes of the commands: the option `--debug`, errors as one line, exit codes."""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
import warnings
from functools import partial
from typing import Any, Final, NoReturn

import click

from delta_sharing_client import errors
from delta_sharing_client.cli.output import echo
from delta_sharing_client.messages import message_text
from delta_sharing_client.shown_text import printable

#: Exit codes by the class of the error; the first match counts, and any other error is 1.
EXIT_CODES: Final[tuple[tuple[tuple[type[BaseException], ...], int], ...]] = (
    ((errors.MissingDependencyError, errors.InsecureUrlError), 1),
    ((errors.NotFoundError, errors.DeltaTableNotFoundError), 3),
    ((errors.ProfileError, errors.TokenError, errors.AuthenticationError, errors.ForbiddenError), 4),
    ((errors.TransportError, errors.ServerError, errors.RateLimitError), 5),
    ((ValueError, TypeError), 2),
)
#: What messages say for Python, and what the command line has instead; the first match of a place counts.
_FOR_PYTHON: Final = {
    "SharingClient(...).list_all_tables()": "delta-sharing ls PROFILE --recursive",
    "list_all_tables()": "delta-sharing ls PROFILE --recursive",
    "list_schemas() and list_tables() of client.iceberg": "delta-sharing ls --catalog iceberg",
    "list_shares()": "delta-sharing ls PROFILE",
    "list_schemas()": "delta-sharing ls PROFILE#SHARE",
    "snapshots() of the table": "snapshots() of the table in Python",
    "on_future='latest'": "--on-future latest",
    "table.version()": "that of delta-sharing show",
    "rebind=True": "--rebind",
    "sync(repair=True)": "delta-sharing mirror --repair",
    "sync(at_version=...)": "delta-sharing mirror --version",
    "sync()": "delta-sharing mirror",
    "pass TransportOptions(allow_http=True)": "give --option allow_http=true",
    "TransportOptions(allow_http=True)": "--option allow_http=true",
    "TransportOptions(ca_bundle=...)": "--option ca_bundle=FILE",
    "TransportOptions(proxies=...)": "--option proxies=JSON",
    "TransportOptions.": "--option ",
    "starting_version='snapshot'": "--start snapshot",
    "starting_version='latest'": "--start latest",
    "starting_version": "--from",
    "ending_version": "--to",
    "starting_timestamp: ": "--from: ",
    "ending_timestamp: ": "--to: ",
    "timestamp: '": "--timestamp: '",
    "mode='apply'": "--mode apply",
    "mode='append'": "--mode append",
    "columns=[...]": "--columns",
    "columns names": "--columns names",
    "filters names": "--filter names",
    "filters: ": "--filter: ",
    "filters is an empty text": "--filter is empty",
    ", or pass None, for all rows": ", or give a condition such as \"region = 'Europe'\"",
}
_PYTHON: Final = re.compile("|".join(map(re.escape, _FOR_PYTHON)))
_DEBUG: Final = "delta_sharing_client.debug"
_BROKEN_PIPE: Final = 141
_INTERRUPTED: Final = 130


def examples(*lines: str) -> str:
    """Return the end of a help text: commands, one per line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def _remember_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        logger = logging.getLogger("delta_sharing_client")  # at this level errors keep the frames of the package
        context.find_root().call_on_close(partial(logger.setLevel, logger.level))
        logger.setLevel(logging.DEBUG)
        context.find_root().meta[_DEBUG] = True


def _debug_option() -> click.Option:
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        callback=_remember_debug,
        help="Show the traceback of an error.",
    )


class Command(click.Command):
    """A command with the option `--debug`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())


class CommandGroup(click.Group):
    """A group whose commands report an error as one line on stderr, and exit with its code."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        if sys.stdout is None:
            raise click.ClickException("stdout is closed: redirect it to a file, or to /dev/null")
        # Without a handler, logging would write warnings to stderr, besides the line of the error.
        logging.getLogger("delta_sharing_client").addHandler(logging.NullHandler())
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()
            except (click.ClickException, click.Abort, click.exceptions.Exit) as error:
                if isinstance(error, click.ClickException):
                    vars(error)["message"] = printable(error.message, "\n")  # click declares it as final
                raise
            except BrokenPipeError:
                _discard_stdout()
                ctx.exit(_BROKEN_PIPE)
            except BaseException as error:  # whatever happens, a program sees one line and a code
                if _is_interrupt(error):
                    echo("Stopped.", err=True)
                    ctx.exit(_INTERRUPTED)
                if not isinstance(error, Exception):
                    raise
                _fail(ctx, error)
            return result


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error; an interrupted import may raise another one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _fail(context: click.Context, error: Exception) -> NoReturn:
    if context.find_root().meta.get(_DEBUG):
        echo(traceback.format_exc(), err=True, nl=False)
    message = for_command_line(_one_line(str(error) or type(error).__name__), context.invoked_subcommand)
    if not isinstance(error, errors.DeltaSharingError | OSError | ValueError):
        message = f"unexpected {type(error).__name__}: {message} (--debug shows the traceback)"
    echo(f"Error: {message}", err=True)
    context.exit(next((code for kinds, code in EXIT_CODES if isinstance(error, kinds)), 1))


def for_command_line(message: str, command: str | None = None) -> str:
    """Return a message with the options, of a command, and the commands for the Python calls that it names."""
    start = {"starting_version": "--start"} if command == "pull" else {}
    return _PYTHON.sub(lambda match: (_FOR_PYTHON | start)[match[0]], message)


def _one_line(text: str) -> str:
    return message_text(" ".join(text.split()))


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    echo(f"Warning: {_one_line(str(message))}", err=True)


def _discard_stdout() -> None:
    """Let the interpreter's last flush write to nowhere, because the reader of the pipe has gone."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
