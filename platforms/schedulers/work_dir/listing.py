"""Lists what lies below a work_dir, and which jobs live, with one command on the login node."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from platforms.job import AwayError, RefusedError
from platforms.rundir.retention import Leftover
from platforms.transports import CommandResult, Transport

LIMIT_S = 600.0  # a parallel file system may take minutes for ten thousand folders

JOB = re.compile(r"[a-z0-9][a-z0-9-]*-k[a-z2-7]{7}")
CODE = re.compile(r"(models|node-report)-[0-9a-f]{12}\.pyz?")
# A code archive, or the draft that a broken connection left of one.
ARCHIVE_OR_DRAFT = re.compile(rf"{CODE.pattern}|\.{CODE.pattern}\.[0-9a-f]{{8}}")
REMOVING = ".going-"  # prefix of a name: a prune began to remove this and was killed


@dataclass(frozen=True)
class LiveJobs:
    """How a scheduler says which of its jobs live.

    Attributes:
        script: shell lines, run in the work_dir. They print `id|state|name` for each job of ours, then `asked CODE`
            with the exit code of the question. Nothing is removed if the code is not 0.
        lives: whether a job in this state lives.
    """

    script: str
    lives: Callable[[str], bool] = bool


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
# Folders and scripts of jobs that only their owners may read. Such a job may need any code archive.
UNREAD = """\
find {jobs} -mindepth 1 -maxdepth 2 \\( -path '{jobs}/*/*' ! -name job.sh \\) -prune \\
    -o -type d -name '[a-z0-9]*-k*' \\( ! -readable -o ! -executable \\) -print \\
    -o -name job.sh ! -readable -print 2> /dev/null"""
# Exit codes: 3 if there is no work_dir, 4 if it cannot be listed.
_LIST_SCRIPT = """\
cd -P -- {work_dir} 2> /dev/null || {{
    ! [ -e {work_dir} ] && ! [ -L {work_dir} ] && [ -d {parent} ] && [ -x {parent} ] && exit 3
    LC_ALL=C ls -d -- {work_dir}/. > /dev/null
    exit 4
}}
for kind in jobs archives; do [ ! -e $kind ] || LC_ALL=C ls $kind/. > /dev/null || exit 4; done
mark() {{ printf '\\n{token} %s\\n' "$1"; }}
mark live
{live}
mark about
echo "$(date +%s) $(id -u)"
mark entries
find jobs archives -mindepth 1 -maxdepth 2 -printf '%y %U %T@ %s %p\\0' 2>/dev/null
mark unread
{unread}
mark sizes
find jobs -mindepth 1 -maxdepth 1 -type d -exec du -sk {{}} + 2>/dev/null
mark exits
find jobs -mindepth 2 -maxdepth 2 -type f -name exit -exec grep -EHos '"?exit_code"?[=:] ?[0-9]+' {{}} +
mark starts
find jobs -mindepth 2 -maxdepth 2 -type f -name not_after -exec grep -EHos '^[0-9]+$' {{}} +
mark code
find jobs -mindepth 2 -maxdepth 2 -type f -name job.sh -exec grep -EHos {code} {{}} +
mark tests
find jobs -mindepth 2 -maxdepth 2 -type f -name job.sh -exec grep -aEHsm1 '^# .+ on [^ ]+, [0-9]+x[0-9]+' {{}} +
mark end
"""


@dataclass(frozen=True)
class RemoteJobFolder:
    """The folder of one job.

    Attributes:
        uid: its owner.
        changed_s: the latest change of the folder or of anything directly in it, Unix seconds.
        entries: names of what is directly in it.
        size_bytes: size of everything in it.
        exit_code: from the exit file; None when there is none.
        may_start_s: after this time (Unix seconds) the job does not start.
        code: names of the code archives that its script mentions.
        test: the key of the job (JobSpec.key), as its script has it.
    """

    uid: int = -1
    changed_s: float = 0.0
    entries: frozenset[str] = frozenset()
    size_bytes: int = 0
    exit_code: int | None = None
    may_start_s: float = 0.0
    code: frozenset[str] = frozenset()
    test: str = ""


@dataclass(frozen=True)
class WorkDirListing:
    """What lies below a work_dir.

    Attributes:
        live_states: the scheduler's state of each live job, by the job's name.
        now_s: time on the login node, Unix seconds.
        uid: our user id there.
        job_folders: by name.
        archives: our code archives, by name.
        unreadable: paths of folders and scripts that we may not read.
        missing: there is no work_dir; everything else is empty.
    """

    live_states: Mapping[str, str] = field(default_factory=dict)
    now_s: float = 0.0
    uid: int = -1
    job_folders: Mapping[str, RemoteJobFolder] = field(default_factory=dict)
    archives: Mapping[str, Leftover] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()
    missing: bool = False


def list_work_dir(transport: Transport, work_dir: str, live_jobs: LiveJobs) -> WorkDirListing:
    """List a work_dir, and ask the scheduler which jobs live.

    Raises:
        RefusedError: the folder cannot be listed, or the live jobs cannot be.
        AwayError: no answer.
    """
    token = f"hpcml-{secrets.token_hex(8)}"
    script = _LIST_SCRIPT.format(
        work_dir=shlex.quote(work_dir),
        parent=shlex.quote(work_dir.rstrip("/").rpartition("/")[0] or "/"),
        token=token,
        live=live_jobs.script,
        unread=UNREAD.format(jobs="jobs"),
        code=shlex.quote(CODE.pattern),
    )
    result = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
    if result.exit_code == 3:
        return WorkDirListing(missing=True)
    if result.exit_code == 4:
        raise RefusedError(
            f"{transport.where}: {work_dir} cannot be listed, so nothing is removed: {error_text(result)}; is its file "
            "system mounted there, and is it ours?"
        )
    sections = _sections(result.stdout, token)
    if "end" not in sections:
        raise AwayError(f"{transport.where}: {work_dir} cannot be listed: {error_text(result)}")
    live_lines, answered, exit_code = sections["live"].decode(errors="replace").rpartition("asked ")
    if not answered or exit_code.strip() != "0":
        raise RefusedError(
            f"{transport.where}: it is not known which jobs live, so nothing is removed: {error_text(result)}"
        )
    now, uid = sections["about"].split()
    return WorkDirListing(
        live_states=_live_states(live_lines, live_jobs.lives),
        now_s=int(now),
        uid=int(uid),
        job_folders=_job_folders(sections),
        archives=_archives(sections["entries"], int(now), int(uid)),
        unreadable=frozenset(sections["unread"].decode(errors="replace").splitlines()),
    )


def error_text(result: CommandResult) -> str:
    """Return what a command wrote to standard error, in one line."""
    text = result.stderr.decode(errors="replace").strip().replace("\n", "; ")
    return text or f"exit code {result.exit_code}"


def _sections(output: bytes, token: str) -> dict[str, bytes]:
    """Split the script's output at its marks."""
    sections = {}
    for part in output.split(f"\n{token} ".encode())[1:]:
        name, _, content = part.partition(b"\n")
        sections[name.decode()] = content
    return sections


