"""docs/configuration.md: its code runs; its tables list every option, default and key."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from test_readme import code, rows, run_blocks, section

import delta_sharing_client as ds
from delta_sharing_client.options import ENVIRONMENT_PREFIX
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.configuration import KEYS, NETWORK_KEYS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
TEXT = PAGE.read_text(encoding="utf-8")
#: The prefix is described in the first section with a table of options.
OPTIONS = section(TEXT, "Options and environment variables").split("\nThese variables")[0]


def test_the_page_runs(workplace: SharingServer) -> None:
    for _ in range(2):
        namespace = run_blocks(PAGE)
        assert len(namespace["frame"]) == 10
        namespace["client"].close()


def shown(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    if type(value) is int and value > 10_000:
        return f"{value // 2**20} MiB"
    if callable(value):
        return "the versions of package and Python" if value is not dict else "none"
    return "none" if value is None else str(value)


def test_every_option_is_listed_with_its_default() -> None:
    listed = {code(name)[0]: default for name, _, default, _ in rows(OPTIONS)}
    assert listed == {item.name: shown(item.metadata["default"]) for item in fields(ds.TransportOptions)}
    assert f"`{ENVIRONMENT_PREFIX}`" in OPTIONS


@pytest.mark.parametrize("row", rows(OPTIONS), ids=lambda row: row[0].strip("`"))
def test_the_texts_of_the_table_are_accepted(row: list[str]) -> None:
    name = code(row[0])[0]
    for text in code(row[3]):
        ds.TransportOptions.from_texts({name: text})


def test_the_exported_variables_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.findall(r"^export (\w+)=(.*)$", OPTIONS, re.MULTILINE)
    for name, text in found:
        monkeypatch.setenv(name, text.strip("'"))
    assert ds.TransportOptions(connect_timeout=timedelta(seconds=1)).memory_budget == 256 * 2**20
    assert len(found) == 3


def test_every_key_of_the_configuration_is_listed_with_its_options() -> None:
    listed = {code(key)[0]: code(meaning) for key, meaning in rows(section(TEXT, "Spark"))}
    assert set(listed) == set(KEYS)
    for key, (_, names) in NETWORK_KEYS.items():
        assert set(names) <= set(listed[key]), key
