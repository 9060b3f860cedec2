"""`TableServer`: the embedded server with tables made of frames, for tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from delta_sharing_client.errors import MissingDependencyError
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.paths import local_path
from delta_sharing_client.server import SharingServer
from delta_sharing_client.server.catalog import split_name

if TYPE_CHECKING:
    import pyarrow as pa


class TableServer(SharingServer):
    """An embedded sharing server whose tables tests make of frames, and which fails on request.

        with TableServer(directory) as server:
            server.share("shop.sales.orders", pandas.DataFrame({"id": [1, 2]}))
            server.faults.cut()
            load(server.url("shop.sales.orders"))

    Args:
        directory: an existing directory for the tables and the profile.
        **changes: options of the server, such as `prefer_format="delta"`; see `ServerOptions`.

    Raises:
        MissingDependencyError: the extra `server` is not installed.
    """

    def __init__(self, directory: str | os.PathLike[str], **changes: Any) -> None:
        self._directory = local_path(directory, "directory")
        self._shared: dict[str, Path] = {}
        super().__init__(self._shared, **changes)

    def share(
        self,
        name: str,
        data: Any,
        *,
        mode: Literal["append", "overwrite"] = "append",
        partition_by: str | list[str] | None = None,
    ) -> int:
        """Share a table, or add a version to one that is shared; return the version.

        A new table has a change data feed.

        Args:
            name: `share.schema.table`.
            data: a frame of pandas or polars, an Arrow table, or a dict of columns; or the directory of a Delta
                table, which is shared as it is.
            mode: `append` adds the rows to a table that is shared already, and new columns; `overwrite` replaces
                its rows, and its columns except those of partitions.
            partition_by: the partition columns of a new table.

        Raises:
            MissingDependencyError: deltalake (extra ``testing``) is not installed, and `data` is a frame.
            DeltaTableNotFoundError: the directory has no Delta table.
            TypeError: `data` is something else.
            ValueError: the name is malformed, or a directory is given for a table that is shared already.
        """
        split_name(name)
        if isinstance(data, str | os.PathLike):
            if name in self._shared:
                raise ValueError(f"{name!r} is shared already; a directory cannot replace it")
            path = local_path(data, "data")
        else:
            path = self._shared.get(name, self._directory / f"table-{len(self._shared)}")
            _write(path, _arrow(data), mode, partition_by)
        version = DeltaLog.for_table(path).latest_version()
        self._shared[name] = path
        return version

    def path(self, name: str) -> Path:
        """Return the directory of a shared table, which deltalake and others may change."""
        return self._shared[name]

    @property
    def profile_path(self) -> Path:
        """The path of a profile file for the server."""
        return self.write_profile(self._directory / "config.share")

    def url(self, name: str) -> str:
        """Return the URL of a table, `<profile>#<share>.<schema>.<table>`."""
        return f"{self.profile_path}#{name}"


def _write(
    path: Path, rows: pa.Table, mode: Literal["append", "overwrite"], partition_by: str | list[str] | None
) -> None:
    """Write a version of a table."""
    try:
        import deltalake
    except ImportError:
        raise MissingDependencyError(
            package="deltalake", extra="testing", purpose="Sharing a frame with a test"
        ) from None
    deltalake.write_deltalake(
        path,
        rows,
        mode=mode,
        schema_mode="overwrite" if mode == "overwrite" else "merge",
        partition_by=partition_by,
        configuration=None if path.exists() else {"delta.enableChangeDataFeed": "true"},
    )


def _arrow(data: Any) -> pa.Table:
    """Return a frame as an Arrow table."""
    import pyarrow as pa

    try:
        return pa.table(data)
    except TypeError:
        raise TypeError(
            f"share takes a frame, an Arrow table, a dict or a directory, not {type(data).__name__}"
        ) from None
