"""docs/resilience.md and SECURITY.md: the code runs, and the figures are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from test_readme import run_blocks

from delta_sharing_client import renewing
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.calls import MAX_PAGES
from delta_sharing_client.scan import url_renewal
from delta_sharing_client.server import SharingServer
from delta_sharing_client.storage import download
from delta_sharing_client.transport.response import MAX_RATIO, RATIO_APPLIES_FROM
from delta_sharing_client.transport.retry import RETRYABLE_STATUSES
from delta_sharing_client.wire.answers import MAX_OTHERS
from delta_sharing_client.wire.ndjson import MAX_DEPTH, MAX_LINE


def words(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8").split())


def test_the_page_about_faults_runs(root: Path, workplace: SharingServer) -> None:
    for _ in range(2):
        namespace = run_blocks(root / "docs" / "resilience.md")
        assert namespace["client"].list_shares()
        namespace["client"].close()


def test_its_figures_are_the_defaults(root: Path) -> None:
    text = words(root / "docs" / "resilience.md")
    options = TransportOptions()
    assert f"tried {options.api_attempts} times within {options.api_deadline.total_seconds():.0f} seconds" in text
    assert f"after {options.storage_attempts} attempts in a row" in text
    assert f"nothing for {options.read_timeout.total_seconds():.0f} s" in text
    assert ", ".join(map(str, sorted(RETRYABLE_STATUSES))) in text
    assert renewing._MARGIN == 1 / 5
    assert url_renewal._LONGEST_MARGIN == 60
    assert "the last fifth of their life, or the last minute" in text
    assert download._MAX_RENEWALS == 2
    assert "renewed twice for a file" in text


def test_the_bounds_of_the_page_about_security(root: Path) -> None:
    text = words(root / "SECURITY.md")
    assert f"a line of {MAX_LINE // 2**20} MB, JSON {MAX_DEPTH} levels deep" in text
    assert MAX_RATIO == 100
    assert f"grows a hundredfold (after {RATIO_APPLIES_FROM // 2**20} MB of output), {MAX_PAGES:,} pages" in text
    assert MAX_OTHERS == 1_000_000
    assert "a million lines that name no new file" in text


def test_the_tests_that_it_names_exist(root: Path) -> None:
    named = re.findall(r"`(tests/[^`]*)`", (root / "SECURITY.md").read_text(encoding="utf-8"))
    assert named
    for name in named:
        assert (root / name).exists(), name
