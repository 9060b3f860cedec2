"""Decoding of commit files ("Delta Log Entries"): newline-delimited JSON objects, one action each."""

from __future__ import annotations

from collections.abc import Iterable
from json import JSONDecodeError

from delta_sharing_client.delta.log.actions import Action, make_action
from delta_sharing_client.delta.log.store_path import LogPath
from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.model.json_text import loads

#: Fields without an effect on the rows of a table: statistics and texts for people.
_LENIENT = frozenset({"stats", "userMetadata", "predicate", "name", "description"})


def read_commit(file: LogPath) -> list[Action]:
    """Return the actions of a commit, or of a JSON checkpoint, in the order written.

    Raises:
        DeltaLogError: the file is missing, or a line of it is malformed.
    """
    try:
        with file.open("rb") as lines:
            return list(parse_lines(lines, where=file.name))
    except OSError as error:
        raise DeltaLogError(
            f"{file.name} cannot be read: {error.strerror}", path=str(file.parent.parent)
        ) from error
    except DeltaLogError as error:
        raise DeltaLogError(str(error), path=str(file.parent.parent)) from error


def parse_lines(lines: Iterable[bytes], *, where: str) -> Iterable[Action]:
    """Yield the actions of newline-delimited JSON; blank lines are skipped.

    Raises:
        DeltaLogError: a line is not a JSON object, or an action in it is malformed; the message has `where`.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            wrapper = loads(line, lenient=_LENIENT)
        except (JSONDecodeError, RecursionError) as error:
            raise DeltaLogError(f"{where}, line {number}: not JSON") from error
        except ValueError as error:
            raise DeltaLogError(f"{where}, line {number}: {error}") from error
        if not isinstance(wrapper, dict):
            raise DeltaLogError(f"{where}, line {number}: not a JSON object")
        for name, raw in wrapper.items():
            if raw is not None:
                yield make_action(name, raw, where=f"{where}, line {number}")