def _live_states(lines: str, lives: Callable[[str], bool]) -> dict[str, str]:
    states = {}
    for line in lines.splitlines():
        _, _, state_and_name = line.partition("|")
        state, separator, name = state_and_name.partition("|")
        if separator and lives(state):
            states[name.strip()] = state
    return states


@dataclass(frozen=True)
class _Entry:
    """A line of the section `entries`. `path` begins in work_dir and has up to three parts."""

    kind: str
    uid: int
    changed_s: float
    size_bytes: int
    path: list[str]


def _entries(section: bytes) -> Iterator[_Entry]:
    for line in section.split(b"\0"):
        fields = line.decode(errors="replace").split(" ", 4)
        if len(fields) == 5:
            kind, uid, changed, size, path = fields
            yield _Entry(kind.strip(), int(uid), float(changed), int(size), path.split("/", 2))


def _job_folders(sections: Mapping[str, bytes]) -> dict[str, RemoteJobFolder]:
    """Read our jobs' folders, by name, from all sections."""
    folders: dict[str, RemoteJobFolder] = {}
    changes_inside: dict[str, dict[str, float]] = {}
    for entry in _entries(sections["entries"]):
        if entry.path[0] != "jobs" or not JOB.fullmatch(entry.path[1].removeprefix(REMOVING)):
            continue
        name = entry.path[1]
        if len(entry.path) == 3:
            changes_inside.setdefault(name, {})[entry.path[2]] = entry.changed_s
        elif entry.kind == "d":
            folders[name] = RemoteJobFolder(entry.uid, entry.changed_s)

    sizes = {path: int(kib) * 1024 for kib, path in _pairs(sections["sizes"], "\t") if kib.isdigit()}
    exit_codes = {path: int(re.sub(r"\D", "", text)) for path, text in _pairs(sections["exits"], ":")}
    start_limits = {path: float(text) for path, text in _pairs(sections["starts"], ":")}
    first_comments = dict(_pairs(sections["tests"], ":"))
    code: dict[str, set[str]] = {}
    for path, archive in _pairs(sections["code"], ":"):
        code.setdefault(path, set()).add(archive)

    for name, folder in folders.items():
        changes = changes_inside.get(name, {})
        comment = first_comments.get(f"jobs/{name}/job.sh", "")  # `# TEST on PLATFORM, LAYOUT`
        folders[name] = replace(
            folder,
            changed_s=max([folder.changed_s, *changes.values()]),
            entries=frozenset(changes),
            size_bytes=sizes.get(f"jobs/{name}", 0),
            exit_code=exit_codes.get(f"jobs/{name}/exit"),
            may_start_s=start_limits.get(f"jobs/{name}/not_after", 0.0),
            code=frozenset(code.get(f"jobs/{name}/job.sh", ())),
            test=comment.removeprefix("# ").rpartition(" on ")[0],
        )
    return folders


def _archives(section: bytes, now_s: float, uid: int) -> dict[str, Leftover]:
    """Read our code archives, by name, from the section `entries`."""
    archives = {}
    for entry in _entries(section):
        is_ours = entry.path[0] == "archives" and len(entry.path) == 2 and entry.kind == "f" and entry.uid == uid
        if is_ours and ARCHIVE_OR_DRAFT.fullmatch(entry.path[1].removeprefix(REMOVING)):
            name = entry.path[1]
            archives[name] = Leftover(name, now_s - entry.changed_s, entry.size_bytes)
    return archives


def _pairs(section: bytes, separator: str) -> Iterator[tuple[str, str]]:
    for line in section.decode(errors="replace").splitlines():
        first, found, second = line.partition(separator)
        if found:
            yield first, second
