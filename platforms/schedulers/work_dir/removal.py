"""What goes from below a work_dir is removed by a command on the login node, which puts back what has changed since."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence

from platforms.schedulers.work_dir.listing import LIMIT_S, REMOVING, UNREAD, error_text
from platforms.schedulers.work_dir.removal_plan import RemovalPlan
from platforms.transports import Transport

ARCHIVES_S = 5  # between taking a code archive out of sight and looking whether a submission has just begun to need it
MOST = 1000  # folders that one command removes

# Whatever has changed since it was looked at is put back. A rename changes nothing in what is renamed. A job may leave
# folders that not even their owner may write to, which rm does not change; what is left then stays aside, and the next
# prune tries again.
_REMOVE = """\
cd -P -- {work_dir} && ! [ -L {kind} ] && cd -- {kind} || exit 3
aside() {{
    [ "$2" "$1" ] && ! [ -L "$1" ] && [ -O "$1" ] || {{ echo "left $1 it is not there any more as it was"; return 1; }}
    case $1 in {going}*) return 0 ;; esac
    mv -T -- "$1" "{going}$1" || {{ echo "left $1 it cannot be renamed"; return 1; }}
    [ -z "$(find "{going}$1" -maxdepth 1 -newermt "@$3" -print)" ] && return 0
    mv -T -- "{going}$1" "$1"
    echo "left $1 it has changed just now"
    return 1
}}
gone() {{
    aside="{going}${{1#{going}}}"
    rm -rf -- "$aside" 2> /dev/null && {{ echo "gone $1"; return; }}
    find "$aside" -type d ! -perm -700 -exec chmod u+rwx {{}} \\; 2> /dev/null
    said=$(LC_ALL=C rm -rf -- "$aside" 2>&1) && {{ echo "gone $1"; return; }}
    echo "left $1 not all of it can be removed, the rest is $aside: $(printf '%s\\n' "$said" | head -n 1)"
}}
{lines}
"""


def remove(transport: Transport, work_dir: str, judged: RemovalPlan) -> tuple[list[str], list[str]]:
    """Remove what goes. Returns the names of what is gone, and a sentence for each that is not. Raises AwayError."""
    gone: list[str] = []
    wrong: list[str] = []
    jobs = [each.name for each in judged.jobs if each.goes]
    batches = [("jobs", jobs[start : start + MOST]) for start in range(0, len(jobs), MOST)]
    for kind, names in (*batches, ("archives", [each.name for each in judged.code])):
        if not names:
            continue
        lines = _of_jobs(names, judged) if kind == "jobs" else _of_archives(names, judged)
        script = _REMOVE.format(work_dir=shlex.quote(work_dir), kind=kind, going=REMOVING, lines="\n".join(lines))
        done = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
        said = [line.split(" ", 2) for line in done.stdout.decode(errors="replace").splitlines()]
        gone += [word[1] for word in said if word[0] == "gone"]
        left = [f"{work_dir}/{kind}/{word[1]}: {word[2]}" for word in said if word[0] == "left"]
        if len(said) != len(names):
            left.append(f"{work_dir}/{kind}: not all were looked at")
        wrong += [*left, error_text(done)] if left and done.stderr else left
    return gone, wrong


def _of_jobs(names: Iterable[str], judged: RemovalPlan) -> Iterator[str]:
    for name in names:
        yield f"aside {name} -d {math.ceil(judged.changed_s[name])} && gone {name}"


def _of_archives(names: Sequence[str], judged: RemovalPlan) -> Iterator[str]:
    """A submission looks for the archive before it writes the script that names it."""
    for number, name in enumerate(names):
        yield f"aside {name} -f {math.ceil(judged.changed_s[name])} && taken{number}=1"
    yield f"sleep {ARCHIVES_S}"
    yield f"unread=$({UNREAD.format(jobs='../jobs')})"
    scripts = "find ../jobs -mindepth 2 -maxdepth 2 -type f -name job.sh"
    for number, name in enumerate(names):
        used = f"{scripts} -exec grep -lFs {name.removeprefix(REMOVING)} {{}} +"
        back = (
            f'[ -e {name} ] || mv -T -- "{REMOVING}{name}" {name}; echo "left {name} a job has just begun to need it"'
        )
        yield f'[ -z "$taken{number}" ] || if [ -n "$unread$({used})" ]; then {back}; else gone {name}; fi'
