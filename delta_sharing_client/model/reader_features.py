"""Reader features of Delta tables: those that this release supports, and their names for comparison."""

from __future__ import annotations

from typing import Final

#: The newest Delta reader version, and the newest version of the parquet response format, that is known.
NEWEST_READER: Final = {"delta": 3, "parquet": 1}
#: Reader features without an effect on reading listed files.
PASSIVE_FEATURES: Final = frozenset({"timestampntz", "v2checkpoint", "vacuumprotocolcheck", "catalogmanaged"})
#: Reader features that add types which this release does not know: only their columns cannot be read.
UNKNOWN_TYPE_FEATURES: Final = frozenset({"timestampnanos"})
#: Reader features that this release reads.
SUPPORTED_FEATURES: Final = (
    PASSIVE_FEATURES
    | UNKNOWN_TYPE_FEATURES
    | {
        "columnmapping",
        "deletionvectors",
        "geospatial",
        "typewidening",
        "varianttype",
        "variantshredding",
    }
)

#: The features of the capabilities header: with the names of previews, which some servers compare literally.
ADVERTISED_FEATURES: Final = SUPPORTED_FEATURES | {
    "catalogowned-preview",
    "geospatial-dev",
    "geospatial-preview",
    "timestampnanos-preview",
    "typewidening-preview",
    "variantshredding-preview",
    "varianttype-preview",
}

#: Names of preview features that changed by more than their ending.
_EARLIER_NAMES: Final = {"catalogowned": "catalogmanaged"}


def canonical_feature(name: str) -> str:
    """Return a reader feature's name for comparing: lower case, without a ``-preview`` or ``-dev`` ending."""
    folded = name.lower()
    for ending in ("-preview", "-dev"):
        folded = folded.removesuffix(ending)
    return _EARLIER_NAMES.get(folded, folded)
