"""Slips that newcomers make: each is one readable sentence, and none is wrong data."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

import delta_sharing_client as ds
from delta_sharing_client.errors import FilterError, ProfileError
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


def scan(client, table="plain", **what):
    return client.table(f"local.default.{table}").scan(**what)


@pytest.mark.parametrize("response_format", ["auto", "delta"])
def test_column_mapping_that_is_not_in_force_maps_nothing(served, response_format):
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
def test_filters_of_another_library(served, filters):
    with pytest.raises(FilterError, match="filters takes a list of"):
        scan(served, filters=filters)


@pytest.mark.parametrize("filters", [("order id", "=", 1), ["order id", "=", 1]])
def test_a_single_term_that_is_in_no_list(served, filters):
    with pytest.raises(FilterError, match=r"write \[\('order id', '=', \.\.\.\)\]"):
        scan(served, filters=filters)


def test_a_limit_beyond_all_rows(served):
    assert len(scan(served, limit=10**30).to_pandas()) == 3


def test_columns_without_an_order(served):
    with pytest.raises(TypeError, match="a set has no order"):
        scan(served, columns={"p", "order id"})


def test_a_timestamp_that_is_none(served):
    with pytest.raises(ValueError, match="NaT"):
        scan(served, timestamp=pd.NaT)


def test_hints_that_are_no_text(served):
    with pytest.raises(TypeError, match="JSON text"):
        scan(served, json_predicate_hints={"op": "equal"})


def test_options_that_are_none(served):
    with pytest.raises(TypeError, match="TransportOptions"):
        ds.SharingClient(served.profile, options={"read_timeout": 3})


def test_a_table_url_for_a_profile():
    with pytest.raises(ProfileError, match=r"no such file in .*a table URL goes to load_as_pandas"):
        ds.SharingClient("config.share#a.b.c")


@pytest.mark.parametrize("name", ["My Table", "with.dot"])
def test_a_folder_that_cannot_be_a_name_is_shown_whole(tmp_path, name):
    write_deltalake(tmp_path / name, pa.table({"a": [1]}))
    with pytest.raises(ValueError, match="cannot be shared") as caught:
        SharingServer(tmp_path).start()
    assert str(tmp_path / name) in str(caught.value)
