"""Misused arguments raise one readable sentence."""

from __future__ import annotations

import pickle

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

import delta_sharing_client as ds
from delta_sharing_client.errors import DataError, FileGoneError, FilterError, ProfileError
from delta_sharing_client.server import SharingServer


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slips")
    rows = pa.table(
        {"order id": [1, 2, 3], "t": pa.array([0, 1, None], pa.timestamp("us")), "p": ["a/b", "c d=e", None]}
    )
    write_deltalake(folder / "plain", rows, partition_by=["p"])
    # Some writers set the property and the physical names without the table feature, and map nothing.
    write_deltalake(
        folder / "unmapped",
        rows,
        partition_by=["p"],
        configuration={
            "delta.columnMapping.mode": "name",
            "delta.minReaderVersion": "2",
            "delta.minWriterVersion": "5",
        },
    )
    with SharingServer(folder) as server, ds.SharingClient(server.profile) as client:
        yield client


def scan(client, table="plain", **subject):
    return client.table(f"local.default.{table}").scan(**subject)


@pytest.mark.parametrize("response_format", ["auto", "delta"])
def test_inactive_column_mapping_is_ignored(served, response_format):
    table = served.table("local.default.unmapped")
    assert table.metadata(response_format="delta").configuration["delta.columnMapping.mode"] == "name"
    assert not table.protocol(response_format="delta").maps_columns
    frame = scan(served, "unmapped", response_format=response_format).to_pandas().sort_values("order id")
    assert frame["order id"].tolist() == [1, 2, 3]
    kept = scan(served, "unmapped", filters=[("order id", ">", 1)], response_format=response_format)
    assert sorted(kept.to_pandas()["order id"]) == [2, 3]
    kept = scan(served, "unmapped", filters=[("p", "=", "a/b")], response_format=response_format)
    assert kept.to_pandas()["order id"].tolist() == [1]


@pytest.mark.parametrize("filters", [pc.field("order id") < 3, {"order id": 1}, 5])
def test_filters_of_another_library_raise(served, filters):
    with pytest.raises(FilterError, match="filters takes a list of"):
        scan(served, filters=filters)


@pytest.mark.parametrize("filters", [("order id", "=", 1), ["order id", "=", 1]])
def test_single_filter_term_without_a_list(served, filters):
    with pytest.raises(FilterError, match=r"write \[\('order id', '=', \.\.\.\)\]"):
        scan(served, filters=filters)


@pytest.mark.parametrize("filters", ["", "  \n"])
def test_empty_filter_text_raises(served, filters):
    with pytest.raises(FilterError, match="empty text; leave it out"):
        scan(served, filters=filters)


@pytest.mark.parametrize("value", [(1, 2), [1, 2], {1}, range(2)])
def test_comparison_with_several_values_raises(served, value):
    with pytest.raises(FilterError, match=r"takes one value, not a \w+; write \('order id', 'in', \[\.\.\.\]\)"):
        scan(served, filters=[("order id", "=", value)]).to_arrow()
    with pytest.raises(FilterError, match=r"write \('order id', 'not in', "):
        scan(served, filters=[("order id", "!=", value)]).to_arrow()


@pytest.mark.parametrize(
    "text", ['"order id" = 3', "'order id' < 3", "3 <> 'order id'", "'p' = 'a/b'", "\"p\" = 'a/b'"]
)
def test_quoted_column_is_a_text_literal(served, text):
    with pytest.raises(FilterError, match=r"quotes delimit strings; write the column as (`order id`|p)"):
        scan(served, filters=text).to_arrow()


@pytest.mark.parametrize("value", ["delta", "parquet", 1, 0, "True"])
def test_use_delta_format_must_be_a_bool(tmp_path, value):
    profile = tmp_path / "p.share"
    profile.touch(mode=0o600)
    profile.write_text('{"shareCredentialsVersion": 1, "endpoint": "http://127.0.0.1:9/", "bearerToken": "t"}')
    for load in (ds.load_as_pandas, ds.load_as_arrow, ds.get_table_metadata, ds.get_table_protocol):
        with pytest.raises(TypeError, match=f"use_delta_format is True, False or None, not {value!r}"):
            load(f"{profile}#local.default.plain", use_delta_format=value)


def test_blanks_around_a_table_name(served, tmp_path):
    assert served.table(" local.default.plain\n").scan().count() == 3


def test_a_damaged_file_is_named_with_its_table(tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"a": [1, 2, 3]}))
    (file,) = (tmp_path / "t").glob("*.parquet")
    with SharingServer(tmp_path) as server, ds.SharingClient(server.profile) as client:
        loaded = client.table("local.default.t").scan()
        file.write_bytes(bytes(file.stat().st_size))
        with pytest.raises(DataError, match=r"^table local\.default\.t, file [0-9a-f]{64}: ") as damaged:
            loaded.to_arrow()
        file.unlink()
        with pytest.raises(FileGoneError, match=r"^table local\.default\.t, file [0-9a-f]{64}: ") as gone:
            loaded.to_pandas(progress=False)
    for error in (damaged.value, gone.value):
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.table, again.file_id) == (str(error), "local.default.t", error.file_id)


def test_a_limit_beyond_all_rows(served):
    assert len(scan(served, limit=10**30).to_pandas()) == 3


def test_set_of_columns_raises(served):
    with pytest.raises(TypeError, match="a set has no order"):
        scan(served, columns={"p", "order id"})


def test_malformed_timestamp_raises(served):
    with pytest.raises(ValueError, match="NaT"):
        scan(served, timestamp=pd.NaT)


def test_hints_must_be_text(served):
    with pytest.raises(TypeError, match="JSON text"):
        scan(served, json_predicate_hints={"op": "equal"})


def test_options_must_be_transport_options(served):
    with pytest.raises(TypeError, match="TransportOptions"):
        ds.SharingClient(served.profile, options={"read_timeout": 3})


def test_table_url_instead_of_a_profile_raises():
    with pytest.raises(ProfileError, match=r"no such file in .*a table URL is an argument of load_as_pandas"):
        ds.SharingClient("config.share#a.b.c")


@pytest.mark.parametrize("name", ["My Table", "with.dot"])
def test_unusable_directory_is_shown_in_full(tmp_path, name):
    write_deltalake(tmp_path / name, pa.table({"a": [1]}))
    with pytest.raises(ValueError, match="cannot be shared") as caught:
        SharingServer(tmp_path).start()
    assert str(tmp_path / name) in str(caught.value)
