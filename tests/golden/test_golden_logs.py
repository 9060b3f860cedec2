"""The golden tables as rows of the snapshots of their own logs, without a server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_golden import READABLE, TABLES, VERSIONS, Case, check, choose, rows_of

import delta_sharing_client as ds
from delta_sharing_client.errors import UnsupportedFeatureError


def log_of(case: Case) -> ds.DeltaLog:
    return ds.DeltaLog.for_table(TABLES / case.name / "table")


@pytest.mark.parametrize(("case", "version"), VERSIONS)
def test_rows_of_each_version(case: Case, version: int) -> None:
    if case.missing(version):
        with pytest.raises(UnsupportedFeatureError):
            log_of(case).snapshot_at(version).to_arrow()
        return
    snapshot = log_of(case).snapshot_at(version)
    check(snapshot.to_arrow(variant="json"), case, version)
    assert snapshot.count() == case.facts["versions"][str(version)]["rows"]


@pytest.mark.parametrize("case", READABLE)
def test_the_files_of_a_filter_have_all_of_its_rows(case: Case) -> None:
    snapshot = log_of(case).snapshot()
    rows = snapshot.to_arrow(variant="json")
    for name in rows.column_names:
        if "variant" in str(snapshot.metadata.schema[name].type) or (chosen := choose(rows[name])) is None:
            continue
        filters = [(name, "=", chosen[1])]
        files = snapshot.files(filters=filters)
        assert set(files) <= set(snapshot.files)
        scan = snapshot.scan(filters=filters, variant="json")
        found = scan.to_arrow()
        assert found.num_rows >= 1
        assert rows_of(replace(scan, _add_files=files).to_arrow()) == rows_of(found)
