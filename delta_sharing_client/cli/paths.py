"""`LocalPath`: the type of each argument and option of a command that takes a path of this machine."""

from __future__ import annotations

import os
from typing import Any

import click

from delta_sharing_client.paths import local_path


class LocalPath(click.Path):
    """A path of this machine as `delta_sharing_client.paths.local_path` reads it: with `~` and `file:` URLs.

    The arguments are those of `click.Path`; `-` is returned as it is with `allow_dash`.
    """

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return the path; raises `click.BadParameter`, for which click names the option."""
        if value == "-" and self.allow_dash:
            return value
        try:
            path = local_path(value, "it")
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        super().convert(path, param, ctx)  # checks what is there
        return path
