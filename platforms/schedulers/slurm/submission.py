"""One submission as one shell command on the login node: claim the job's folder, write the script, call sbatch once."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from platforms.job import JobSpec, names_a_secret
from platforms.schedulers.slurm.environment import submission_preamble
from platforms.schedulers.slurm.errors import UNSURE

LIMIT_S = 120  # of a submission; sbatch itself gives up within Slurm's MessageTimeout (10 to 100 s)
CLAIM_S = LIMIT_S + 30  # after which no sbatch of whoever claimed the folder can still be under way
TWICE_S = 15  # between two answers of Slurm that it knows no such job, before we believe it

# $folder is claimed by mkdir, which one of many callers wins; its sbatch is the only one. A caller that finds a
# claim without an id asks Slurm by the job's unique name, and takes an old claim over only when Slurm twice said no.
# The text is a word of the script, and no here-document: see environment.py.
_SCRIPT = """\
{clean}
folder={folder}
say() {{ printf '%s\\n' "$*"; exit 0; }}
now=$(date +%s)
[ -s "$folder/id" ] && say id "$(cat "$folder/id")"
{needs}
mkdir -p "$folder" || say unwritable
if ! mkdir "$folder/claim" 2>/dev/null; then
    [ -s "$folder/claim/since" ] || echo "$now" > "$folder/claim/since"  # its owner was killed at once
    since=$(cat "$folder/claim/since")
    id=$(squeue --noheader --me --states=all --name={name} --format=%i) || say away
    [ -n "$id" ] || id=$(sacct -X -n -P --name={name} --starttime=now-7days --format=JobIDRaw 2>/dev/null)
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
echo "$id" > "$folder/id.draft" && mv "$folder/id.draft" "$folder/id"
say id "$id"
"""


@dataclass(frozen=True)
class SubmissionResult:
    """What the login node said: `word` is id, refused, claimed, away, unwritable or missing."""

    word: str
    rest: str
    errors: str

    @property
    def unsure(self) -> bool:
        """It was left open whether there is a job."""
        if self.word == "refused":
            return bool(UNSURE.search(self.errors))
        return self.word not in ("id", "missing", "unwritable")


def submission_script(spec: JobSpec, text: str, folder: str, needs: str = "") -> bytes:
    """The command, to be read by `sh` from its standard input, so that secrets stand in no process list.

    `needs` are shell lines that end it by `say missing …` when something is not there.
    """
    hidden = {name: value for name, value in spec.env.items() if names_a_secret(name)}
    exports = [f"export {name}={shlex.quote(value)}" for name, value in hidden.items()]
    filled = _SCRIPT.format(
        clean=submission_preamble(text),
        folder=shlex.quote(folder),
        name=shlex.quote(spec.name),
        needs=needs,
        claim_s=CLAIM_S,
        twice_s=TWICE_S,
        text=shlex.quote(text),
        start_limit_s=int(spec.start_limit_s),
        exports="\n".join(exports),
        options=f"--export={','.join(hidden)}" if hidden else "",
    )
    return filled.encode(errors="surrogateescape")


def requirements(archive: str | None, data_dir: str | None, work_dir: str) -> str:
    """Shell lines that look for code and data where the login node can see them."""
    lines = [f"[ -f {shlex.quote(archive)} ] || say missing archive"] if archive else []
    if data_dir:
        quoted = shlex.quote(data_dir)
        parent = shlex.quote(work_dir if data_dir.startswith(f"{work_dir}/") else data_dir.rpartition("/")[0] or "/")
        lines.append(f"[ -d {quoted} ] || ! [ -d {parent} ] || say missing data")
    return "\n".join(lines)


def parse_result(stdout: bytes, stderr: bytes) -> SubmissionResult:
    """The last line of what the command printed."""
    line = stdout.decode(errors="replace").strip().rpartition("\n")[2]
    word, _, rest = line.partition(" ")
    return SubmissionResult(word, rest.strip(), stderr.decode(errors="replace").strip())
