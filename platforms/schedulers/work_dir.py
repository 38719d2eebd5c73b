"""What the jobs of a platform have left below its work_dir: their folders and the code archives, seen and removed.

One command on the login node tells everything, and what goes is decided here; another one removes it. Nothing is
touched that is not named like ours, belongs to somebody else or is a link.
"""

from __future__ import annotations

import math
import re
import secrets
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from platforms.job import AwayError, RefusedError
from platforms.keeping import DAY_S, Keep, Left
from platforms.schedulers.slurm.states import Row
from platforms.transports import Done, Transport

LIMIT_S = 600.0  # of a command; a parallel file system may take minutes for ten thousand folders
ARCHIVES_S = 5  # between taking a code archive out of sight and looking whether a submission has just begun to need it
MOST = 1000  # folders that one command removes
SILENT_S = (
    7 * DAY_S
)  # after its last possible start a job that nobody knows may still run: clusters may share a work_dir

JOB = re.compile(r"[a-z0-9][a-z0-9-]*-k[a-z2-7]{7}")
CODE = re.compile(r"(models|node-report)-[0-9a-f]{12}\.pyz?")
BROUGHT = re.compile(
    rf"{CODE.pattern}|\.{CODE.pattern}\.[0-9a-f]{{8}}"
)  # whole, or as far as a broken connection let it
GOING = ".going-"  # before a name: a prune was killed while it removed this

# Lines `id|state|name` of the jobs that live, then the exit code of who was asked.
SQUEUE = """\
for name in $(env | sed -n 's/^\\(SQUEUE_[A-Z0-9_]*\\|SLURM_CLUSTERS\\)=.*/\\1/p'); do unset "$name"; done
squeue --noheader --me --states=all --format='%i|%T|%j'
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
_LOOK = """\
cd -P -- {work_dir} || exit 3
mark() {{ printf '\\n{token} %s\\n' "$1"; }}
mark live
{live}
mark about
echo "$(date +%s) $(id -u)"
mark entries
find jobs archives -mindepth 1 -maxdepth 2 -printf '%y %U %T@ %s %p\\0' 2>/dev/null
mark sizes
find jobs -mindepth 1 -maxdepth 1 -type d -exec du -sk {{}} + 2>/dev/null
mark exits
find jobs -mindepth 2 -maxdepth 2 -type f -name exit -exec grep -EHos '"?exit_code"?[=:] ?[0-9]+' {{}} +
mark starts
find jobs -mindepth 2 -maxdepth 2 -type f -name not_after -exec grep -EHos '^[0-9]+$' {{}} +
mark code
find jobs -mindepth 2 -maxdepth 2 -type f -name job.sh -exec grep -EHos {code} {{}} +
mark end
"""
# Whatever has changed since it was looked at is put back. A rename changes nothing in what is renamed.
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
gone() {{ if rm -rf -- "{going}${{1#{going}}}"; then echo "gone $1"; else echo "left $1 it cannot be removed"; fi; }}
{lines}
"""


@dataclass(frozen=True)
class Folder:
    """A job's. `changed_s` is when it or anything right in it was; after `may_start_s` the job does not begin."""

    uid: int = -1
    kind: str = "?"
    changed_s: float = 0.0
    inside: frozenset[str] = frozenset()
    size_bytes: int = 0
    exit_code: int | None = None
    may_start_s: float = 0.0
    code: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Seen:
    """A work_dir as one command has shown it. `live` are states by the name of a job."""

    live: Mapping[str, str] = field(default_factory=dict)
    now_s: float = 0.0
    uid: int = -1
    jobs: Mapping[str, Folder] = field(default_factory=dict)
    archives: Mapping[str, Left] = field(default_factory=dict)


@dataclass(frozen=True)
class Judged:
    """What goes and what stays, and when each was changed as it was looked at."""

    jobs: Sequence[Left]
    code: Sequence[Left]
    changed_s: Mapping[str, float]


