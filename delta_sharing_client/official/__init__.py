"""The names of the official client's package `delta_sharing`, with the functions and classes of this package.

`install_as_delta_sharing` lets ``import delta_sharing`` import this package.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any, Final

from delta_sharing_client.api import (
    get_table_metadata,
    get_table_protocol,
    get_table_version,
    load_as_pandas,
    load_as_spark,
    load_table_changes_as_pandas,
    load_table_changes_as_spark,
)
from delta_sharing_client.client import SharingClient
from delta_sharing_client.model.names import Schema, Share, Table
from delta_sharing_client.official.missing import missing

__all__ = [
    "Schema",
    "Share",
    "SharingClient",
    "Table",
    "__version__",
    "get_table_metadata",
    "get_table_protocol",
    "get_table_version",
    "load_as_pandas",
    "load_as_spark",
    "load_table_changes_as_pandas",
    "load_table_changes_as_spark",
]

#: The release of the official client whose names these modules have.
__version__ = "1.4.2"
_NAME: Final = "delta_sharing"


def _module(name: str, description: str, names: Mapping[str, Any]) -> ModuleType:
    """Return a module of the official client that needs no file here."""
    module = module_from_spec(ModuleSpec(f"{__name__}.{name}", None))
    vars(module).update(names, __doc__=f"`{_NAME}.{name}`{description}.")
    return module


_MODULES: Final = {
    "version": _module("version", "", {"__version__": __version__}),
    **{
        name: _module(name, ", of which nothing has a counterpart here", {"__getattr__": missing(name)})
        for name in ("converter", "reader", "rest_client")
    },
}


def install_as_delta_sharing() -> None:
    """Let ``import delta_sharing`` in this process import this package, even if the official client is installed.

    Call it before anything imports `delta_sharing`. Its public functions and classes, `delta_sharing.protocol` and
    `delta_sharing.version` are those of this package. A name without a counterpart raises `ImportError`.

    Raises:
        ImportError: the official client has been imported already.
    """
    if sys.modules.get(_NAME, sys.modules[__name__]) is not sys.modules[__name__]:
        raise ImportError(
            "the official client, delta_sharing, has been imported already: call install_as_delta_sharing() before"
        )
    # Only an entry here makes an import statement of someone else's code find another package.
    sys.modules[_NAME] = sys.modules[__name__]
    for name in ("delta_sharing", "protocol"):
        sys.modules[f"{_NAME}.{name}"] = import_module(f"{__name__}.{name}")
    for name, module in _MODULES.items():
        sys.modules[f"{_NAME}.{name}"] = module
        setattr(sys.modules[_NAME], name, module)
