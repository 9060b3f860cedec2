"""`RedactedStruct`: base of structs with fields that are secret, or too long to show."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from delta_sharing_client.representation import representation


class RedactedStruct(Struct, frozen=True):
    """A struct whose repr, and whose display by rich, omits the fields in `redacted_fields`."""

    redacted_fields: ClassVar[frozenset[str]] = frozenset()

    @representation
    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields to show, by name."""
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name not in self.redacted_fields]
