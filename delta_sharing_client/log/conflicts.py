"""Conflicts of a commit with commits of other writers since its transaction began ("Mutual Exclusion")."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from delta_sharing_client.log.actions import Action, OtherAction, Transaction
from delta_sharing_client.log.snapshot import Commit
from delta_sharing_client.model.actions import AddFile, CdcFile, Metadata, Protocol, RemoveFile


def conflict(actions: Sequence[Action], winners: Iterable[Commit]) -> str | None:
    """Return why a commit cannot be repeated on top of others; None if it conflicts with nothing.

    Only a commit that adds files, and reads none, can be repeated: whether removed files were chosen by rows that
    others changed is unknown.
    """
    for action in actions:
        if isinstance(action, Protocol | Metadata):
            return "it changes the protocol or the metadata"
        if isinstance(action, RemoveFile):
            return "it removes files"
        if isinstance(action, CdcFile):
            return "it has change data of rows that it read"
    ours = set(filter(None, map(_identity, actions)))
    for winner in winners:
        for action in winner.actions:
            if isinstance(action, Protocol | Metadata):
                return f"version {winner.version} changed the protocol or the metadata"
            if (identity := _identity(action)) in ours:
                return f"version {winner.version} has the same {identity[0]} {identity[1]!r}"
    return None


def _identity(action: Action) -> tuple[str, str] | None:
    """Return what two concurrent commits must not both have: a file, an application, a domain."""
    if isinstance(action, AddFile | RemoveFile):
        return "file", action.path
    if isinstance(action, Transaction):
        return "application", action.app_id
    if isinstance(action, OtherAction) and action.name == "domainMetadata":
        return "domain", str(action.raw.get("domain"))
    return None
