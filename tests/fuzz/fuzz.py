"""Fuzzer of the decoders: `python tests/fuzz/fuzz.py [--seconds 60] [target ...]`.

atheris generates inputs guided by coverage; without it, hypothesis generates them. Each target runs in its own
process, so that crashes are detected. A failing input is saved to a file, whose name is printed; `--input FILE`
runs it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))


def with_atheris(name: str, seconds: int, folder: Path) -> None:
    """Run one target in this process until it fails or the time has passed."""
    import atheris

    with atheris.instrument_imports(include=["delta_sharing_client"]):
        from fuzz_targets import TARGETS
    target, seeds = TARGETS[name]
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds):
        (corpus / str(number)).write_bytes(seed)

    def run(data: bytes) -> None:
        target(data)

    limits = [f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=8192"]
    # libFuzzer exits the process, with status 0 after the time.
    atheris.Setup([sys.argv[0], str(corpus), *limits, f"-artifact_prefix={folder}/", "-print_final_stats=1"], run)
    atheris.Fuzz()


def with_hypothesis(name: str, seconds: int, folder: Path) -> None:
    """Run one target with inputs from hypothesis, without coverage."""
    from fuzz_mutations import mutations
    from fuzz_targets import TARGETS
    from hypothesis import HealthCheck, given, seed, settings

    target, seeds = TARGETS[name]
    end = time.monotonic() + seconds
    count = turn = 0
    while time.monotonic() < end:
        turn += 1

        @settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @seed(turn)
        @given(mutations(seeds))
        def run(data: bytes) -> None:
            nonlocal count
            count += 1
            (folder / "last").write_bytes(data)
            target(data)

        run()
    print(f"{count} inputs")


def one_target(name: str, seconds: int, folder: Path) -> None:
    """Run one target in this process, which must not have imported the package: atheris instruments the import."""
    (with_atheris if importlib.util.find_spec("atheris") else with_hypothesis)(name, seconds, folder)


def main() -> int:
    """Run from the command line; return 0 if every target passes."""
    if sys.argv[1:2] == ["--child"]:
        one_target(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
        return 0
    from fuzz_targets import TARGETS

    parser = argparse.ArgumentParser(description="Fuzz the decoders of untrusted bytes.")
    parser.add_argument("targets", nargs="*", metavar="target", help=f"{', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="seconds per target (60)")
    parser.add_argument("--input", type=Path, help="run one target once, with the bytes of a file")
    arguments = parser.parse_args()
    chosen = arguments.targets or list(TARGETS)
    if unknown := [name for name in chosen if name not in TARGETS]:
        parser.error(f"unknown target: {', '.join(unknown)}")
    coverage = importlib.util.find_spec("atheris") is not None
    if arguments.input is not None:
        print("decoded" if TARGETS[chosen[0]][0](arguments.input.read_bytes()) else "rejected")
        return 0
    failed = []
    for name in chosen:
        folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
        print(f"== {name}: {arguments.seconds} s with {'atheris' if coverage else 'hypothesis'}", flush=True)
        command = [sys.executable, __file__, "--child", name, str(arguments.seconds), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print("\n".join((done.stdout + done.stderr).splitlines()[-30 if done.returncode else -8 :]))
        if done.returncode:
            failed.append(name)
            print(f"== {name} FAILED; the input is in {folder}")
    print(f"== {len(chosen) - len(failed)} of {len(chosen)} targets passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
