"""`delta_sharing.delta_sharing`: the module in which the official client defines its functions."""

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
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.names import Schema, Share, Table
from delta_sharing_client.official.protocol import DeltaSharingProfile

__all__ = [
    "DeltaSharingProfile",
    "Metadata",
    "Protocol",
    "Schema",
    "Share",
    "SharingClient",
    "Table",
    "get_table_metadata",
    "get_table_protocol",
    "get_table_version",
    "load_as_pandas",
    "load_as_spark",
    "load_table_changes_as_pandas",
    "load_table_changes_as_spark",
]
