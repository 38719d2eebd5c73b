"""sbatch on the login node: one shell command that submits a job exactly once, and a trial that submits nothing.

The submission claims the job's folder, writes the script there and calls sbatch.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

from platforms.job import AwayError, JobSpec, names_a_secret
from platforms.schedulers.slurm.environment import submission_preamble
from platforms.schedulers.slurm.error_messages import UNSURE
from platforms.transports import Transport

LIMIT_S = 120  # of a submission; sbatch itself gives up within Slurm's MessageTimeout (10 to 100 s)
CLAIM_S = LIMIT_S + 30  # when a claim is this old, its owner's sbatch has ended
TWICE_S = 15  # between two answers of Slurm that it does not know the job, before we believe it

# $folder is claimed by mkdir, which only one of many callers can win; only the winner calls sbatch. A caller that finds
# a claim without an id asks Slurm for a job of ours in this folder (the job itself writes the id when it starts), and
# takes an old claim over only when Slurm said "no such job" twice. Accounting is asked from two days before the claim
# on, since clocks differ. The text is a word of the script and no here-document: see environment.py.
_SCRIPT = """\
{preamble}
folder={folder}
say() {{ printf '%s\\n' "$*"; exit 0; }}
now=$(date +%s)
[ -s "$folder/id" ] && say id "$(cat "$folder/id")"
{requirements}
mkdir -p "$folder" || say unwritable
if ! mkdir "$folder/claim" 2>/dev/null; then
    [ -s "$folder/claim/since" ] || echo "$now" > "$folder/claim/since"  # its owner was killed at once
    since=$(cat "$folder/claim/since")
    jobs=$(squeue --noheader --all --me --states=all --format='%i|%Z|%o') || say away
    days=$(((now - since) / 86400 + 2))
    id=$(printf '%s\n' "$jobs" | grep -F "|$folder/" | sort -n | head -n 1)
    [ -n "$id" ] || id=$(sacct -X -n -P --starttime=now-${{days}}days --format=JobIDRaw,WorkDir 2>/dev/null |
        grep -F "|$folder/" | sort -n | head -n 1)
    id=${{id%%[!0-9]*}}
    if [ -n "$id" ]; then
        echo "$id" > "$folder/id.draft" && mv "$folder/id.draft" "$folder/id" && say id "$id"
    fi
    [ $((now - since)) -ge {claim_s} ] || say claimed $((now - since))
    [ -s "$folder/claim/no" ] || echo "$now" > "$folder/claim/no"
    [ $((now - $(cat "$folder/claim/no"))) -ge {twice_s} ] || say claimed $((now - since))
    mv "$folder/claim" "$folder/claim.$$" || say claimed 0
    rm -r "$folder/claim.$$"
    mkdir "$folder/claim" || say claimed 0
fi
echo "$now" > "$folder/claim/since" && mkdir -p "$folder/work" || say unwritable
printf %s {text} | cat > "$folder/job.sh" || say unwritable
echo $((now + {start_limit_s})) > "$folder/not_after" || say unwritable
{exports}
id=$(sbatch --parsable {options} "$folder/job.sh" < /dev/null) || say refused $?
id=${{id%%;*}}
case $id in "" | *[!0-9]*) say away ;; esac  # sbatch has said something else, so squeue is asked the next time
echo "$id" > "$folder/id.draft" && mv "$folder/id.draft" "$folder/id"
say id "$id"
"""


# Without a job: what sbatch says about the script.
_TEST_ONLY_SCRIPT = """\
{preamble}
printf %s {text} | sbatch --test-only
"""


@dataclass(frozen=True)
class SubmissionResult:
    """What the submission printed.

    Attributes:
        outcome: "id", "refused", "claimed", "away", "unwritable" or "missing".
        detail: the job's id, sbatch's exit code, the age of the claim, or what is missing ("archive", "data");
            "" with other outcomes.
        errors: what the commands wrote to standard error.
    """

    outcome: str
    detail: str
    errors: str

    @property
    def unsure(self) -> bool:
        """Whether a job may or may not have been submitted."""
        if self.outcome == "refused":
            return bool(UNSURE.search(self.errors))
        return self.outcome not in ("id", "missing", "unwritable")


def submission_script(spec: JobSpec, text: str, folder: str, requirements: str = "") -> bytes:
    """Build the command that submits a job. `sh` reads it from standard input, so that no process list shows secrets.

    Args:
        spec: the job.
        text: its sbatch script.
        folder: the job's folder on the login node.
        requirements: shell lines that end the command with `say missing …` when something is not there.
    """
    secrets = {name: value for name, value in spec.env.items() if names_a_secret(name)}
    exports = [f"export {name}={shlex.quote(value)}" for name, value in secrets.items()]
    script = _SCRIPT.format(
        preamble=submission_preamble(text),
        folder=shlex.quote(folder),
        requirements=requirements,
        claim_s=CLAIM_S,
        twice_s=TWICE_S,
        text=shlex.quote(text),
        start_limit_s=int(spec.start_limit_s),
        exports="\n".join(exports),
        options=f"--export={','.join(secrets)}" if secrets else "",
    )
    return script.encode(errors="surrogateescape")


def is_below(path: str, folder: str) -> bool:
    """Whether a path on the platform lies below a folder. One with `..` may lead anywhere, by a link."""
    return ".." not in path.split("/") and PurePosixPath(folder) in PurePosixPath(path).parents


def requirements(archive: str | None, data_dir: str | None, work_dir: str) -> str:
    """Return shell lines that look for code and data on the login node.

    Data are missing only where the folder above them is there: a login node need not see the compute nodes' disks.
    """
    lines = []
    if archive:
        lines.append(f"[ -f {shlex.quote(archive)} ] || say missing archive")
    if data_dir:
        parent = data_dir.rpartition("/")[0] or "/"
        if is_below(data_dir, work_dir):
            parent = work_dir
        lines.append(f"[ -d {shlex.quote(data_dir)} ] || ! [ -d {shlex.quote(parent)} ] || say missing data")
    return "\n".join(lines)


def parse_result(stdout: bytes, stderr: bytes) -> SubmissionResult:
    """Read the last line that the submission printed."""
    last_line = stdout.decode(errors="replace").strip().rpartition("\n")[2]
    outcome, _, detail = last_line.partition(" ")
    return SubmissionResult(outcome, detail.strip(), stderr.decode(errors="replace").strip())


def sbatch_test_only(transport: Transport, text: str) -> tuple[bool, str]:
    """Ask Slurm whether it would take a script, without a job: `sbatch --test-only`.

    Returns:
        Whether it would, and its message in one line.

    Raises:
        AwayError: the controller does not answer.
    """
    script = _TEST_ONLY_SCRIPT.format(preamble=submission_preamble(text), text=shlex.quote(text))
    result = transport.run(["sh", "-s"], input=script.encode(errors="surrogateescape"), timeout_s=LIMIT_S)
    output = (result.stderr + result.stdout).decode(errors="replace")
    lines = [line.strip() for line in output.splitlines()]
    message = "; ".join(filter(None, lines)) or f"exit code {result.exit_code}"
    if result.exit_code and UNSURE.search(message):
        raise AwayError(f"{transport.where}: {message}")
    return result.exit_code == 0, message
