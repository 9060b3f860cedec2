"""The public API has the signatures that `tests/public_signatures.txt` records.

After an intended change, `python tests/test_public_signatures.py` rewrites the file. A removed or renamed
entry is a breaking change; CONTRIBUTING.md has the deprecation policy.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import delta_sharing_client as ds

SNAPSHOT = Path(__file__).with_name("public_signatures.txt")


def lines() -> list[str]:
    """One line for each public function, class, method and property of the package."""
    return sorted(set(_of_module(ds, "ds")))


def _of_module(module: ModuleType, prefix: str) -> Iterator[str]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    for name in names:
        value = getattr(module, name)
        if not hasattr(module, "__all__") and getattr(value, "__module__", None) != module.__name__:
            continue  # imported there
        if isinstance(value, ModuleType):
            if value.__name__.startswith("delta_sharing_client."):
                yield from _of_module(value, f"{prefix}.{name}")
        elif inspect.isclass(value) and value.__module__.startswith("delta_sharing_client"):
            yield from _of_class(value, f"{prefix}.{name}")
        elif inspect.isfunction(value) and value.__module__.startswith("delta_sharing_client"):
            yield f"{prefix}.{name}{_signature(value)}"


def _of_class(kind: type, prefix: str) -> Iterator[str]:
    takes_anything = issubclass(kind, BaseException) and "__init__" not in vars(kind)
    yield f"{prefix}(...)" if takes_anything else f"{prefix}{_signature(kind)}"
    for name in dir(kind):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(kind, name)
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if not getattr(function, "__module__", "").startswith("delta_sharing_client"):
            continue
        if isinstance(member, property):
            yield f"{prefix}.{name}: {inspect.signature(function).return_annotation}"
        elif inspect.isfunction(function):
            yield f"{prefix}.{name}{_signature(function)}"


def _signature(value: Any) -> str:
    text = str(inspect.signature(value)).replace("'", "")
    # Defaults that name this machine's versions or an address, and what Python releases write differently.
    text = re.sub(r"<(\w+)[^<>]* at 0x[0-9a-f]+>", r"<\1>", text)
    return re.sub(r"<factory>", "...", text).replace("typing.", "")


def test_the_public_signatures_are_those_recorded() -> None:
    recorded = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    assert lines() == recorded, f"the public API changed: run python {Path(__file__).name} if that is intended"


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(lines()) + "\n", encoding="utf-8")
