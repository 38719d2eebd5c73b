"""Removes leftovers below a work_dir with commands on the login node, and puts back what has changed since."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence

from platforms.schedulers.work_dir.listing import LIMIT_S, REMOVING, UNREAD, error_text
from platforms.schedulers.work_dir.removal_plan import RemovalPlan
from platforms.transports import Transport

ARCHIVES_S = 5  # from the rename of a code archive to the check whether a new submission needs it
MOST = 1000  # folders that one command removes

# Each leftover is renamed first. One that has changed since it was listed gets its name back; the rename itself changes
# nothing in it. A job may leave folders that not even their owner may write to, which rm does not change. What cannot
# be removed stays under the new name, and the next prune tries again.
_REMOVE_SCRIPT = """\
cd -P -- {work_dir} && ! [ -L {kind} ] && cd -- {kind} || exit 3
aside() {{
    [ "$2" "$1" ] && ! [ -L "$1" ] && [ -O "$1" ] || {{ echo "left $1 it is no longer as it was listed"; return 1; }}
    case $1 in {prefix}*) return 0 ;; esac
    mv -T -- "$1" "{prefix}$1" || {{ echo "left $1 it cannot be renamed"; return 1; }}
    [ -z "$(find "{prefix}$1" -maxdepth 1 -newermt "@$3" -print)" ] && return 0
    mv -T -- "{prefix}$1" "$1"
    echo "left $1 it has changed just now"
    return 1
}}
gone() {{
    aside="{prefix}${{1#{prefix}}}"
    rm -rf -- "$aside" 2> /dev/null && {{ echo "gone $1"; return; }}
    find "$aside" -type d ! -perm -700 -exec chmod u+rwx {{}} \\; 2> /dev/null
    said=$(LC_ALL=C rm -rf -- "$aside" 2>&1) && {{ echo "gone $1"; return; }}
    echo "left $1 not all of it can be removed, the rest is $aside: $(printf '%s\\n' "$said" | head -n 1)"
}}
{lines}
"""


def remove(transport: Transport, work_dir: str, plan: RemovalPlan) -> tuple[list[str], list[str]]:
    """Remove what goes.

    Returns:
        The names of what is gone, and a sentence for each leftover that is not.

    Raises:
        AwayError: no answer.
    """
    gone: list[str] = []
    problems: list[str] = []

    def run(kind: str, names: Sequence[str], lines: Iterable[str]) -> None:
        script = _REMOVE_SCRIPT.format(
            work_dir=shlex.quote(work_dir), kind=kind, prefix=REMOVING, lines="\n".join(lines)
        )
        result = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
        reports = [line.split(" ", 2) for line in result.stdout.decode(errors="replace").splitlines()]
        gone.extend(report[1] for report in reports if report[0] == "gone")
        left = [f"{work_dir}/{kind}/{report[1]}: {report[2]}" for report in reports if report[0] == "left"]
        if len(reports) != len(names):
            left.append(f"{work_dir}/{kind}: not all were looked at")
        if left and result.stderr:
            left.append(error_text(result))
        problems.extend(left)

    jobs = [job.name for job in plan.jobs if job.goes]
    for start in range(0, len(jobs), MOST):
        batch = jobs[start : start + MOST]
        run("jobs", batch, _job_lines(batch, plan))
    archives = [archive.name for archive in plan.code]
    if archives:
        run("archives", archives, _archive_lines(archives, plan))
    return gone, problems


def _job_lines(names: Iterable[str], plan: RemovalPlan) -> Iterator[str]:
    for name in names:
        yield f"aside {name} -d {math.ceil(plan.changed_s[name])} && gone {name}"


def _archive_lines(names: Sequence[str], plan: RemovalPlan) -> Iterator[str]:
    """A submission looks for the archive before it writes the script that names it, hence the pause between."""
    for number, name in enumerate(names):
        yield f"aside {name} -f {math.ceil(plan.changed_s[name])} && taken{number}=1"
    yield f"sleep {ARCHIVES_S}"
    yield f"unread=$({UNREAD.format(jobs='../jobs')})"
    find_scripts = "find ../jobs -mindepth 2 -maxdepth 2 -type f -name job.sh"
    for number, name in enumerate(names):
        find_users = f"{find_scripts} -exec grep -lFs {name.removeprefix(REMOVING)} {{}} +"
        put_back = f'[ -e {name} ] || mv -T -- "{REMOVING}{name}" {name}'
        report = f'echo "left {name} a job has just begun to need it"'
        yield f'[ -z "$taken{number}" ] ||'
        yield f'    if [ -n "$unread$({find_users})" ]; then {put_back}; {report}; else gone {name}; fi'
