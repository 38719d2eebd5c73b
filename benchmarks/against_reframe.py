"""Ours beside ReFrame 4.10: the same jobs of one second, taking turns in the same minutes, here and on a real Slurm.

    python benchmarks/against_reframe.py [--jobs 1 10 50 200] [--scheduler local slurm] [--rounds 1]
                                         [--export NONE] [--commands] [--reframe-venv DIR] [--together 200]

ReFrame comes from PyPI into an environment of its own, which is made when it is missing. Slurm is the real one of
tests/clusters, in a temporary folder, and ends with us. Prints Markdown; every cell is ours / ReFrame = ratio.
Delay: from a job's own last word to its outcome being on the disk (ours) or its figure being checked (ReFrame). Ours
then reports in the tests' order: `reported` is until its test has passed. With `--commands` Slurm's are counted too, in
rounds of their own. `--export` is what Slurm gives jobs of their submitter's environment, on both sides: NONE, as ours
do, has slurmd read a login environment for each job; ALL, as ReFrame's do, has not.
`--together N` is one session of ours alone, with N jobs here and N on Slurm, whose commands are counted meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.clusters.slurm import Cluster
from tests.clusters.slurm_slots import slot

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "benchmarks" / "reframe_site"
REFRAME = "ReFrame-HPC==4.10.*"
LIMIT_S = 900.0
START_UP_ROUNDS = 5
COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo", "srun")
COLUMNS = ("wall s", "own CPU s", "children's CPU s", "delay median s", "delay max s", "reported max s", "peak MiB")
SHIM = '#!/bin/sh\necho {name} >>"$COMMANDS"\nexec {real} "$@"\n'
# every CPU takes sixteen jobs, so that a hundred run at once on the nodes' twelve; memory is not counted. A node that a
# hundred starts keep from answering is not lost, as it would be after the ten seconds of the tests
SHARED = {"PartitionName": "DEFAULT OverSubscribe=FORCE:16", "SelectTypeParameters": "CR_Core", "SlurmdTimeout": "300"}
OURS = "scheduler: {scheduler}\ndevice: cpu\nlayouts: {{default: [1x1]}}\nmax_running: 100\ntime_limit: 0:05:00\n{more}"


@dataclass(frozen=True)
class Figures:
    """What one session cost."""

    wall_s: float
    own_cpu_s: float
    children_cpu_s: float
    peak_mib: float
    delays_s: tuple[float, ...]
    reported_s: tuple[float, ...]


@dataclass(frozen=True)
class Bench:
    """A temporary folder with both projects in it; `environ` is what a session of either gets."""

    folder: Path
    environ: Mapping[str, str]
    reframe: Path

    def argv(self, who: str, *schedulers: str) -> list[str]:
        """The command line of a whole session; ReFrame's has one scheduler."""
        if who == "ours":
            return [*self._pytest(), "-q", *(f"--platform=many_{name}" for name in schedulers), "test_sleeping.py"]
        return [*self._reframe(), f"--system=here:{schedulers[0]}", "-r"]

    def start_up(self) -> dict[str, dict[str, list[str]]]:
        """What is typed first; no job runs in it."""
        return {
            "its version": {"ours": [*self._pytest(), "--version"], "ReFrame": [str(self.reframe), "--version"]},
            "list of tests": {
                "ours": [*self._pytest(), "-q", "--collect-only", "--platform=many_local", "test_sleeping.py"],
                "ReFrame": [*self._reframe(), "--system=here:local", "-l"],
            },
        }

    def _pytest(self) -> list[str]:
        return [sys.executable, "-m", "pytest"]

    def _reframe(self) -> list[str]:
        words = ["-C", str(SITE / "settings.py"), "-c", str(SITE / "sleeping.py"), "--prefix", str(self.folder / "rfm")]
        return [str(self.reframe), *words]

    def session(
        self,
        argv: Sequence[str],
        jobs: int,
        job_s: str = "1",
        more: Mapping[str, str] | None = None,
        platforms: int = 1,
    ) -> Figures:
        """Run one to its end, so many jobs on each platform. Raises SystemExit with its output when it fails or a job
        of it is missing."""
        notes, result, log = (self.folder / name for name in ("notes", "result.json", "output"))
        notes.write_text("")
        result.unlink(missing_ok=True)
        own = {"JOBS": str(jobs), "JOB_S": job_s, "JOB": str(SITE / "job.sh"), "NOTES": str(notes)}
        command = [sys.executable, str(SITE / "watch.py"), str(result), *argv]
        with log.open("w") as output:
            environ = {**self.environ, **own, **(more or {})}
            place = {"cwd": self.folder / "ours", "env": environ, "stdout": output, "stderr": output}
            with subprocess.Popen(command, **place) as watcher:
                try:
                    watcher.wait(LIMIT_S)
                except BaseException:
                    watcher.terminate()  # it has the session cancel its jobs, while there is a Slurm to ask
                    raise
        figures = json.loads(result.read_text())
        times = [[float(word) for word in line.split()] for line in notes.read_text().splitlines()]
        runs = not {"--version", "--collect-only", "-l"} & set(argv)
        if figures.pop("exit_code") or (runs and len(times) != jobs * platforms):
            shown = log.read_text()
            sys.exit(f"{' '.join(argv)}: {len(times)} of {jobs * platforms} results\n{shown[:4000]} … {shown[-400:]}")
        delays = {"delays_s": tuple(time[1] - time[0] for time in times)}
        return Figures(**figures, **delays, reported_s=tuple(time[2] - time[0] for time in times))

    def commands(self, who: str, jobs: int) -> Counter[str]:
        """How often a session calls which of Slurm's commands."""
        return self.counted(self.argv(who, "slurm"), jobs)[1]

    def counted(self, argv: Sequence[str], jobs: int, platforms: int = 1) -> tuple[Figures, Counter[str]]:
        """A session, and how often it calls which of Slurm's commands."""
        shims, called = self.folder / "shims", self.folder / "commands"
        shims.mkdir(exist_ok=True)
        called.write_text("")
        for name in COMMANDS:
            real = shutil.which(name, path=self.environ["PATH"])
            (shims / name).write_text(SHIM.format(name=name, real=real))
            (shims / name).chmod(0o755)
        more = {"PATH": f"{shims}:{self.environ['PATH']}", "COMMANDS": str(called)}
        figures = self.session(argv, jobs, more=more, platforms=platforms)
        return figures, Counter(called.read_text().split())


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that Slurm ends with us
    reframe = Path() if options.together else installed(options.reframe_venv)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        slurm = stack.enter_context(cluster()) if options.together or "slurm" in options.scheduler else {}
        bench = Bench(folder, {**clean_environ(folder), **slurm, "EXPORT": options.export}, reframe)
        write_project(folder, options.export)
        print(f"{os.cpu_count()} CPUs, {busy():.0%} busy with other work before.\n")
        if options.together:
            together(bench, options.together)
        else:
            beside(bench, options)
        print(f"{busy():.0%} busy afterwards.")
    return 0


