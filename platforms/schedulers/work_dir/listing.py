"""One command on a login node that tells what lies below a work_dir and which jobs live, and what its answer says."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from platforms.job import AwayError, RefusedError
from platforms.rundir.retention import Leftover
from platforms.schedulers.slurm.environment import UNSET_SLURM_VARIABLES
from platforms.schedulers.slurm.rows import JobRow
from platforms.transports import CommandResult, Transport

LIMIT_S = 600.0  # of a command; a parallel file system may take minutes for ten thousand folders

JOB = re.compile(r"[a-z0-9][a-z0-9-]*-k[a-z2-7]{7}")
CODE = re.compile(r"(models|node-report)-[0-9a-f]{12}\.pyz?")
# Whole, or as far as a broken connection let it.
BROUGHT = re.compile(rf"{CODE.pattern}|\.{CODE.pattern}\.[0-9a-f]{{8}}")
REMOVING = ".going-"  # before a name: a prune was killed while it removed this

# Lines `id|state|name` of the jobs that live, then the exit code of who was asked.
SQUEUE = f"""\
{UNSET_SLURM_VARIABLES}squeue --noheader --me --states=all --format='%i|%T|%j'
echo "asked $?"
"""
# Of jobs under a supervisor: its process, where that can be seen; the pid of another's counts as well.
SUPERVISORS = """\
for record in jobs/*-k*/pid; do
    folder=${record%/pid}
    [ -f "$record" ] && ! [ -e "$folder/exit" ] || continue
    if ! grep -qF "\\"host\\": \\"$(uname -n)\\"" "$record"; then echo "0|ELSEWHERE|${folder#jobs/}"
    elif [ -d "/proc/$(grep -o '"pid": [0-9]*' "$record" | tr -dc 0-9)" ]; then echo "0|RUNNING|${folder#jobs/}"; fi
done
echo "asked 0"
"""
# The folders and scripts of jobs that may need any code archive, since nobody but their owners may read them.
UNREAD = """\
find {jobs} -mindepth 1 -maxdepth 2 \\( -path '{jobs}/*/*' ! -name job.sh \\) -prune \\
    -o -type d -name '[a-z0-9]*-k*' \\( ! -readable -o ! -executable \\) -print \\
    -o -name job.sh ! -readable -print 2> /dev/null"""
# Exit codes: 3 where nothing was ever brought, 4 where that cannot be known.
_LOOK = """\
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
    """A job's. `changed_s` is when it or anything right in it was; after `may_start_s` the job does not begin; `test`
    is the test's id, as its script has it."""

    uid: int = -1
    changed_s: float = 0.0
    inside: frozenset[str] = frozenset()
    size_bytes: int = 0
    exit_code: int | None = None
    may_start_s: float = 0.0
    code: frozenset[str] = frozenset()
    test: str = ""


@dataclass(frozen=True)
class WorkDirListing:
    """A work_dir as one command has shown it. `live` are states by the name of a job; `unread` are folders and scripts
    that may not be read; `missing` where there is no work_dir."""

    live: Mapping[str, str] = field(default_factory=dict)
    now_s: float = 0.0
    uid: int = -1
    jobs: Mapping[str, RemoteJobFolder] = field(default_factory=dict)
    archives: Mapping[str, Leftover] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    missing: bool = False


def list_work_dir(transport: Transport, work_dir: str, live: str) -> WorkDirListing:
    """Ask once. `live` is SQUEUE or SUPERVISORS.

    Raises:
        RefusedError: the folder cannot be entered, or nobody tells which jobs live.
        AwayError: no answer.
    """
    token = f"hpcml-{secrets.token_hex(8)}"
    script = _LOOK.format(
        work_dir=shlex.quote(work_dir),
        parent=shlex.quote(work_dir.rstrip("/").rpartition("/")[0] or "/"),
        token=token,
        live=live,
        unread=UNREAD.format(jobs="jobs"),
        code=shlex.quote(CODE.pattern),
    )
    done = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
    if done.exit_code == 3:
        return WorkDirListing(missing=True)
    if done.exit_code == 4:
        raise RefusedError(
            f"{transport.where}: {work_dir} cannot be looked into, so nothing is removed: {error_text(done)}; "
            "is its file system mounted there, and is it ours?"
        )
    parts = done.stdout.split(f"\n{token} ".encode())
    texts = {name.decode(): rest for name, _, rest in (part.partition(b"\n") for part in parts[1:])}
    if "end" not in texts:
        raise AwayError(f"{transport.where}: {work_dir} cannot be looked at: {error_text(done)}")
    rows, asked, code = texts["live"].decode(errors="replace").rpartition("asked ")
    if not asked or code.strip() != "0":
        raise RefusedError(
            f"{transport.where}: nobody tells which jobs live, so nothing is removed: {error_text(done)}"
        )
    now_s, uid = map(int, texts["about"].split())
    unread = frozenset(texts["unread"].decode(errors="replace").splitlines())
    return WorkDirListing(
        dict(_live(rows)), now_s, uid, _folders(texts), dict(_archives(texts["entries"], now_s, uid)), unread
    )


