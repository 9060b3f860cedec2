"""Runner of the Spark tests on several versions of PySpark, each in its own environment; `make matrix` runs it.

    python scripts/matrix.py                   every supported version, and the newest
    python scripts/matrix.py 3.5 4.0.0         the latest 3.5, and exactly 4.0.0
    python scripts/matrix.py 4.1 -- -k cluster passes the arguments after `--` to pytest

An environment is `.venv-spark-<version>`, created if it does not exist or if `pyproject.toml` has changed.
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


def requirements(requested: str) -> list[str]:
    """Return the requirements for a version: `4.1` is its latest release, `4.0.0` that release."""
    if requested == "newest":
        return ["pyspark[connect]"]
    spark = f"pyspark[connect]=={requested}" + ("" if requested.count(".") >= 2 else ".*")
    # PySpark 3.5 requires numpy below 2, which newer releases of pyarrow do not support, and pandas 2.
    return [spark, "numpy<2", "pandas<3", "pyarrow<24"] if requested.startswith("3.") else [spark]


def environment(requested: str) -> Path:
    """Create the environment of a version if necessary; return its interpreter."""
    home = ROOT / f".venv-spark-{requested}"
    python, stamp = home / "bin" / "python", home / ".ready"
    if stamp.exists() and stamp.stat().st_mtime > (ROOT / "pyproject.toml").stat().st_mtime:
        return python
    print(f"== creating {home.name}", flush=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--upgrade", "pip"], check=True)
    subprocess.run([*pip, "--editable", f"{ROOT}{EXTRAS}", *TESTS, *requirements(requested)], check=True)
    stamp.touch()
    return python


def run(requested: str, arguments: Sequence[str]) -> tuple[str, str]:
    """Run the tests on a version; return the version and the result."""
    start = time.monotonic()
    try:
        python = environment(requested)
    except subprocess.CalledProcessError:
        return requested, "FAILED: the environment cannot be created"
    subprocess.run([str(python), str(ROOT / "scripts" / "java.py"), "--quiet"], check=False)
    command = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    print(f"== PySpark {version}", flush=True)
    command = [str(python), "-m", "pytest", "tests/spark", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=False)
    result = f"FAILED: pytest ended with {done.returncode}" if done.returncode else "passed"
    return version, f"{result} ({time.monotonic() - start:.0f} s)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests on each version; return 0 if all passed."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description="Run the Spark tests on several versions of PySpark.")
    parser.add_argument("versions", nargs="*", default=VERSIONS, help=f"default: {' '.join(VERSIONS)}")
    parser.add_argument("--make", action="store_true", help="only create the environments")
    options = parser.parse_args(arguments[:end])
    if options.make:
        for requested in options.versions:
            environment(requested)
        return 0
    results = [run(requested, arguments[end + 1 :]) for requested in options.versions]
    print()
    for version, result in results:
        print(f"PySpark {version:8} {result}")
    return 0 if all(result.startswith("passed") for _, result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
