"""The steps of doctor that any scheduler may take: each looks at a machine, and returns what it found or raises what is
wrong."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, RefusedError, job_name, run_label
from platforms.schedulers import Scheduler
from platforms.transports import CommandResult, Transport

LEAST_BYTES = 1e9  # code, logs and the smallest data sets

_WORK_DIR = """\
mkdir -p {folder} && draft=$(mktemp {folder}/.doctor.XXXXXX) && echo draft > "$draft"
code=$?
[ -z "$draft" ] || rm -f "$draft"
[ $code -eq 0 ] && df -Pk {folder}
"""


@dataclass(frozen=True)
class Found:
    """What one step found, in a line; `skipped`: it could not look, and that is no mistake."""

    text: str
    skipped: bool = False


@dataclass(frozen=True)
class Visit:
    """One platform that doctor looks at.

    Attributes:
        all_benchmarks: the names of the suite's benchmarks.
        root: the folder of the checkout, where relative data folders of this machine begin.
        size: of the data sets; None: the platform's own.
        more: words that belong to every command that a person is told to type.
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
        return self.transport.run(["sh", "-s"], input=script.encode(errors="surrogateescape"), timeout_s=timeout_s)

    @property
    def benchmarks(self) -> list[str]:
        """Those that can run there."""
        return [name for name in self.all_benchmarks if name not in self.platform.unsupported]

    def data_folders(self) -> dict[str, str]:
        """Where the data set of each benchmark lies: `resnet50 quick` -> folder."""
        sizes = {name: self.size or self.platform.for_benchmark(name).size for name in self.benchmarks}
        return {f"{name} {size}": self.platform.data_folder(name, size, self.root) for name, size in sizes.items()}

    def specs(self) -> Iterator[JobSpec]:
        """A job of each benchmark in each of its default layouts, as pytest would submit it."""
        for benchmark in self.benchmarks:
            for layout in self.platform.layout_list(benchmark):
                yield spec_of(self.platform.for_benchmark(benchmark), benchmark, layout)


Step = tuple[str, Callable[[Visit], Found]]  # the step's name in a line of doctor's, and what it does


def spec_of(platform: Platform, benchmark: str, layout: Layout) -> JobSpec:
    """The job without its command's details: what a scheduler is asked for is the same."""
    ranks = layout.devices * platform.ranks_per_device
    launcher = ("torchrun" if ranks > 1 else "none") if platform.launcher == "auto" else platform.launcher
    test = f"doctor {benchmark} {layout}"
    return JobSpec(
        name=job_name(benchmark, layout, "doctor", test),
        test=test,
        platform=platform.name,
        layout=layout,
        arguments=("train", benchmark, "--size", "smoke"),
        benchmark=benchmark,
        launcher=launcher,
        ranks_per_device=platform.ranks_per_device,
        threads_per_rank=platform.threads_per_rank,
        python=platform.python,
        archive=Path("models.pyz"),
        env=platform.env,
        time_limit_s=platform.time_limit_s,
        start_limit_s=platform.start_limit_s,
        run=run_label("doctor"),
    )


def said(done: CommandResult) -> str:
    """What a command printed, in one line."""
    text = (done.stderr + done.stdout).decode(errors="replace")
    return "; ".join(line.strip() for line in text.splitlines() if line.strip()) or f"exit code {done.exit_code}"


# --- the steps -------------------------------------------------------------------------------------------------------


def transport(visit: Visit) -> Found:
    """A login that works, and who we are there."""
    done = visit.sh('echo "$(id -un)@$(uname -n)"\n')
    return Found(f"{visit.transport.where}: {said(done)} by {visit.platform.transport}")


def work_dir(visit: Visit) -> Found:
    """It can be made and written, and has room."""
    folder, where = str(visit.platform.work_dir), visit.transport.where
    done = visit.sh(_WORK_DIR.format(folder=shlex.quote(folder)))
    hint = f"name another `work_dir:` in {visit.platform.source}"
    if done.exit_code:
        raise RefusedError(f"{where}: {folder} cannot be written: {said(CommandResult(1, b'', done.stderr))}; {hint}")
    columns = done.stdout.decode(errors="replace").strip().rpartition("\n")[2].split()
    free = int(columns[3]) * 1024 if len(columns) > 3 and columns[3].isdigit() else None
    if free is not None and free < LEAST_BYTES:
        raise RefusedError(f"{where}: {folder} has only {free / 1e9:.2f} GB free; make room, or {hint}")
    return Found(f"{folder}: writable" + (f", {free / 1e9:,.0f} GB free" if free is not None else ""))


def policy(visit: Visit) -> Found:
    """The site's rules against every script, as pytest looks at them before it submits."""
    count = 0
    for spec in visit.specs():
        if findings := visit.scheduler.lint(spec, visit.scheduler.render(spec)):
            raise RefusedError(f"{spec.benchmark} {spec.layout}: {'; '.join(findings)}")
        count += 1
    return Found(f"{count} jobs keep to the rules in {visit.platform.source}")
