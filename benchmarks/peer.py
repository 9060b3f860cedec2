"""The environment of the other clients: `.venv-peer`, made on first use, which needs a package index.

    python benchmarks/peer.py        makes it, if it is not there, and prints its interpreter

The reference client's own pins keep it on other versions of pandas and pyarrow than ours. The versions are
pinned, because what the differential tests say of these clients is true of these versions.
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


def installed_python() -> str | None:
    """Return the environment's interpreter; None where it is not made yet, or of other versions."""
    wanted = "\n".join(PACKAGES)
    if not _READY.exists() or _READY.read_text("utf-8") != wanted:
        return None
    return str(PEER / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def peer_python() -> str:
    """Return the environment's interpreter, and make the environment if it is not there."""
    if (python := installed_python()) is not None:
        return python
    print(f"making {PEER.name} for the other clients (first time only)", file=sys.stderr)
    venv.create(PEER, with_pip=True, clear=True)
    python = str(PEER / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    subprocess.run(install, check=True)
    _READY.write_text("\n".join(PACKAGES), "utf-8")
    return python


if __name__ == "__main__":
    print(peer_python())
