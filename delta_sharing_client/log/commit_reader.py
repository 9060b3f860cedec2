"""Decoding of commit files ("Delta Log Entries"): newline-delimited JSON objects, one action each."""

from __future__ import annotations

from collections.abc import Iterable
from json import JSONDecodeError

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log.actions import REPLAYED, Action, make_action, name_of
from delta_sharing_client.log.store_path import LogPath
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.json_text import has_repeated_keys, is_second_value, loads

#: Fields without an effect on the rows of a table: statistics and texts for people.
_LENIENT = frozenset({"stats", "userMetadata", "predicate", "name", "description"})


def read_commit(file: LogPath) -> list[Action]:
    """Return the actions of a commit, or of a JSON checkpoint, in the order written.

    Raises:
        DeltaLogError: the file is missing, a line is malformed, or there are two different protocols or metadata.
    """
    try:
        with file.open("rb") as lines:
            actions = list(parse_lines(lines, where=file.name))
    except OSError as error:
        raise DeltaLogError(
            f"{file.name} cannot be read: {error.strerror}", path=str(file.parent.parent)
        ) from error
    except DeltaLogError as error:
        raise DeltaLogError(str(error), path=str(file.parent.parent)) from error
    for kind in (Protocol, Metadata):
        found = [action for action in actions if isinstance(action, kind)]
        if any(action.raw != found[0].raw for action in found):
            raise DeltaLogError(
                f"{file.name} has two different {name_of(found[0])} actions, and a version has one",
                path=str(file.parent.parent),
            )
    return actions


def parse_lines(lines: Iterable[bytes], *, where: str) -> Iterable[Action]:
    """Yield the actions of newline-delimited JSON; blank lines are skipped.

    Raises:
        DeltaLogError: a line is not a JSON object with one action, or it is malformed; the message has `where`.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        at = f"{where}, line {number}"
        try:
            wrapper = loads(line, lenient=_LENIENT)
        except (ValueError, RecursionError) as error:
            if isinstance(error, ValueError) and is_second_value(error):
                raise DeltaLogError(f"{at}: two JSON objects in one line; each action has its own line") from error
            is_text = not isinstance(error, JSONDecodeError | RecursionError)
            raise DeltaLogError(f"{at}: {error if is_text else 'not JSON'}") from error
        if not isinstance(wrapper, dict):
            raise DeltaLogError(f"{at}: not a JSON object")
        present = {name: raw for name, raw in wrapper.items() if raw is not None}
        replayed = [name for name in present if name in REPLAYED]
        if len(replayed) > 1:
            named = ", ".join(replayed)
            raise DeltaLogError(f"{at}: the object has {len(replayed)} actions ({named}) instead of one")
        for name, raw in present.items():
            if line.count(b'"%s"' % name.encode()) > 1 and has_repeated_keys(line):
                raise DeltaLogError(f"{at}: the object has the action {name!r} twice")
            yield make_action(name, raw, where=at)
