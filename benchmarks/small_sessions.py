"""What people try first: one small job beside ReFrame 4.10, one test beside plain pytest, and lists, beside a checkout.

    python benchmarks/small_sessions.py [--against CHECKOUT] [--rounds 15] [--reframe-venv DIR]

All sides take turns in the same minutes, after a round that nobody counts. Prints medians as Markdown. CHECKOUT is
another commit of the suite, run by the same Python.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.against_reframe import ROOT, SITE, busy, clean_environ, installed

VERSION, LIST = "`--version` (other: ReFrame)", "list of one test (other: plain pytest)"
TRUE = "one job of `true` (other: ReFrame)"
OWN = """
@pytest.mark.workload(command=["true"])
def test_{number}(run, record):
    pass
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--reframe-venv", type=Path, default=Path(tempfile.gettempdir()) / "hpc-ml-bench-reframe")
    options = parser.parse_args()
    reframe = installed(options.reframe_venv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_projects(folder)
        environ = {**clean_environ(folder), "EXPORT": "NONE"}
        print(f"{busy():.0%} busy with other work before.\n")
        print("| wall s, CPU s, peak MiB | now | before | other |\n|---|---|---|---|")
        for what, sides in commands(folder, reframe, options.against).items():
            found = turns(folder, environ, sides, options.rounds)
            cells = [cell(found.get(side)) for side in ("now", "before", "other")]
            print(f"| {what} | {' | '.join(cells)} |", flush=True)
        print(f"\n{busy():.0%} busy afterwards.")
    return 0


def write_projects(folder: Path) -> None:
    for name in ("one", "plain", "empty", "many"):
        (folder / name).mkdir()
    shutil.copy(SITE / "test_true.py", folder / "one")
    (folder / "plain/test_true.py").write_text("def test_true(benchmark):\n    benchmark(bool)\n")
    (folder / "plain/pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    for module in range(10):
        tests = "".join(OWN.format(number=number) for number in range(20))
        (folder / f"many/test_{module}.py").write_text(f"import pytest\n{tests}")


def commands(folder: Path, reframe: Path, against: Path | None) -> dict[str, dict[str, list[str]]]:
    """What is typed, by side; the folder in which it is typed stands first."""
    python = [sys.executable, "-m"]
    pytest = ["pytest", "-q", "--config-file=pytest.ini"]
    one, many, empty = ([f"--site={folder / site}", str(folder / site)] for site in ("one", "many", "empty"))
    named = [f"--platform={file.stem}" for file in sorted((ROOT / "platforms").glob("*.yaml"))]
    ours = {
        VERSION: ["pytest", "--version"],
        LIST: [*pytest, *one, "-m", "local", "--collect-only"],
        TRUE: [*pytest, *one, "-m", "local"],
        "list of the suite's tests": [*pytest, empty[0], "--collect-only"],
        "list of 200 own tests on all platforms": [*pytest, *many, "--collect-only", "--dry-run", *named],
        "`python -m reporting --help`": ["reporting", "--help"],
        "`python -m reporting judge`, no history": ["reporting", "judge", empty[0]],
    }
    settings = ["-C", str(SITE / "settings.py"), "-c", str(SITE / "just_true.py"), "--prefix", str(folder / "rfm")]
    others = {
        VERSION: [str(folder), str(reframe), "--version"],
        LIST: [str(folder / "plain"), *python, "pytest", "-q", "--collect-only"],
        TRUE: [str(folder), str(reframe), *settings, "--system=here:local", "-r"],
    }
    roots = {"now": ROOT} if against is None else {"now": ROOT, "before": against.resolve()}
    found = {what: {who: [str(root), *python, *words] for who, root in roots.items()} for what, words in ours.items()}
    for what, words in others.items():
        found[what]["other"] = words
    return found


def turns(
    folder: Path, environ: Mapping[str, str], sides: Mapping[str, list[str]], rounds: int
) -> Mapping[str, list[float]]:
    """Medians of wall time, CPU time with that of jobs, and peak memory."""
    found: dict[str, list[list[float]]] = {side: [] for side in sides}
    for _ in range(rounds + 1):
        for side, (cwd, *argv) in sides.items():
            result = folder / "result.json"
            watch = [sys.executable, str(SITE / "watch.py"), str(result), *argv]
            done = subprocess.run(watch, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
            figures = json.loads(result.read_text())
            if figures["exit_code"] and "judge" not in argv:
                sys.exit(f"{argv}: {done.stdout} {done.stderr}")
            cpu_s = figures["own_cpu_s"] + figures["children_cpu_s"]
            found[side].append([figures["wall_s"], cpu_s, figures["peak_mib"]])
    return {side: [statistics.median(values) for values in zip(*of[1:], strict=True)] for side, of in found.items()}


def cell(values: Sequence[float] | None) -> str:
    return "" if values is None else f"{values[0]:.3f}, {values[1]:.2f}, {values[2]:.0f}"


if __name__ == "__main__":
    sys.exit(main())
