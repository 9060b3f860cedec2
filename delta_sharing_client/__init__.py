"""A Python client for Delta Sharing: shared tables as pandas frames and Arrow tables.

    import delta_sharing_client as ds

    ds.load_as_pandas("config.share#share.schema.table")

Names are imported on first use, because pandas and pyarrow are slow to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from delta_sharing_client._version import __version__

if TYPE_CHECKING:
    from delta_sharing_client import errors, server, sinks, spark
    from delta_sharing_client.api import (
        get_table_metadata,
        get_table_protocol,
        get_table_version,
        load_as_arrow,
        load_as_duckdb,
        load_as_pandas,
        load_as_polars,
        load_as_spark,
        load_table_changes_as_arrow,
        load_table_changes_as_pandas,
        load_table_changes_as_spark,
        scan_polars,
    )
    from delta_sharing_client.auth.profile import ProfileWarning
    from delta_sharing_client.auth.user_tokens import SignIn, sign_in, sign_out, signed_in
    from delta_sharing_client.cdf.batch import ChangeBatch
    from delta_sharing_client.cdf.poller import ChangePoller
    from delta_sharing_client.client import SharingClient
    from delta_sharing_client.errors import DeltaSharingError
    from delta_sharing_client.iceberg.catalog import IcebergCatalog
    from delta_sharing_client.iceberg.table import IcebergScan, IcebergTable
    from delta_sharing_client.model.actions import Metadata, Protocol
    from delta_sharing_client.model.names import Schema, Share, Table
    from delta_sharing_client.model.profile import Profile
    from delta_sharing_client.official import install_as_delta_sharing
    from delta_sharing_client.options import TransportOptions
    from delta_sharing_client.table.delta_log import DeltaLog
    from delta_sharing_client.table.shared_table import SharedTable
    from delta_sharing_client.table.table_changes import TableChanges
    from delta_sharing_client.table.table_scan import TableScan

#: Modules of the public classes. Functions are in `api`; a public module is a name of its own.
_MODULES = {
    "ChangeBatch": "cdf.batch",
    "ChangePoller": "cdf.poller",
    "DeltaLog": "table.delta_log",
    "DeltaSharingError": "errors",
    "IcebergCatalog": "iceberg.catalog",
    "IcebergScan": "iceberg.table",
    "IcebergTable": "iceberg.table",
    "Metadata": "model.actions",
    "Profile": "model.profile",
    "ProfileWarning": "auth.profile",
    "Protocol": "model.actions",
    "Schema": "model.names",
    "Share": "model.names",
    "SharedTable": "table.shared_table",
    "SharingClient": "client",
    "SignIn": "auth.user_tokens",
    "Table": "model.names",
    "TableChanges": "table.table_changes",
    "TableScan": "table.table_scan",
    "TransportOptions": "options",
    "install_as_delta_sharing": "official",
    "sign_in": "auth.user_tokens",
    "sign_out": "auth.user_tokens",
    "signed_in": "auth.user_tokens",
}

__all__ = [
    "ChangeBatch",
    "ChangePoller",
    "DeltaLog",
    "DeltaSharingError",
    "IcebergCatalog",
    "IcebergScan",
    "IcebergTable",
    "Metadata",
    "Profile",
    "ProfileWarning",
    "Protocol",
    "Schema",
    "Share",
    "SharedTable",
    "SharingClient",
    "SignIn",
    "Table",
    "TableChanges",
    "TableScan",
    "TransportOptions",
    "__version__",
    "errors",
    "get_table_metadata",
    "get_table_protocol",
    "get_table_version",
    "install_as_delta_sharing",
    "load_as_arrow",
    "load_as_duckdb",
    "load_as_pandas",
    "load_as_polars",
    "load_as_spark",
    "load_table_changes_as_arrow",
    "load_table_changes_as_pandas",
    "load_table_changes_as_spark",
    "scan_polars",
    "server",
    "sign_in",
    "sign_out",
    "signed_in",
    "sinks",
    "spark",
]


if not TYPE_CHECKING:  # type checkers would accept every misspelt name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "api" if name.startswith(("get_", "load_", "scan_")) else _MODULES.get(name, name)
        module = import_module(f"{__name__}.{home}")
        value = module if home == name else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
