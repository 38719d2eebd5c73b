"""The steps of doctor for Slurm: its commands are there, and sbatch takes the scripts."""

from __future__ import annotations

import re

from platforms.job import AwayError, JobSpec, RefusedError
from platforms.schedulers.doctor_steps import StepResult, Visit, output_of
from platforms.schedulers.slurm import submission
from platforms.schedulers.slurm.environment import UNSET_SLURM_VARIABLES
from platforms.transports import CommandResult

COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "srun", "sacct")

_COMMANDS = """\
for command in {commands}; do command -v "$command" >/dev/null || echo "$command"; done
echo ---
sbatch --version
squeue --noheader --me --format=%i >/dev/null || exit 1
sacct --noheader --allocations --jobs=1 --format=JobID 2>&1 || :
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


def commands(visit: Visit) -> StepResult:
    """Slurm's commands are there, its controller answers, and whether it keeps accounts."""
    done = visit.sh(UNSET_SLURM_VARIABLES + _COMMANDS.format(commands=" ".join(COMMANDS)))
    missing, _, rest = done.stdout.decode(errors="replace").partition("---\n")
    where, source = visit.transport.where, visit.platform.source
    if set(missing.split()) - {"sacct"}:
        hint = "is it a login node?" if visit.platform.login_shell else f"`login_shell: true` in {source} may find them"
        raise RefusedError(f"{where}: there is no {', '.join(missing.split())}; {hint}")
    if done.exit_code:
        raise AwayError(f"{where}: Slurm's controller does not answer: {output_of(CommandResult(1, b'', done.stderr))}")
    version, _, accounts = rest.partition("\n")
    kept = "sacct" not in missing and "disabled" not in accounts
    answers = not re.search(r"error|refused|Unable", accounts)
    how = (
        ("with accounting" if answers else f"accounting is away ({accounts.strip()})") if kept else "without accounting"
    )
    return StepResult(f"Slurm {version.split()[-1]}, {how}")


def sbatch(visit: Visit) -> StepResult:
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
        return StepResult("every benchmark is unsupported there", skipped=True)
    return StepResult(f"--test-only takes {len(answers)} scripts: {next(iter(answers.values()))}")


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
