"""The history in a branch: what of a folder is still missing there, and what of the branch is missing in the folder.

A session's files grow while it lives, and are never changed afterwards. So of two files with one name the longer one
has the lines of both. In the branch the sessions of past months are joined, a file for each month, so that a clone has
few files; their lines are compared one by one. A file that differs in another way was changed by hand: both are kept.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from platforms import atomic_file
from platforms.printable import printable
from reporting.history.writer import make_month
from reporting.shared_branch.scratch import Tree

TOP = "history/"  # in the branch
JOINED = "joined"  # the folder of the joined months
DETAILS = ".runs.jsonl"
_MONTH = re.compile(r"\d{4}-\d{2}")
_NAME = re.compile(r"[\w+][\w.+-]*/[\w+][\w.+-]*\.jsonl", re.ASCII)


@dataclass
class Outcome:
    """What a push or a pull has found.

    Attributes:
        files: the new content of files by their paths in the branch or below the history's folder; None: removed.
        new: how many of them are sessions, or their run.json's, that were missing.
        lines: how many lines were missing among those of joined months.
        problems: what a person should look at, a sentence each.
    """

    files: dict[str, bytes | None] = field(default_factory=dict)
    new: int = 0
    lines: int = 0
    problems: list[str] = field(default_factory=list)


def local_files(folder: Path, *, details: bool, problems: list[str]) -> dict[str, bytes]:
    """The files of a history by their paths below it, each as far as its lines are complete.

    A session writes the run.json before the line that refers to it. So lines are read first here: none of them refers
    to a run.json that was not there yet.

    Args:
        details: also the run.json's.
        problems: gets a sentence for each file that cannot be read.
    """
    found: dict[str, bytes] = {}
    paths = [path for path in folder.glob("[!.]*/[!.]*.jsonl") if path.is_file()]
    for path in sorted(paths, key=lambda path: (path.name.endswith(DETAILS), path)):
        name = path.relative_to(folder).as_posix()
        if path.name.endswith(DETAILS) and not details:
            continue
        if not _NAME.fullmatch(name):
            problems.append(f"{printable(str(path))} is not pushed: rename it, with letters, digits, `.`, `+` and `-`")
            continue
        try:
            found[name] = complete(path.read_bytes())
        except OSError as error:
            problems.append(f"{path}: this file of the history cannot be read: {error.strerror}")
    return found


def complete(content: bytes) -> bytes:
    """A file's complete lines: its session may have been killed, or write now."""
    return content[: content.rfind(b"\n") + 1]


def first_month_of_sessions(today: datetime.date) -> str:
    """The month before this one, as in `2026-10`: the branch joins the sessions of earlier months."""
    return (today.replace(day=1) - datetime.timedelta(days=1)).strftime("%Y-%m")


def to_push(tree: Tree, local: Mapping[str, bytes], first_month: str) -> Outcome:
    """What is missing in a branch.

    Args:
        local: the files of the history, of `local_files`.
        first_month: of which the branch keeps the sessions in files of their own.
    """
    outcome = Outcome()
    remote = _remote_files(tree)
    with tree.reader() as read:
        known = _digests(read(TOP + name) for name in remote if _is_joined(name))
        additions: dict[str, bytearray] = {}
        for name in remote:
            if _shall_join(name, first_month):
                _add_lines(additions, _joined_name(name), read(TOP + name), known)
                outcome.files[TOP + name] = None
        for name, content in local.items():
            if _is_joined(name) or _shall_join(name, first_month):
                outcome.lines += _add_lines(additions, _joined_name(name), content, known)
            else:
                _push_session(outcome, name, content, tree, read)
        for name, lines in additions.items():
            if lines:
                before = read(TOP + name) if name in remote else b""
                outcome.files[TOP + name] = before + bytes(lines)
    return outcome


def to_pull(tree: Tree, local: Mapping[str, bytes], *, details: bool) -> Outcome:
    """What is missing in the folder of a history. The arguments are those of `to_push` and `local_files`."""
    outcome = Outcome()
    known = _digests(content for name, content in local.items() if not name.endswith(DETAILS))
    with tree.reader() as read:
        for name in _remote_files(tree):
            if name.endswith(DETAILS) and not details:
                continue
            if _is_joined(name):
                additions: dict[str, bytearray] = {}
                outcome.lines += _add_lines(additions, name, read(TOP + name), known)
                if additions[name]:
                    outcome.files[name] = local.get(name, b"") + bytes(additions[name])
            else:
                _pull_session(outcome, name, local, known, tree, read)
    return outcome


