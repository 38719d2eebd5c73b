"""What ended jobs have left in a platform's work_dir: found and removed by commands on the login node, for `prune`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from platforms import transports
from platforms.config.schema import Platform
from platforms.job import AwayError, RefusedError
from platforms.rundir.retention import DAY_S, Leftover
from platforms.schedulers import LiveJobs
from platforms.transports import CommandResult

LIMIT_S = 600.0  # a parallel file system may take minutes for ten thousand folders
JOB = re.compile(r"[a-z0-9][a-z0-9-]*-k[a-z2-7]{7}")
# A job without an exit file may wait in the queue of another cluster that shares the work_dir, so it stays this long.
SILENT_S = 30 * DAY_S


# A job under a supervisor is live while the supervisor's process is. A process of another user counts as well.
SUPERVISORS = LiveJobs("""\
for record in jobs/*-k*/pid; do
    folder=${record%/pid}
    [ -f "$record" ] && ! [ -e "$folder/exit" ] || continue
    if ! grep -qF "\\"host\\": \\"$(uname -n)\\"" "$record"; then echo "0|ELSEWHERE|${folder#jobs/}"
    elif [ -d "/proc/$(grep -o '"pid": [0-9]*' "$record" | tr -dc 0-9)" ]; then echo "0|RUNNING|${folder#jobs/}"; fi
done
echo "asked 0"
""")
# Exit codes: 3 if there is no work_dir, 4 if it cannot be listed.
_FIND_SCRIPT = """\
cd -P -- {work_dir} 2> /dev/null || {{
    ! [ -e {work_dir} ] && ! [ -L {work_dir} ] && [ -d {parent} ] && [ -x {parent} ] && exit 3
    LC_ALL=C ls -d -- {work_dir}/. > /dev/null
    exit 4
}}
[ ! -e jobs ] || LC_ALL=C ls jobs/. > /dev/null || exit 4
{live}
printf '%s %s\\0' "$(date +%s)" "$(id -u)"
find jobs -mindepth 1 -maxdepth 2 -printf '%y %U %T@ %P\\0' 2> /dev/null
:
"""
# A folder that has changed since it was found stays. A job may leave folders that not even their owner may write to,
# which rm does not change.
_REMOVE_SCRIPT = """\
cd -P -- {work_dir} && ! [ -L jobs ] && cd jobs || exit 4
for name in {names}; do
    if [ -n "$(find "$name" -maxdepth 1 -newermt @{found_s} 2>&1)" ]; then
        echo "$name: it has changed just now"
        continue
    fi
    rm -rf -- "$name" 2> /dev/null && continue
    find "$name" -type d ! -perm -700 -exec chmod u+rwx {{}} \\; 2> /dev/null
    said=$(LC_ALL=C rm -rf -- "$name" 2>&1) || echo "$name: not all of it can be removed: $(echo "$said" | head -n 1)"
done
echo done
"""


class WorkDir:
    """The folders of jobs in a platform's work_dir. Use it in a with statement, which closes its connection.

    Raises RefusedError where the scheduler cannot say which of its jobs live: one that lives must not be taken for
    dead.
    """

    def __init__(self, platform: Platform, live_jobs: LiveJobs | None) -> None:
        if live_jobs is None or platform.work_dir is None:
            raise RefusedError(
                f"{platform.source}: prune cannot ask scheduler {platform.scheduler} which of its jobs live, so it "
                f"removes nothing there; remove what is old in {platform.work_dir or 'its folder'} by hand"
            )
        self._folder = str(platform.work_dir)
        self._live_jobs = live_jobs
        self._transport = transports.connect(platform)
        self._found_s = 0

    @property
    def where(self) -> str:
        return f"{self._transport.where}, {self._folder}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._transport.close()

    def find(self) -> list[Leftover]:
        """The folders of our own jobs. There is none before the first job.

        Raises:
            RefusedError: the folder cannot be listed, or the live jobs cannot be.
            AwayError: no answer.
        """
        script = _FIND_SCRIPT.format(
            work_dir=shlex.quote(self._folder),
            parent=shlex.quote(str(Path(self._folder).parent)),
            live=self._live_jobs.script,
        )
        result = self._run(script)
        if result.exit_code == 3:
            return []
        if result.exit_code == 4:
            raise RefusedError(
                f"{self.where} cannot be listed, so nothing is removed: {result.error_text}; is its file system "
                "mounted there, and is it ours?"
            )
        live_lines, asked, rest = result.stdout.decode(errors="replace").rpartition("asked ")
        if result.exit_code != 0 or not asked:
            raise AwayError(f"{self.where} cannot be listed: {result.error_text}")
        exit_code, _, listing = rest.partition("\n")
        if exit_code != "0":
            raise RefusedError(
                f"{self.where}: it is not known which jobs live, so nothing is removed: {result.error_text}"
            )
        return self._leftovers(self._live_states(live_lines), listing.split("\0"))

    def remove(self, leftovers: Sequence[Leftover]) -> list[str]:
        """Remove folders. Returns a sentence for each that stays. Raises AwayError."""
        script = _REMOVE_SCRIPT.format(
            work_dir=shlex.quote(self._folder),
            names=" ".join(leftover.name for leftover in leftovers),
            found_s=self._found_s,
        )
        result = self._run(script)
        *lines, last = result.stdout.decode(errors="replace").splitlines() or [""]
        if last != "done":
            raise AwayError(f"{self.where}: not everything was looked at: {result.error_text}")
        return [f"{self._folder}/jobs/{line}" for line in lines]

    def _run(self, script: str) -> CommandResult:
        return self._transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)

    def _live_states(self, lines: str) -> dict[str, str]:
        """The state of each live job, by its name."""
        states = {}
        for line in lines.splitlines():
            _, _, state_and_text = line.partition("|")
            state, _, text = state_and_text.partition("|")
            if self._live_jobs.lives(state):
                states.update(dict.fromkeys(JOB.findall(text), state))
        return states

    def _leftovers(self, live_states: Mapping[str, str], listing: Sequence[str]) -> list[Leftover]:
        now_s, uid = listing[0].split()
        self._found_s = int(now_s)
        changed_s: dict[str, float] = {}  # by job: the latest change of its folder or of anything directly in it
        ended = set()
        for entry in listing[1:-1]:
            kind, owner, time_s, path = entry.split(" ", 3)
            name, _, inside = path.partition("/")
            if not inside and kind == "d" and owner == uid and JOB.fullmatch(name):
                changed_s[name] = float(time_s)
            elif name in changed_s:  # find lists a folder before what is in it
                changed_s[name] = max(changed_s[name], float(time_s))
                if inside == "exit":
                    ended.add(name)
        leftovers = []
        for name, last_change_s in changed_s.items():
            leftover = Leftover(name, self._found_s - last_change_s, name)
            if name in live_states:
                leftover = replace(leftover, stays=f"the job is {live_states[name]}")
            elif name not in ended:
                leftover = replace(leftover, unsuccessful="no exit file")
                if leftover.age_s < SILENT_S:
                    leftover = replace(leftover, stays=f"no exit file: at least {SILENT_S / DAY_S:g} days")
            leftovers.append(leftover)
        return leftovers
