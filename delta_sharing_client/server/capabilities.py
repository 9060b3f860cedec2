"""The capabilities header, and the choice of the response format ("Delta Sharing Capabilities Header")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from delta_sharing_client.log import Metadata, Protocol
from delta_sharing_client.server.options import ServerOptions
from delta_sharing_client.server.problems import bad_request

HEADER: Final = "delta-sharing-capabilities"

PARQUET: Final = "parquet"
DELTA: Final = "delta"

# The newest reader version of the Delta protocol.
_READER_VERSION: Final = 3
# Features whose requirements concern readers of the log, not of data files.
_LOG_ONLY: Final = {"v2checkpoint", "vacuumprotocolcheck", "catalogmanaged", "catalogowned-preview"}


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The capabilities of a client; everything in lower case.

    Attributes:
        formats: the accepted response formats.
        reader_features: the supported reader features in delta format.
        end_stream_action: whether to send an EndStreamAction.
        asynchronous: whether client and server support asynchronous queries.
    """

    formats: tuple[str, ...] = (PARQUET,)
    reader_features: tuple[str, ...] = ()
    end_stream_action: bool = False
    asynchronous: bool = False

    @classmethod
    def parse(cls, header: str | None, options: ServerOptions) -> Capabilities:
        """Parse the request's header; a server with `prefer_format="parquet"` supports one format only."""
        values: dict[str, tuple[str, ...]] = {}
        for capability in (header or "").lower().split(";"):
            key, _, value = capability.partition("=")
            values[key.strip()] = tuple(part.strip() for part in value.split(",") if part.strip())
        knows_formats = options.prefer_format != PARQUET
        return cls(
            formats=(values.get("responseformat") or (PARQUET,)) if knows_formats else (PARQUET,),
            reader_features=values.get("readerfeatures", ()) if knows_formats else (),
            end_stream_action=values.get("includeendstreamaction") == ("true",) and options.send_end_stream_action,
            asynchronous=values.get("asyncquery") == ("true",)
            and (options.query_time is not None or options.imitate is not None),
        )

    def echo(self, chosen: str) -> str:
        """Return the header of a response in the format `chosen`."""
        parts = [f"responseformat={chosen}"]
        if chosen == DELTA and self.reader_features:
            parts.append("readerfeatures=" + ",".join(self.reader_features))
        if self.end_stream_action:
            parts.append("includeendstreamaction=true")
        if self.asynchronous:
            parts.append("asyncquery=true")
        return ";".join(parts)


def choose_format(
    capabilities: Capabilities,
    protocols: Iterable[tuple[Protocol, Metadata]],
    table_name: str,
    options: ServerOptions,
) -> str:
    """Return the response format of an answer for all protocols and metadata that it covers.

    Raises:
        Problem: 400, with the features that the client does not support.
    """
    formats = [name for name in capabilities.formats if name in (PARQUET, DELTA)]
    if not formats:
        raise bad_request("responseformat must name parquet, delta or both.")
    needed: set[str] = set()
    reader_version = 1
    for protocol, metadata in protocols:
        needed |= _needed_features(protocol, metadata)
        reader_version = max(reader_version, protocol.min_reader_version)
    newest_plain = 1 if options.imitate == "reference" else _READER_VERSION
    plain = reader_version <= newest_plain and all(feature.lower() in _LOG_ONLY for feature in needed)
    if DELTA in formats and not (plain and PARQUET in formats and options.prefer_format != DELTA):
        # The client names features in lower case; a preview counts as its feature.
        known = {feature.removesuffix("-preview") for feature in capabilities.reader_features}
        missing = sorted(f for f in needed if f.lower().removesuffix("-preview") not in known)
        if not missing:
            return DELTA
        if not (plain and PARQUET in formats):
            raise bad_request(
                f"Table {table_name} needs the reader features [{', '.join(missing)}], which the client does not "
                f"list in readerfeatures of the {HEADER} header."
            )
    if not plain:
        features = f"the reader features [{', '.join(sorted(needed))}]"
        raise bad_request(
            f"Table {table_name} needs {features if needed else f'reader version {reader_version}'} and cannot be "
            f"read in parquet format: ask for responseformat=delta in the {HEADER} header."
        )
    return PARQUET


def _needed_features(protocol: Protocol, metadata: Metadata) -> set[str]:
    """Return the reader features that a table needs; `columnMapping` only if the table maps its columns."""
    features = set(protocol.reader_features)
    if protocol.min_reader_version == 2:
        features.add("columnMapping")
    if metadata.configuration.get("delta.columnMapping.mode", "none").lower() == "none":
        features.discard("columnMapping")
    return features
