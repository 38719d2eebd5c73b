"""The steps of doctor that run no job: each looks at a machine, and returns what it found or raises what is wrong."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from platforms.checkout import ROOT
from platforms.commands.prepare import BENCHMARKS
from platforms.config.schema import Platform
from platforms.job import AwayError, JobSpec, Layout, RefusedError, Submitted, job_name, run_label
from platforms.schedulers import Scheduler
from platforms.schedulers.slurm import submission
from platforms.schedulers.slurm.environment import UNSET_SLURM_VARIABLES
from platforms.transports import CommandResult, Transport

LEAST_BYTES = 1e9  # code, logs and the smallest data sets
COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "srun", "sacct")

_COMMANDS = """\
for command in {commands}; do command -v "$command" >/dev/null || echo "$command"; done
echo ---
sbatch --version
squeue --noheader --me --format=%i >/dev/null || exit 1
sacct --noheader --allocations --jobs=1 --format=JobID 2>&1 || :
"""
_WORK_DIR = """\
mkdir -p {folder} && draft=$(mktemp {folder}/.doctor.XXXXXX) && echo draft > "$draft"
code=$?
[ -z "$draft" ] || rm -f "$draft"
[ $code -eq 0 ] && df -Pk {folder}
"""
# What sbatch says, and the key to look at.
CURES: tuple[tuple[str, str], ...] = (
    ("account", "`slurm: {{account: …}}`; yours: {accounts}"),
    ("[Qq]os|QOS", "`slurm: {{qos: …}}`; yours: {accounts}"),
    ("partition specified|partition name|Required partition", "`slurm: {{partition: …}}`; there are: {partitions}"),
    ("time limit", "`time_limit:`; longest: {partitions}"),
    ("[Nn]ode count|More processors", "`layouts:`; there are: {partitions}"),
    ("configuration is not available|gres|GRES|resource", "`layouts:`, `slurm: {{gres: …}}`; there are: {partitions}"),
    ("reservation", "`slurm: {{reservation: …}}`"),
    ("[Ff]eature", "`slurm: {{constraint: …}}`"),
)


@dataclass(frozen=True)
class Found:
    """What one step found, in a line; `skipped`: it could not look, and that is no mistake."""

    text: str
    skipped: bool = False


@dataclass(frozen=True)
class Visit:
    """One platform being looked at. `size` of the data sets, None: its own; `more` belongs to commands to type;
    `folders` is what a job of ours has seen of them: "there" or "missing"; `unmade`: claims that prepare makes."""

    platform: Platform
    transport: Transport
    scheduler: Scheduler
    size: str | None = None
    more: str = ""
    folders: dict[str, str] = field(default_factory=dict)
    unmade: list[str] = field(default_factory=list)

    def sh(self, script: str, timeout_s: float = 120.0) -> CommandResult:
        return self.transport.run(["sh", "-s"], input=script.encode(errors="surrogateescape"), timeout_s=timeout_s)

    @property
    def benchmarks(self) -> list[str]:
        """Those that can run there."""
        return [name for name in BENCHMARKS if name not in self.platform.unsupported]

    def data_folders(self) -> dict[str, str]:
        """Where the data set of each benchmark lies: `resnet50 quick` -> folder."""
        sizes = {name: self.size or self.platform.for_benchmark(name).size for name in self.benchmarks}
        return {f"{name} {size}": self.platform.data_folder(name, size, ROOT) for name, size in sizes.items()}

    def specs(self) -> Iterator[JobSpec]:
        """A job of each benchmark in each of its default layouts, as pytest would submit it."""
        for benchmark in self.benchmarks:
            for layout in self.platform.layout_list(benchmark):
                yield spec_of(self.platform.for_benchmark(benchmark), benchmark, layout)


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


def commands(visit: Visit) -> Found:
    """Slurm's commands are there, its controller answers, and whether it keeps accounts."""
    done = visit.sh(UNSET_SLURM_VARIABLES + _COMMANDS.format(commands=" ".join(COMMANDS)))
    missing, _, rest = done.stdout.decode(errors="replace").partition("---\n")
    where, source = visit.transport.where, visit.platform.source
    if set(missing.split()) - {"sacct"}:
        hint = "is it a login node?" if visit.platform.login_shell else f"`login_shell: true` in {source} may find them"
        raise RefusedError(f"{where}: there is no {', '.join(missing.split())}; {hint}")
    if done.exit_code:
        raise AwayError(f"{where}: Slurm's controller does not answer: {said(CommandResult(1, b'', done.stderr))}")
    version, _, accounts = rest.partition("\n")
    kept = "sacct" not in missing and "disabled" not in accounts
    answers = not re.search(r"error|refused|Unable", accounts)
    how = (
        ("with accounting" if answers else f"accounting is away ({accounts.strip()})") if kept else "without accounting"
    )
    return Found(f"Slurm {version.split()[-1]}, {how}")


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


