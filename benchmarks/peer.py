"""Virtual environment with the other clients: `.venv-peer`, created on first use from a package index.

    python benchmarks/peer.py        creates it if necessary, and prints the path of its interpreter

The official client requires older versions of pandas and pyarrow than this package. All versions are pinned:
`tests/differential/known_differences.py` applies to these versions only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

PEER = Path(__file__).resolve().parent.parent / ".venv-peer"
PACKAGES = (
    "delta-sharing==1.4.2",
    "delta-kernel-rust-sharing-wrapper==0.3.3",
    "deltalake==1.6.6",
    "pandas==2.3.3",
    "pyarrow==23.0.1",
)
_READY = PEER / ".ready"
_PYTHON = PEER / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def installed_python() -> str | None:
    """Return the interpreter; None if the environment does not exist or has other versions."""
    ready = _READY.exists() and _READY.read_text("utf-8") == "\n".join(PACKAGES)
    return str(_PYTHON) if ready else None


def peer_python() -> str:
    """Return the interpreter; create the environment if necessary."""
    if (python := installed_python()) is not None:
        return python
    print(f"creating {PEER.name} for the other clients (first time only)", file=sys.stderr)
    venv.create(PEER, with_pip=True, clear=True)
    install = [str(_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    subprocess.run(install, check=True)
    _READY.write_text("\n".join(PACKAGES), "utf-8")
    return str(_PYTHON)


if __name__ == "__main__":
    print(peer_python())