def look(transport: Transport, work_dir: str, live: str) -> Seen:
    """Ask once. `live` is SQUEUE or SUPERVISORS. Raises RefusedError where nobody tells which jobs live, AwayError."""
    token = f"hpcml-{secrets.token_hex(8)}"
    script = _LOOK.format(work_dir=shlex.quote(work_dir), token=token, live=live, code=shlex.quote(CODE.pattern))
    done = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
    if done.exit_code == 3:
        return Seen()  # nothing was ever brought there
    parts = done.stdout.split(f"\n{token} ".encode())
    texts = {name.decode(): rest for name, _, rest in (part.partition(b"\n") for part in parts[1:])}
    if "end" not in texts:
        raise AwayError(f"{transport.where}: {work_dir} cannot be looked at: {_words(done)}")
    rows, asked, code = texts["live"].decode(errors="replace").rpartition("asked ")
    if not asked or code.strip() != "0":
        raise RefusedError(f"{transport.where}: nobody tells which jobs live, so nothing is removed: {_words(done)}")
    now_s, uid = map(int, texts["about"].split())
    jobs = _folders(texts)
    return Seen(dict(_live(rows)), now_s, uid, jobs, dict(_archives(texts["entries"], now_s, uid)))


def judge(seen: Seen, keep: Keep, needed: Mapping[str, str]) -> Judged:
    """What is old enough to go; `needed` are jobs of runs that somebody goes on with, or has pinned, and why."""
    jobs = [_judged(name, folder, seen, keep, needed) for name, folder in seen.jobs.items()]
    going = {each.name for each in jobs if each.goes}
    used = {code for name, folder in seen.jobs.items() if name not in going for code in folder.code}
    archives = [replace(each, young=keep.young(each.age_s)) for name, each in seen.archives.items() if name not in used]
    changed = {name: folder.changed_s for name, folder in seen.jobs.items()}
    changed |= {each.name: seen.now_s - each.age_s for each in archives}
    return Judged(jobs, [each for each in archives if each.goes], changed)


def only(judged: Judged, names: Collection[str]) -> Judged:
    """Of what goes now, that which somebody has agreed to before."""
    jobs, code = ([each for each in left if each.name in names] for left in (judged.jobs, judged.code))
    return replace(judged, jobs=jobs, code=code)


def remove(transport: Transport, work_dir: str, judged: Judged) -> tuple[list[str], list[str]]:
    """Remove what goes. Returns the names of what is gone, and a sentence for each that is not. Raises AwayError."""
    gone: list[str] = []
    wrong: list[str] = []
    jobs = [each.name for each in judged.jobs if each.goes]
    batches = [("jobs", jobs[start : start + MOST]) for start in range(0, len(jobs), MOST)]
    for kind, names in (*batches, ("archives", [each.name for each in judged.code])):
        if not names:
            continue
        lines = _of_jobs(names, judged) if kind == "jobs" else _of_archives(names, judged)
        script = _REMOVE.format(work_dir=shlex.quote(work_dir), kind=kind, going=GOING, lines="\n".join(lines))
        done = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
        said = [line.split(" ", 2) for line in done.stdout.decode(errors="replace").splitlines()]
        gone += [words[1] for words in said if words[0] == "gone"]
        wrong += [f"{work_dir}/{kind}/{words[1]}: {words[2]}" for words in said if words[0] == "left"]
        if told := [*wrong, *([] if len(said) == len(names) else [f"{work_dir}/{kind}: not all were looked at"])]:
            wrong = [*told, *([_words(done)] if done.stderr else [])]
    return gone, wrong


def _of_jobs(names: Iterable[str], judged: Judged) -> Iterator[str]:
    for name in names:
        yield f"aside {name} -d {math.ceil(judged.changed_s[name])} && gone {name}"


