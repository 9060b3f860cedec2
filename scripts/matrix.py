"""Run the Spark tests on several versions of PySpark, each in an environment of its own; `make matrix` does so.

    python scripts/matrix.py                   every version that is supported, and the newest
    python scripts/matrix.py 3.5 4.0.0         the last 3.5, and just 4.0.0
    python scripts/matrix.py 4.1 -- -k cluster what follows the dashes is for pytest

An environment is `.venv-spark-<version>`, made when it is not there or `pyproject.toml` has changed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.5", "4.0", "4.1", "4.2", "newest")
EXTRAS = "[server,sql]"
TESTS = ("pytest>=8.0", "pytest-timeout>=2.3", "deltalake>=1.6", "hypothesis>=6.90")


def requirements(wanted: str) -> list[str]:
    """What is installed for a version: `4.1` is its last release, `4.0.0` just that one, `newest` the newest."""
    if wanted == "newest":
        return ["pyspark[connect]"]
    exact = wanted.count(".") >= 2
    spark = f"pyspark[connect]=={wanted}" if exact else f"pyspark[connect]=={wanted}.*"
    # Its extra pins numpy below 2, which later releases of pyarrow refuse; it was made for pandas 2.
    return [spark, "numpy<2", "pandas<3", "pyarrow<24"] if wanted.startswith("3.") else [spark]


def environment(wanted: str) -> Path:
    """Make the environment of a version if need be, and return its interpreter."""
    home = ROOT / f".venv-spark-{wanted}"
    python, stamp = home / "bin" / "python", home / ".ready"
    if stamp.exists() and stamp.stat().st_mtime > (ROOT / "pyproject.toml").stat().st_mtime:
        return python
    print(f"== making {home.name}", flush=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--upgrade", "pip"], check=True)
    subprocess.run([*pip, "--editable", f"{ROOT}{EXTRAS}", *TESTS, *requirements(wanted)], check=True)
    stamp.touch()
    return python


def run(wanted: str, arguments: Sequence[str]) -> tuple[str, str]:
    """Run the tests on a version; return the version and how it went."""
    begun = time.monotonic()
    try:
        python = environment(wanted)
    except subprocess.CalledProcessError:
        return wanted, "FAILED: the environment cannot be made"
    subprocess.run([str(python), str(ROOT / "scripts" / "java.py"), "--quiet"], check=False)
    command = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    print(f"== PySpark {version}", flush=True)
    command = [str(python), "-m", "pytest", "tests/spark", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=False)
    how = {0: "passed"}.get(done.returncode, f"FAILED: pytest ended with {done.returncode}")
    return version, f"{how} ({time.monotonic() - begun:.0f} s)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests on each version; return 0 if all passed."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(description="Run the Spark tests on several versions of PySpark.")
    parser.add_argument("versions", nargs="*", default=VERSIONS, help=f"default: {' '.join(VERSIONS)}")
    parser.add_argument("--make", action="store_true", help="only make the environments")
    options = parser.parse_args(given[:cut])
    if options.make:
        for wanted in options.versions:
            environment(wanted)
        return 0
    results = [run(wanted, given[cut + 1 :]) for wanted in options.versions]
    print()
    for version, how in results:
        print(f"PySpark {version:8} {how}")
    return 0 if all(how.startswith("passed") for _, how in results) else 1


if __name__ == "__main__":
    sys.exit(main())
