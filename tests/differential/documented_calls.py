"""The documented calls of the official client, on whichever package `import delta_sharing` finds.

    python documented_calls.py profile output.pickle [--ours]

runs them in the environment of the official client, or with `--ours` in that of this package, whose
`install_as_delta_sharing` it calls first. The results are plain Python values.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plain_values import frame_columns

ORDERS = "retail.sales.orders"
FUNCTIONS = (
    *("get_table_metadata", "get_table_protocol", "get_table_version", "load_as_pandas", "load_as_spark"),
    *("load_table_changes_as_pandas", "load_table_changes_as_spark"),
)
HINT = json.dumps(
    {
        "op": "equal",
        "children": [
            {"op": "column", "name": "order_date", "valueType": "date"},
            {"op": "literal", "value": "2024-01-03", "valueType": "date"},
        ],
    }
)


def calls(profile: str) -> dict[str, Callable[[], Any]]:
    """Each documented call by its description."""
    import delta_sharing
    from delta_sharing.protocol import DeltaSharingProfile, Schema, Share, Table

    orders = f"{profile}#{ORDERS}"
    fields = json.loads(Path(profile).read_text("utf-8"))
    client = delta_sharing.SharingClient(profile)
    loads: dict[str, dict[str, Any]] = {
        "a table": {},
        "the first rows": {"limit": 10},
        "no rows": {"limit": 0},
        "a version": {"version": 1},
        "hints": {"jsonPredicateHints": HINT},
        "delta format": {"use_delta_format": True},
        "parquet format": {"use_delta_format": False},
        "delta format and a limit": {"use_delta_format": True, "limit": 10},
        "batches": {"use_delta_format": True, "convert_in_batches": True},
    }
    changes: dict[str, dict[str, Any]] = {
        "from a version": {"starting_version": 6},
        "between versions": {"starting_version": 5, "ending_version": 6},
        "from a version, parquet format": {"starting_version": 6, "use_delta_format": False},
        "delta format": {"starting_version": 6, "ending_version": 7, "use_delta_format": True},
        "between versions, batches": {"starting_version": 6, "ending_version": 7, "convert_in_batches": True},
    }

    def load(arguments: dict[str, Any]) -> Callable[[], Any]:
        return lambda: frame_columns(delta_sharing.load_as_pandas(orders, **arguments))

    def load_changes(arguments: dict[str, Any]) -> Callable[[], Any]:
        return lambda: frame_columns(delta_sharing.load_table_changes_as_pandas(orders, **arguments))

    def shares_of(source: Any) -> Callable[[], Any]:
        return lambda: [share.name for share in delta_sharing.SharingClient(source()).list_shares()]

    def metadata(**arguments: Any) -> Any:
        found = delta_sharing.get_table_metadata(orders, **arguments)
        names = ("id", "name", "description", "schema_string", "version", "size", "num_files")
        return {name: getattr(found, name) for name in names} | {
            "partition_columns": list(found.partition_columns),
            "provider": found.format.provider,
            "configuration": dict(found.configuration),
        }

    def protocol(**arguments: Any) -> Any:
        found = delta_sharing.get_table_protocol(orders, **arguments)
        return found.min_reader_version, list(found.reader_features or ())

    return {
        "SharingClient(path)": shares_of(lambda: profile),
        "SharingClient(Path)": shares_of(lambda: Path(profile)),
        "SharingClient(open file)": shares_of(lambda: Path(profile).open("rb")),
        "SharingClient(DeltaSharingProfile.read_from_file)": shares_of(
            lambda: DeltaSharingProfile.read_from_file(profile)
        ),
        "SharingClient(DeltaSharingProfile.from_json)": shares_of(lambda: DeltaSharingProfile.from_json(fields)),
        "SharingClient(DeltaSharingProfile(...))": shares_of(
            lambda: DeltaSharingProfile(1, fields["endpoint"], fields["bearerToken"])
        ),
        "list_shares": lambda: [share.name for share in client.list_shares()],
        "list_schemas": lambda: [(s.share, s.name) for s in client.list_schemas(Share("retail"))],
        "list_tables": lambda: [
            (t.share, t.schema, t.name) for t in client.list_tables(Schema("sales", "retail"))
        ],
        "list_all_tables": lambda: sorted((t.share, t.schema, t.name) for t in client.list_all_tables()),
        "Table(name, share, schema)": lambda: Table("t", "s", "d").schema,
        "get_table_version": lambda: delta_sharing.get_table_version(orders),
        "get_table_version of a time": lambda: delta_sharing.get_table_version(orders, "2000-01-01T00:00:00Z"),
        "get_table_metadata": metadata,
        "get_table_metadata, parquet format": lambda: metadata(use_delta_format=False),
        "get_table_protocol": protocol,
        "get_table_protocol, parquet format": lambda: protocol(use_delta_format=False),
        "signatures": lambda: {name: _signature(getattr(delta_sharing, name)) for name in FUNCTIONS},
        "__all__": lambda: sorted(delta_sharing.__all__),
        **{f"load_as_pandas: {what}": load(arguments) for what, arguments in loads.items()},
        **{f"load_table_changes_as_pandas: {what}": load_changes(given) for what, given in changes.items()},
        "mistake: no table": lambda: delta_sharing.load_as_pandas(f"{profile}#retail.sales.nope"),
        "mistake: not a table URL": lambda: delta_sharing.load_as_pandas("retail.sales"),
        "mistake: no profile": lambda: delta_sharing.SharingClient("missing.share"),
        "mistake: both version and time": lambda: delta_sharing.load_as_pandas(
            orders, version=1, timestamp="2024-01-01T00:00:00Z"
        ),
        "mistake: a version that does not exist": lambda: delta_sharing.load_as_pandas(orders, version=999),
        "mistake: a new profile": lambda: DeltaSharingProfile.from_json({**fields, "shareCredentialsVersion": 9}),
    }


def _signature(function: Any) -> list[tuple[str, Any]]:
    """Names and defaults of the parameters that may be given by position."""
    parameters = inspect.signature(function).parameters.values()
    return [
        (parameter.name, None if parameter.default is parameter.empty else parameter.default)
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]


class Raised(str):
    """The class of the error that a call raised."""

    __slots__ = ()


def main(profile: str, output: str, *which: str) -> None:
    warnings.simplefilter("ignore")
    if which:
        from delta_sharing_client import install_as_delta_sharing

        install_as_delta_sharing()
    results: dict[str, Any] = {}
    for name, call in calls(profile).items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the official client prints to stdout
                results[name] = call()
        except Exception as error:  # noqa: BLE001 - what a call raises is its result
            results[name] = Raised(type(error).__name__)
    with Path(output).open("wb") as file:
        pickle.dump(results, file)


if __name__ == "__main__":
    import documented_calls  # so that the pickle names the class by this module, and not by `__main__`

    documented_calls.main(*sys.argv[1:])