def _of_archives(names: Sequence[str], judged: Judged) -> Iterator[str]:
    """A submission looks for the archive before it writes the script that names it."""
    for number, name in enumerate(names):
        yield f"aside {name} -f {math.ceil(judged.changed_s[name])} && taken{number}=1"
    yield f"sleep {ARCHIVES_S}"
    scripts = "find ../jobs -mindepth 2 -maxdepth 2 -type f -name job.sh"
    for number, name in enumerate(names):
        used = f"{scripts} -exec grep -lFs {name.removeprefix(GOING)} {{}} +"
        back = f'[ -e {name} ] || mv -T -- "{GOING}{name}" {name}; echo "left {name} a job has just begun to need it"'
        yield f'[ -z "$taken{number}" ] || if [ -n "$({used})" ]; then {back}; else gone {name}; fi'


def _judged(name: str, folder: Folder, seen: Seen, keep: Keep, needed: Mapping[str, str]) -> Left:
    left = Left(name, seen.now_s - folder.changed_s, folder.size_bytes)
    if folder.uid != seen.uid:
        return replace(left, stays=f"it belongs to user {folder.uid}")
    if name.startswith(GOING):
        return left
    if not folder.inside & {"claim", "pid", "job.sh"}:
        return replace(left, stays="nothing in it is a job's")
    if state := seen.live.get(name):
        return replace(left, stays=f"the job is {state}")
    if keep.young(left.age_s):
        return replace(left, young=True)
    if name in needed:
        return replace(left, stays=needed[name])
    if "exit" not in folder.inside and seen.now_s - max(folder.changed_s, folder.may_start_s) < SILENT_S:
        return replace(left, stays=f"no exit file: {SILENT_S / DAY_S:g} days beyond its last possible start")
    wrong = "no exit code" if folder.exit_code is None else f"exit code {folder.exit_code}" if folder.exit_code else ""
    return replace(left, stays=keep.failed(left.age_s, wrong))


# --- what the command has told ---------------------------------------------------------------------------------------


def _live(rows: str) -> Iterator[tuple[str, str]]:
    for line in rows.splitlines():
        job_id, _, rest = line.partition("|")
        state, _, name = rest.partition("|")
        if Row(job_id, name, state).live:
            yield name.strip(), state


def _entries(text: bytes) -> Iterator[tuple[str, int, float, int, list[str]]]:
    """Type, owner, time and size of each, and its path in work_dir."""
    for entry in text.split(b"\0"):
        words = entry.decode(errors="replace").split(" ", 4)
        if len(words) == 5:
            yield words[0].strip(), int(words[1]), float(words[2]), int(words[3]), words[4].split("/", 2)


def _folders(texts: Mapping[str, bytes]) -> dict[str, Folder]:
    """Of our jobs, by name."""
    own: dict[str, Folder] = {}
    inside: dict[str, dict[str, float]] = {}
    for kind, uid, changed_s, _size, path in _entries(texts["entries"]):
        if path[0] != "jobs" or not JOB.fullmatch(path[1].removeprefix(GOING)):
            continue
        if len(path) == 3:
            inside.setdefault(path[1], {})[path[2]] = changed_s
        elif kind == "d":
            own[path[1]] = Folder(uid, kind, changed_s)
    sizes = {path: int(kilobytes) * 1024 for kilobytes, path in _pairs(texts["sizes"], "\t") if kilobytes.isdigit()}
    exits = {path: int(re.sub(r"\D", "", said)) for path, said in _pairs(texts["exits"], ":")}
    starts = {path: float(said) for path, said in _pairs(texts["starts"], ":")}
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
        )
        for name, folder in own.items()
    }


def _archives(text: bytes, now_s: float, uid: int) -> Iterator[tuple[str, Left]]:
    for kind, owner, changed_s, size, path in _entries(text):
        ours = path[0] == "archives" and len(path) == 2 and (kind, owner) == ("f", uid)
        if ours and BROUGHT.fullmatch(path[1].removeprefix(GOING)):
            yield path[1], Left(path[1], now_s - changed_s, size)


def _pairs(text: bytes, between: str) -> Iterator[tuple[str, str]]:
    for line in text.decode(errors="replace").splitlines():
        first, found, second = line.partition(between)
        if found:
            yield first, second


def _words(done: Done) -> str:
    words = done.stderr.decode(errors="replace").strip().replace("\n", "; ")
    return words or f"exit code {done.exit_code}"
