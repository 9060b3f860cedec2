"""The demo runs as a program, prints its results, and removes its files."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from script_modules import ROOT, load_script
from waiting import HANG, wait_until

DEMO = ROOT / "notebooks" / "demo.py"


def start(profile: Path, *flags: str, **environment: str) -> subprocess.Popen[str]:
    """Start the demo in the profile's folder, with a folder for its temporary files there."""
    temporary = profile.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, *flags, str(DEMO), "--profile", str(profile)],
        cwd=profile.parent,
        env={**os.environ, "TMPDIR": str(temporary), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, so that what it leaves can be found
    )


def processes_of(group: int) -> list[str]:
    """The processes of a group that still run (Linux); those that only wait to be reaped do not."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        state, _, its_group = text.rpartition(")")[2].split()[:3]
        if int(its_group) == group and state != "Z":
            found.append(text)
    return found


def wait_for(path: Path) -> None:
    wait_until(path.exists, f"there is {path.name}")


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The demo as a module."""
    monkeypatch.syspath_prepend(str(DEMO.parent))
    return load_script("notebooks/demo.py")


@pytest.mark.slow
def test_demo_prints_its_sections_and_cleans_up(tmp_path: Path) -> None:
    profile = tmp_path / "local.share"
    process = start(profile, "-W", "error", PYTHONIOENCODING="ascii")
    wait_for(profile)
    fields = json.loads(profile.read_text(encoding="utf-8"))
    mode = stat.S_IMODE(profile.stat().st_mode)
    output, errors = process.communicate(timeout=HANG)

    assert (process.returncode, errors) == (0, "")
    assert mode == 0o600
    assert fields["bearerToken"] not in output
    assert not re.search(r"signature=|X-Amz-|/files/", output)
    for fact in (
        "serving on http://127.0.0.1:",
        "profile written to local.share",
        "1 share, 2 schemas, 3 tables",
        "retail.sales.orders               7        9  order_date",
        "amount       decimal(12,2)",
        "4 listed by the server, 3 skipped (0 by partition values, 3 by statistics), 1 to read",
        "requests: 1 to the API, 1 for files",
        "[1,000 rows x 4 columns]",
        "59,990 rows, from the files' statistics",
        "requests: 1 to the API, 0 for files",
        "10 orders were deleted, 8 have another status",
        "quantity     integer        Int32",
        "datetime64[us, UTC]",
        "59,990 rows of 9 columns from each, equal in every value and dtype",
        "NotFoundError: table retail.sales.order: ",
        "ColumnError: table retail.sales.orders: the table has no column 'price'",
        'load_as_spark("local.share#retail.sales.orders").createOrReplaceTempView("orders")',
        "FROM orders o JOIN customers c USING (customer_id)",
        "The same join in pandas returns exactly the same turnover.",
        "poller.pull()   # no changes: None",
        "requests: 1 to the API, 0 for files",
        "requests: 2 to the API, 2 for files",
        "update_preimage",
        "the first run returns the current table: 2,000 rows",
        "the next run of the same query returns the new rows: 3 rows",
        "the copy has 2,003 rows, the same as the shared table.",
    ):
        assert fact in output
    assert re.search(r"\(12,2\).*Decimal 4\.99", output)
    assert max(map(len, output.splitlines())) <= 100

    assert not profile.exists()
    assert list((tmp_path / "temporary").iterdir()) == []
    if sys.platform == "linux":
        assert processes_of(process.pid) == []


def test_ctrl_c_ends_the_demo_and_cleans_up(tmp_path: Path) -> None:
    profile = tmp_path / "local.share"
    process = start(profile)
    wait_for(profile)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=HANG)
    assert process.returncode == 130
    assert errors.strip() == "Interrupted."
    assert not profile.exists()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_existing_profile_is_not_overwritten(tmp_path: Path) -> None:
    profile = tmp_path / "local.share"
    mine = '{"shareCredentialsVersion": 1, "endpoint": "https://sharing.example.com", "bearerToken": "mine"}'
    profile.write_text(mine, encoding="utf-8")
    process = start(profile)
    _, errors = process.communicate(timeout=HANG)
    assert process.returncode == 1
    assert errors.strip().startswith("The demo failed: RuntimeError: local.share exists and is not from this demo")
    assert "mine" not in errors
    assert profile.read_text(encoding="utf-8") == mine


def test_a_failure_is_one_line_and_an_exit_status(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: object) -> None:
        raise demo.ds.errors.ServerError(status=503, subject="the shares")

    monkeypatch.setattr(demo.Tour, "list_tables", broken)
    assert demo.main(["--profile", str(tmp_path / "local.share")]) == 1
    assert capsys.readouterr().err == (
        "\nThe demo failed: ServerError: the shares: the sharing server answered 503\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_make_runs_it_with_the_profile_of_the_repository(demo: ModuleType) -> None:
    assert demo.PROFILE == ROOT / "profiles" / "local.share"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo: .*\n(?:\t.*\n)*\t@\$\(BIN\)/python notebooks/demo\.py$", makefile, re.MULTILINE)