def sbatch(visit: Visit) -> Found:
    """Slurm itself on every script that asks for something else: partition, account, QoS, nodes, devices, time."""
    answers: dict[str, str] = {}
    for spec in visit.specs():
        text = visit.scheduler.render(spec)
        asked = "\n".join(re.findall(r"^#SBATCH (?!--job-name|--output|--chdir).*", text, re.MULTILINE))
        if asked in answers:
            continue
        taken, words = submission.sbatch_test_only(visit.transport, text)
        if not taken:
            raise _refused(visit, spec, words)
        answers[asked] = words
    if not answers:
        return Found("every benchmark is unsupported there", skipped=True)
    return Found(f"--test-only takes {len(answers)} scripts: {next(iter(answers.values()))}")


def _refused(visit: Visit, spec: JobSpec, words: str) -> RefusedError:
    where, source = visit.transport.where, visit.platform.source
    typed = {
        "accounts": visit.transport.typed('sacctmgr show assoc user="$USER" format=account,partition,qos%60'),
        "partitions": visit.transport.typed('sinfo -o "%P %l %D %G"'),
    }
    hint = next((cure.format(**typed) for pattern, cure in CURES if re.search(pattern, words)), "what it names")
    if typed["partitions"] in hint and "{partition:" not in hint and visit.platform.slurm.partition is None:
        hint = f"`slurm: {{partition: …}}` is missing, so Slurm takes its default; then {hint}"
    return RefusedError(f"{where}: sbatch refuses {spec.benchmark} {spec.layout}: {words}. In {source}: {hint}")


def supervisor(visit: Visit) -> Found:
    """Our file can be put there, and a Python that can run it is there."""
    job = Submitted(f"{visit.platform.work_dir}/jobs/doctor", "doctor", time.time())
    visit.scheduler.status([job])
    return Found(f"runs on {visit.transport.where}")


def data(visit: Visit) -> Found:
    """A folder for each benchmark that can run there, as far as it can be seen from where commands run."""
    places = visit.data_folders()
    seen = {what: _seen(visit, folder) for what, folder in places.items()}
    missing = [what for what, word in seen.items() if word == "missing"]
    hidden = [places[what] for what, word in seen.items() if word == "hidden"]
    if missing:
        lacks = ", ".join(f"{what} ({places[what]})" for what in missing)
        make = f"python -m platforms prepare {visit.platform.name}"
        sizes = "".join(f" --size {size}" for size in dict.fromkeys(what.split()[1] for what in missing))
        some = "".join(f" --benchmark {what.split()[0]}" for what in missing) if len(missing) < len(places) else ""
        raise RefusedError(f"no data set of {lacks}; make it: {make}{sizes}{some}{visit.more}")
    if hidden:
        who = (
            "a pod can see that, with --node"
            if visit.platform.scheduler == "kubernetes"
            else "compute nodes can see that"
        )
        return Found(f"{', '.join(hidden)}: only {who}", skipped=True)
    return Found(", ".join(places) or "no benchmark can run there")


def _seen(visit: Visit, folder: str) -> str:
    if visit.platform.scheduler == "kubernetes":
        return visit.folders.get(folder, "hidden")
    work = str(visit.platform.work_dir or ROOT)
    parent = work if folder.startswith(f"{work}/") else folder.rpartition("/")[0] or "/"
    script = (
        f"if [ -d {shlex.quote(folder)} ]; then echo there; elif [ -d {shlex.quote(parent)} ]; then echo missing; fi\n"
    )
    return visit.sh(script).stdout.decode(errors="replace").strip() or "hidden"