def write(folder: Path, outcome: Outcome) -> None:
    """Write what `to_pull` has found to the folder of the history, each file as a whole. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    mode = 0o200 | folder.stat().st_mode & 0o444
    for name, content in sorted(outcome.files.items(), key=lambda item: not item[0].endswith(DETAILS)):
        assert content is not None
        path = folder / name
        make_month(folder, path.parent.name)
        atomic_file.write_bytes(path, content, sync=True, mode=mode)
    for month in {name.partition("/")[0] for name in outcome.files}:
        atomic_file.sync_folder(folder / month)


def _remote_files(tree: Tree) -> list[str]:
    """The history's files in a branch, by their paths below its folder. Other names are ignored."""
    names = [path.removeprefix(TOP) for path in tree.files if path.startswith(TOP)]
    return sorted(name for name in names if _NAME.fullmatch(name))


def _is_joined(name: str) -> bool:
    """Whether a file has lines of many sessions: it lies in no month's folder."""
    return not _MONTH.fullmatch(name.partition("/")[0]) and not name.endswith(DETAILS)


def _shall_join(name: str, first_month: str) -> bool:
    month = name.partition("/")[0]
    return _MONTH.fullmatch(month) is not None and month < first_month and not name.endswith(DETAILS)


def _joined_name(name: str) -> str:
    """Where the lines of a file stand in the branch. People choose folder and name of what they join."""
    folder, _, file = name.partition("/")
    return f"{JOINED}/{folder}.jsonl" if _MONTH.fullmatch(folder) else f"{JOINED}/{file}"


def _digests(contents: Iterable[bytes]) -> set[bytes]:
    return {_digest(line) for content in contents for line in content.splitlines(keepends=True)}


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line.rstrip(b"\r\n"), digest_size=16).digest()


def _add_lines(additions: dict[str, bytearray], name: str, content: bytes, known: set[bytes]) -> int:
    """Add the lines that are not known yet to those of a file, and to the known ones. Returns how many."""
    lines = additions.setdefault(name, bytearray())
    count = 0
    for line in content.splitlines(keepends=True):
        digest = _digest(line)
        if digest not in known:
            known.add(digest)
            lines += line
            count += 1
    return count


def _push_session(outcome: Outcome, name: str, content: bytes, tree: Tree, read: Callable[[str], bytes]) -> None:
    path = TOP + name
    if not content or tree.same_blob(path, content):
        return
    if path in tree.files:
        theirs = read(path)
        if theirs.startswith(content):
            return
        if not content.startswith(theirs):
            aside = _aside(name, content)
            if TOP + aside not in tree.files:
                outcome.files[TOP + aside] = content
                outcome.problems.append(_differs(name, f"yours is pushed as {aside}"))
            return
    outcome.files[path] = content
    outcome.new += 1


def _pull_session(
    outcome: Outcome,
    name: str,
    local: Mapping[str, bytes],
    known: set[bytes],
    tree: Tree,
    read: Callable[[str], bytes],
) -> None:
    ours = local.get(name)
    if ours is not None and tree.same_blob(TOP + name, ours):
        return
    theirs = read(TOP + name)
    if ours is not None and ours.startswith(theirs):
        return
    if ours is None or theirs.startswith(ours):
        if not name.endswith(DETAILS) and _digests([theirs]) <= known:
            return  # these lines stand in another file here
        outcome.files[name] = theirs
        outcome.new += 1
        return
    aside = _aside(name, theirs)
    if aside not in local:
        outcome.files[aside] = theirs
        outcome.problems.append(_differs(name, f"the branch's is written as {aside}"))


def _aside(name: str, content: bytes) -> str:
    """The name under which a file is kept beside another one that has its name."""
    ending = DETAILS if name.endswith(DETAILS) else ".jsonl"
    return f"{name.removesuffix(ending)}-{hashlib.sha256(content).hexdigest()[:8]}{ending}"


def _differs(name: str, what: str) -> str:
    return f"{name} is another file in the branch: was one of them edited? Both are kept, {what}; a line counts once"
