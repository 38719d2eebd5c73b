"""The steps of doctor that any scheduler may take.

A step checks one thing of a platform. It returns a StepResult, or raises a BenchError with the problem and its cure.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, RefusedError
from platforms.schedulers import Scheduler
from platforms.schedulers.job_spec import choose_launcher, new_spec
from platforms.transports import CommandResult, Transport

LEAST_BYTES = 1e9  # code, logs and the smallest data sets

_WORK_DIR = """\
mkdir -p {folder} && draft=$(mktemp {folder}/.doctor.XXXXXX) && echo draft > "$draft"
code=$?
[ -z "$draft" ] || rm -f "$draft"
[ $code -eq 0 ] && df -Pk {folder}
"""


@dataclass(frozen=True)
class StepResult:
    """The result of one step, in one line. `skipped`: the step could not check anything, which is no failure."""

    text: str
    skipped: bool = False


@dataclass(frozen=True)
class Visit:
    """One platform that doctor looks at.

    Attributes:
        all_benchmarks: the names of the suite's benchmarks.
        root: the folder of the checkout, where relative data folders of this machine begin.
        size: of the data sets; None: the platform's own.
        more: options that every printed command needs, with a space before them.
        folders: what a job of ours has seen of data folders: "there" or "missing".
        unmade: the volume claims that `prepare` makes.
    """

    platform: Platform
    transport: Transport
    scheduler: Scheduler
    all_benchmarks: Sequence[str] = ()
    root: Path = Path()
    size: str | None = None
    more: str = ""
    folders: dict[str, str] = field(default_factory=dict)
    unmade: list[str] = field(default_factory=list)

    def sh(self, script: str, timeout_s: float = 120.0) -> CommandResult:
        """Run a shell script on the login node."""
        return self.transport.run(["sh", "-s"], input=script.encode(errors="surrogateescape"), timeout_s=timeout_s)

    @property
    def benchmarks(self) -> list[str]:
        """The benchmarks that can run on the platform."""
        return [name for name in self.all_benchmarks if self.platform.obstacle(name) is None]

    def data_folders(self) -> dict[str, str]:
        """List the folder of each benchmark's data set, by benchmark and size, as in `resnet50 quick`."""
        folders = {}
        for name in self.benchmarks:
            size = self.size or self.platform.for_benchmark(name).size
            folders[f"{name} {size}"] = self.platform.data_folder(name, size, self.root)
        return folders

    def specs(self) -> Iterator[JobSpec]:
        """Describe a job of each benchmark in each of its default layouts, as pytest would submit it."""
        for benchmark in self.benchmarks:
            for layout in self.platform.layout_list(benchmark):
                yield benchmark_spec(self.platform.for_benchmark(benchmark), benchmark, layout)


Step = tuple[str, Callable[[Visit], StepResult]]  # the name that doctor prints, and the check


def benchmark_spec(platform: Platform, benchmark: str, layout: Layout) -> JobSpec:
    """Describe a job that asks the scheduler for the same as a benchmark's job. Its command line is shorter."""
    test = f"doctor {benchmark} {layout}"
    arguments = ("train", benchmark, "--size", "smoke")
    spec = new_spec(platform, label=benchmark, test=test, layout=layout, run_id="doctor", arguments=arguments)
    launcher = choose_launcher(platform.launcher, spec.ranks)
    return replace(spec, benchmark=benchmark, launcher=launcher, archive=Path("models.pyz"))


def output_of(done: CommandResult) -> str:
    """Write the output of a command, on both streams, in one line."""
    text = (done.stderr + done.stdout).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return f"exit code {done.exit_code}"
    return "; ".join(lines)


# --- the steps -------------------------------------------------------------------------------------------------------


def transport(visit: Visit) -> StepResult:
    """Check that the login works, and tell the user and the machine."""
    done = visit.sh('echo "$(id -un)@$(uname -n)"\n')
    return StepResult(f"{visit.transport.where}: {output_of(done)} by {visit.platform.transport}")


def work_dir(visit: Visit) -> StepResult:
    """Check that the folder can be made and written, and has space for the smallest data sets."""
    folder = str(visit.platform.work_dir)
    where = visit.transport.where
    done = visit.sh(_WORK_DIR.format(folder=shlex.quote(folder)))
    hint = f"name another `work_dir:` in {visit.platform.source}"
    if done.exit_code:
        errors = output_of(CommandResult(1, b"", done.stderr))
        raise RefusedError(f"{where}: {folder} cannot be written: {errors}; {hint}")
    columns = done.stdout.decode(errors="replace").strip().rpartition("\n")[2].split()
    if len(columns) < 4 or not columns[3].isdigit():
        return StepResult(f"{folder}: writable")
    free_bytes = int(columns[3]) * 1024
    if free_bytes < LEAST_BYTES:
        raise RefusedError(f"{where}: {folder} has only {free_bytes / 1e9:.2f} GB free; make room, or {hint}")
    return StepResult(f"{folder}: writable, {free_bytes / 1e9:,.0f} GB free")


def policy(visit: Visit) -> StepResult:
    """Check that every script keeps to the site's rules. pytest checks that, too, before it submits."""
    count = 0
    for spec in visit.specs():
        failures = visit.scheduler.lint(spec, visit.scheduler.render(spec))
        if failures:
            raise RefusedError(f"{spec.benchmark} {spec.layout}: {'; '.join(failures)}")
        count += 1
    return StepResult(f"{count} jobs keep to the rules in {visit.platform.source}")