def beside(bench: Bench, options: argparse.Namespace) -> None:
    """All tables of ours beside ReFrame."""
    version = subprocess.run([bench.reframe, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"Ours / ReFrame {version}.\n")
    start_up(bench)
    for scheduler in options.scheduler:
        growth(bench, scheduler, options.jobs, options.rounds)
    if options.commands:
        commands(bench, options.jobs)


def busy() -> float:
    """Share of the CPUs' time that goes into other work, over two seconds."""

    def times() -> list[int]:
        return [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]

    before = times()
    time.sleep(2)
    spent = [after - first for after, first in zip(times(), before, strict=True)]
    return 1 - (spent[3] + spent[4]) / sum(spent)  # idle, and waiting for storage


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 10, 50, 200])
    parser.add_argument("--scheduler", nargs="+", choices=["local", "slurm"], default=["local", "slurm"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--export", choices=["NONE", "ALL"], default="NONE")
    parser.add_argument("--commands", action="store_true", help="count Slurm's commands")
    parser.add_argument("--together", type=int, metavar="N", help="only: N jobs here and N on Slurm, in one session")
    home = Path(tempfile.gettempdir()) / "hpc-ml-bench-reframe"
    parser.add_argument("--reframe-venv", type=Path, default=home, help="where ReFrame is or is to be installed")
    return parser.parse_args()


def installed(venv: Path) -> Path:
    """ReFrame's command, from PyPI where it is missing."""
    program = venv.resolve() / "bin" / "reframe"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin" / "pip", "install", "--quiet", REFRAME], check=True)
    return program


@contextlib.contextmanager
def cluster() -> Iterator[Mapping[str, str]]:
    """A Slurm that runs a hundred jobs of one CPU at once: what its clients need in their environment."""
    with slot() as (folder, port):
        running = Cluster(folder, port, settings=SHARED)
        try:
            running.up()
            yield running.environ
        finally:
            running.down()


def clean_environ(folder: Path) -> dict[str, str]:
    """Nothing of the caller's that either side listens to; what they keep between sessions is in `folder`."""
    theirs = ("SLURM", "SBATCH_", "SQUEUE_", "SACCT_", "RFM_", "PYTHON", "PYTEST_", "HPC_ML_BENCH_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(theirs) and name != "CI"}
    places = {"HOME": folder, "TMPDIR": folder, "PYTHONPYCACHEPREFIX": folder / "pyc"}
    return {**environ, **{name: str(place) for name, place in places.items()}, "HPC_ML_BENCH_LOCK": f"{folder}/lock"}


def write_project(folder: Path, export: str) -> None:
    """Our side: a folder with a test of its own, and a site with two platforms of a hundred jobs at once."""
    project = folder / "ours"
    (project / "site" / "platforms").mkdir(parents=True)
    ini = (ROOT / "pytest.ini").read_text().replace("pythonpath = .", f"pythonpath = {ROOT}")
    (project / "pytest.ini").write_text(ini)
    shutil.copy(SITE / "test_sleeping.py", project)
    slurm = f"poll_s: 1.0\nwork_dir: {folder}/work\nslurm: {{directives: ['--export={export}']}}\n"
    for scheduler, more in (("local", ""), ("slurm", slurm)):
        text = OURS.format(scheduler=scheduler, more=more)
        (project / "site" / "platforms" / f"many_{scheduler}.yaml").write_text(text)
    (project / "site" / "site.yaml").write_text("enabled: [many_local, many_slurm]\n")


def start_up(bench: Bench) -> None:
    """Medians of a few, after one that nobody counts: it compiles, and ReFrame looks at the machine."""
    print("| start-up, wall s | ours / ReFrame |\n|---|---|")
    sides: dict[str, dict[str, Callable[[], Figures]]] = {
        what: {who: partial(bench.session, argv, 1) for who, argv in both.items()}
        for what, both in bench.start_up().items()
    }
    sides["one job of 0 s"] = {
        who: partial(bench.session, bench.argv(who, "local"), 1, "0") for who in ("ours", "ReFrame")
    }
    for what, both in sides.items():
        found = turns(both, START_UP_ROUNDS + 1)
        walls = {who: statistics.median(one.wall_s for one in runs[1:]) for who, runs in found.items()}
        print(f"| {what} | {cell(walls)} |")
    print()


def turns(sides: Mapping[str, Callable[[], Figures]], rounds: int) -> dict[str, list[Figures]]:
    """Each side once a round, so that both see the same minutes."""
    found: dict[str, list[Figures]] = {who: [] for who in sides}
    for _ in range(rounds):
        for who, session in sides.items():
            found[who].append(session())
    return found


def growth(bench: Bench, scheduler: str, counts: Sequence[int], rounds: int) -> None:
    """The table of one scheduler, and what each further job costs."""
    print(f"| {scheduler}: jobs of 1 s | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}", flush=True)
    own: dict[str, list[float]] = {"ours": [], "ReFrame": []}
    for who in own:  # what it compiles on the way is not counted
        bench.session(bench.argv(who, scheduler), 1, "0")
    for jobs in counts:
        sides = {who: partial(bench.session, bench.argv(who, scheduler), jobs) for who in own}
        values = {who: summary(runs) for who, runs in turns(sides, rounds).items()}
        cells = [cell({who: value[index] for who, value in values.items()}) for index in range(len(COLUMNS))]
        print(f"| {jobs} | {' | '.join(cells)} |", flush=True)
        for who, value in values.items():
            own[who].append(value[1])
    if len(counts) > 1:
        each = {who: 1000 * (cpu[-1] - cpu[0]) / (counts[-1] - counts[0]) for who, cpu in own.items()}
        print(f"\nEach further job, own CPU in ms: {cell(each)}.")
    print()


def together(bench: Bench, jobs: int) -> None:
    """One session of ours on both platforms."""
    platforms = ("local", "slurm")
    argv = bench.argv("ours", *platforms)
    bench.session(argv, 1, "0", platforms=len(platforms))  # what it compiles on the way is not counted
    figures, called = bench.counted(argv, jobs, len(platforms))
    print(f"| jobs of 1 s | {' | '.join(COLUMNS)} | Slurm's commands |\n|{'---|' * (len(COLUMNS) + 2)}")
    cells = [f"{value:.3g}" for value in summary([figures])]
    words = ", ".join(f"{name} {count}" for name, count in sorted(called.items()))
    print(f"| {jobs} local and {jobs} Slurm | {' | '.join(cells)} | {words} |\n", flush=True)


def summary(runs: Sequence[Figures]) -> list[float]:
    """The columns of `growth`: medians over the rounds, delays of all rounds together."""
    delays = [delay for run in runs for delay in run.delays_s]
    costs = [[run.wall_s, run.own_cpu_s, run.children_cpu_s] for run in runs]
    peak = max(run.peak_mib for run in runs)
    reported = max(delay for run in runs for delay in run.reported_s)
    return [*map(statistics.median, zip(*costs, strict=True)), statistics.median(delays), max(delays), reported, peak]


def commands(bench: Bench, counts: Sequence[int]) -> None:
    """What is called, counted by programs in front of Slurm's own."""
    print("| Slurm's commands, jobs of 1 s | ours | ReFrame |\n|---|---|---|")
    for jobs in counts:
        called = [bench.commands(who, jobs) for who in ("ours", "ReFrame")]
        words = [", ".join(f"{name} {count}" for name, count in sorted(each.items())) for each in called]
        print(f"| {jobs} | {' | '.join(words)} |", flush=True)
    print()


def cell(values: Mapping[str, float]) -> str:
    """`ours / ReFrame = ratio`."""
    ours, theirs = values["ours"], values["ReFrame"]
    return f"{ours:.3g} / {theirs:.3g} = {ours / theirs:.2g}" if theirs else f"{ours:.3g} / {theirs:.3g}"


if __name__ == "__main__":
    sys.exit(main())
