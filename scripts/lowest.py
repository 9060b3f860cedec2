"""Runs the front doors with the lowest versions that pyproject.toml allows; `make lowest` runs it.

    python scripts/lowest.py                  the package alone, each extra alone, and all extras at once
    python scripts/lowest.py core duckdb all  some of them

uv resolves the lower bounds: the lowest version of each direct dependency, the newest ones of the others. An extra
alone may have lower versions than all extras at once, because one of them may raise what others share. The
packages of the extra `testing` are always there: they serve the sample tables.

Run it with Python 3.11. The lower bounds hold for the oldest supported Python; later ones need later releases,
which pip and uv select (pandas 2.2.0 has wheels up to Python 3.12, Ray 2.30 too, PySpark 3.5 runs up to 3.11).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The environment of uv, which makes the environment with the lowest versions in its folder `lowest`.
HOME = ROOT / ".venv-lowest"
UV = HOME / "bin" / "uv"
PYTHON = HOME / "lowest" / "bin" / "python"
#: Extras for the development of the package, whose versions are no concern of its users.
TOOLS = frozenset({"dev", "docs"})
#: What front doors need besides their extra: the tests' Iceberg catalog is one of pyiceberg over SQLite.
BESIDES = {name: ["sqlalchemy>=2.0"] for name in ("iceberg", "all")}


def extras() -> dict[str, list[str]]:
    """Return the extras of each run by its name: none for `core`, one, or all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    single = [name for name in project["optional-dependencies"] if name not in {*TOOLS, "all"}]
    return {"core": [], **{name: [name] for name in single}, "all": single}


def environment() -> None:
    """Create the two environments if necessary."""
    if not UV.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
        pip = [str(HOME / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "uv"], check=True)
    if not PYTHON.exists():
        uv("venv", "--python", sys.executable, str(PYTHON.parents[1]))


def uv(*arguments: str) -> None:
    """Run uv."""
    certificates = os.environ.get("PIP_CERT")  # uv does not read the options of pip
    settings = {"SSL_CERT_FILE": certificates} if certificates and "SSL_CERT_FILE" not in os.environ else {}
    subprocess.run([str(UV), "--quiet", *arguments], cwd=ROOT, env={**os.environ, **settings}, check=True)


def install(name: str, chosen: Sequence[str]) -> None:
    """Install the lowest versions for a run, and remove everything else."""
    package = f"{ROOT}[{','.join((*chosen, 'testing'))}]"
    lowest = ("--resolution", "lowest-direct", "--upgrade", "--exact", "--python", str(PYTHON))
    uv("pip", "install", *lowest, "--editable", package, *BESIDES.get(name, ()))


def run(name: str, chosen: Sequence[str]) -> str:
    """Run the front doors of some extras with their lowest versions; return the result."""
    print(f"== {name}", flush=True)
    try:
        install(name, chosen)
    except subprocess.CalledProcessError:
        return "FAILED: the environment cannot be created"
    if "spark" in chosen:
        subprocess.run([str(PYTHON), str(ROOT / "scripts" / "java.py"), "--quiet"], check=False)
    doors = [str(ROOT / "scripts" / "front_doors.py"), "core", *chosen]
    if subprocess.run([str(PYTHON), *doors], cwd=HOME, check=False).returncode:
        uv("pip", "freeze", "--python", str(PYTHON))
        return "FAILED"
    return "passed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the front doors; return 0 if all passed."""
    runs = extras()
    parser = argparse.ArgumentParser(description="Run the front doors with the lowest versions.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(runs)}; all by default")
    names = parser.parse_args(arguments).names or list(runs)
    unknown = [name for name in names if name not in runs]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(runs)}")
    environment()
    results = {name: run(name, runs[name]) for name in names}
    print()
    for name, result in results.items():
        print(f"{name:10} {result}")
    return 0 if all(result == "passed" for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