def error_text(done: CommandResult) -> str:
    """What a command has said, in one line."""
    said = done.stderr.decode(errors="replace").strip().replace("\n", "; ")
    return said or f"exit code {done.exit_code}"


def _live(rows: str) -> Iterator[tuple[str, str]]:
    for line in rows.splitlines():
        job_id, _, rest = line.partition("|")
        state, _, name = rest.partition("|")
        if JobRow(job_id, name, state).live:
            yield name.strip(), state


def _entries(text: bytes) -> Iterator[tuple[str, int, float, int, list[str]]]:
    """Type, owner, time and size of each, and its path in work_dir."""
    for entry in text.split(b"\0"):
        fields = entry.decode(errors="replace").split(" ", 4)
        if len(fields) == 5:
            yield fields[0].strip(), int(fields[1]), float(fields[2]), int(fields[3]), fields[4].split("/", 2)


def _folders(texts: Mapping[str, bytes]) -> dict[str, RemoteJobFolder]:
    """Of our jobs, by name."""
    own: dict[str, RemoteJobFolder] = {}
    inside: dict[str, dict[str, float]] = {}
    for kind, uid, changed_s, _size, path in _entries(texts["entries"]):
        if path[0] != "jobs" or not JOB.fullmatch(path[1].removeprefix(REMOVING)):
            continue
        if len(path) == 3:
            inside.setdefault(path[1], {})[path[2]] = changed_s
        elif kind == "d":
            own[path[1]] = RemoteJobFolder(uid, changed_s)
    sizes = {path: int(kilobytes) * 1024 for kilobytes, path in _pairs(texts["sizes"], "\t") if kilobytes.isdigit()}
    exits = {path: int(re.sub(r"\D", "", said)) for path, said in _pairs(texts["exits"], ":")}
    starts = {path: float(said) for path, said in _pairs(texts["starts"], ":")}
    tests = {path: said.removeprefix("# ").rpartition(" on ")[0] for path, said in _pairs(texts["tests"], ":")}
    code: dict[str, set[str]] = {}
    for script, said in _pairs(texts["code"], ":"):
        code.setdefault(script, set()).add(said)
    return {
        name: replace(
            folder,
            changed_s=max([folder.changed_s, *inside.get(name, {}).values()]),
            inside=frozenset(inside.get(name, ())),
            size_bytes=sizes.get(f"jobs/{name}", 0),
            exit_code=exits.get(f"jobs/{name}/exit"),
            may_start_s=starts.get(f"jobs/{name}/not_after", 0.0),
            code=frozenset(code.get(f"jobs/{name}/job.sh", ())),
            test=tests.get(f"jobs/{name}/job.sh", ""),
        )
        for name, folder in own.items()
    }


def _archives(text: bytes, now_s: float, uid: int) -> Iterator[tuple[str, Leftover]]:
    for kind, owner, changed_s, size, path in _entries(text):
        ours = path[0] == "archives" and len(path) == 2 and (kind, owner) == ("f", uid)
        if ours and BROUGHT.fullmatch(path[1].removeprefix(REMOVING)):
            yield path[1], Leftover(path[1], now_s - changed_s, size)


def _pairs(text: bytes, between: str) -> Iterator[tuple[str, str]]:
    for line in text.decode(errors="replace").splitlines():
        first, found, second = line.partition(between)
        if found:
            yield first, second
