"""Names of the official client that have no counterpart here."""

from __future__ import annotations

from functools import partial
from typing import Final, NoReturn

_FILES: Final = "SharingClient(profile).table(name).scan() lists and reads files"
_REMEDIES: Final = {
    "converter": dict.fromkeys(
        ("get_empty_table", "to_converter", "to_converters"), "columns have the types of the table's schema"
    ),
    "protocol": {
        **dict.fromkeys(("AddCdcFile", "AddFile", "FileAction", "RemoveFile"), _FILES),
        "CdfOptions": "SharingClient(profile).table(name).changes(...) reads changes",
    },
    "reader": {"DeltaSharingReader": _FILES},
    "rest_client": {
        "DataSharingRestClient": "SharingClient has a method for each request",
        **dict.fromkeys(
            ("ListAllTablesResponse", "ListSchemasResponse", "ListSharesResponse", "ListTablesResponse"),
            "the methods of SharingClient return lists",
        ),
        **dict.fromkeys(("ListFilesInTableResponse", "ListTableChangesResponse"), _FILES),
        **dict.fromkeys(
            ("QueryTableMetadataResponse", "QueryTableVersionResponse"),
            "SharingClient(profile).table(name) has methods for version and metadata",
        ),
    },
}


def missing(module: str) -> partial[NoReturn]:
    """Return the `__getattr__` of a module of the official client, which raises an error for each name."""
    return partial(_missing, module)


def _missing(module: str, name: str) -> NoReturn:
    remedy = _REMEDIES[module].get(name)
    if remedy is None:
        raise AttributeError(f"module 'delta_sharing.{module}' has no attribute {name!r}")
    raise ImportError(
        f"delta_sharing.{module}.{name} of the official client has no counterpart in delta_sharing_client, which "
        f"stands in for it here (install_as_delta_sharing): {remedy}",
        name=f"delta_sharing.{module}",
    )
