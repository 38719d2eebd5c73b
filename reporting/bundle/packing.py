"""Makes a bundle: the evidence of the chosen runs, with aliases, and what follows from it."""

from __future__ import annotations

import getpass
import json
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from platforms.job import job_key
from platforms.results.gates import part
from platforms.results.wire import NAMESPACE
from platforms.rundir import job_folder, job_json
from reporting.bundle import container, manifest
from reporting.bundle.aliases import Aliases
from reporting.bundle.evidence import JobEvidence, unpacked
from reporting.bundle.guide import METHODS, README, REPLACED, Contents, readme_text, replaced_text
from reporting.bundle.identifying import HOST, USER, KnownNames
from reporting.bundle.methods import methods_text
from reporting.bundle.records import (
    CONTENTS,
    LINE,
    LOG,
    RUN_JSON,
    STEPS,
    WIRE,
    RunRecord,
    line_text,
    recomputed_envelope,
    table_files,
)
from reporting.bundle.steps import rows_of
from reporting.bundle.wire_lines import as_wire, wire_lines
from reporting.history.envelope import Envelope


@dataclass(frozen=True)
class RunPlace:
    """What the machine that makes a bundle knows of itself: none of it may stand in the bundle.

    Attributes:
        folders: of runs, history, site, suite and home.
        platforms: what the files of the site's platforms say.
    """

    folders: Sequence[str]
    platforms: Sequence[object] = ()
    user: str = ""
    host: str = ""

    @classmethod
    def here(cls, folders: Iterable[Path], platforms: Sequence[object]) -> RunPlace:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a user id without a name
            user = ""
        names = dict.fromkeys(str(path) for folder in folders for path in (folder.absolute(), folder.resolve()))
        return cls(tuple(names), platforms, user, platform.node())


@dataclass(frozen=True)
class Bundle:
    """A bundle, ready to be written.

    Attributes:
        content: the bytes of the zip file.
        digest: that a paper prints.
    """

    content: bytes
    digest: str
    records: Sequence[RunRecord]
    contents: Contents


def packed(
    runs: Sequence[JobEvidence],
    left_out: Sequence[str],
    place: RunPlace,
    *,
    identify: bool,
    with_logs: bool,
    unfinished: Sequence[str] = (),
) -> Bundle:
    """Make a bundle of these runs, which all have numbers.

    Args:
        left_out: sentences on jobs that are not among them.
        identify: leave names as they are.
        with_logs: take the whole logs, not only the lines of the wire.
        unfinished: sentences on runs that are not finished.

    Raises RefusedError: it would be too large.
    """
    aliases = Aliases(_known(runs, place), identify=identify)
    files: dict[str, bytes] = {}
    records = [_add_run(run, files, aliases, with_logs) for run in runs]
    for run in runs:
        if run.archive is not None:
            files[f"code/{run.archive.name}"] = run.archive.read_bytes()
    sentences = [aliases.text(sentence, only_known=True) for sentence in left_out]
    contents = Contents(
        job_json.suite_commit(),
        identify,
        with_logs,
        {record.folder: list(record.missing) for record in records},
        sentences,
        {kind: list(counts) for kind, counts in aliases.counts().items()},
        [aliases.text(sentence, only_known=True) for sentence in unfinished],
    )
    texts = {
        CONTENTS: json.dumps(contents.as_json(), indent=1) + "\n",
        README: readme_text(contents, records),
        REPLACED: replaced_text(contents),
        METHODS: methods_text(records, contents.unfinished),
        **table_files(records),
    }
    files.update({name: _encoded(text) for name, text in texts.items()})
    listed = manifest.manifest_text({name: manifest.listed(content) for name, content in files.items()}).encode()
    ordered = {manifest.NAME: listed, **{name: files[name] for name in sorted(files)}}
    return Bundle(container.write(ordered), manifest.digest(listed), records, contents)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


# --- names ---


def _known(runs: Sequence[JobEvidence], place: RunPlace) -> KnownNames:
    """Every name in the evidence that says whose it is, in the order of the runs."""
    known = KnownNames()
    for run in runs:
        known.literal.setdefault(run.envelope.key.test)
        known.add_content(run.content)
        known.add_content(run.envelope.provenance)
        for name in run.envelope.nodes:
            known.add(HOST, name)
        known.add(HOST, (run.content.get("suite") or {}).get("host"))
        start = part(run.content, "start")
        known.add(HOST, part(start, "host").get("name"))  # on Kubernetes the pod's
        known.add_words(f"{run.envelope.key.test} {run.envelope.platform}")
        for section in ("request", "device", "world", "versions", "host"):
            for name, value in part(start, section).items():
                if (section, name) != ("host", "name"):
                    known.add_words(str(value))
        for name, text in run.scripts.items():
            (known.add_script if name.endswith(".sh") else known.add_manifest)(text)
        if run.folder is not None:
            known.add_path(str(run.folder))
    for content in place.platforms:
        known.add_content(content)
    known.add(USER, place.user)
    known.add(HOST, place.host)
    for folder in place.folders:
        known.add_path(folder)
    return known


# --- one run ---


def _add_run(run: JobEvidence, files: dict[str, bytes], aliases: Aliases, with_logs: bool) -> RunRecord:
    """Put the files of a run into the bundle."""
    missing = list(run.missing)
    content: dict[str, Any] = aliases.content(run.content)
    key = run.envelope.key
    test = aliases.text(key.test, only_known=True)
    run_id = aliases.text(key.run_id, only_known=True)
    site = aliases.text(key.site, only_known=True)
    envelope = replace(run.envelope, key=key._replace(run_id=run_id, test=test, site=site), verdicts={}, run=None)
    if content:
        envelope = recomputed_envelope(content, envelope)
    else:
        provenance = aliases.content(dict(envelope.provenance))
        envelope = replace(envelope, provenance=provenance)
    folder = folder_of(envelope)
    while any(name.startswith(f"{folder}/") for name in files):  # two ids that differ in a sign only
        folder += "+"
    added: dict[str, bytes] = {LINE: _encoded(line_text(envelope))}
    if content:
        added[RUN_JSON] = _encoded(json_text(content))
    scripts = {name: aliases.script(text) for name, text in run.scripts.items()}
    added.update({name: _encoded(text) for name, text in scripts.items()})
    if run.log is not None:
        lines = "".join(
            as_wire({**aliases.content({**line, "namespace": ""}), "namespace": NAMESPACE})
            for line in wire_lines(run.log)  # MLPerf's namespace is none of Kubernetes, so it has no alias
        )
        if lines:
            added[WIRE] = _encoded(lines)
        if with_logs:
            text = run.log.read_bytes().decode("utf-8", "backslashreplace")
            added[LOG] = _encoded(aliases.text(text))
    steps, why_none = _steps(run)
    missing += why_none
    added.update({STEPS.format(rank=rank): rows for rank, rows in enumerate(steps)})
    files.update({f"{folder}/{name}": added[name] for name in sorted(added)})
    return RunRecord(
        folder,
        content,
        envelope,
        len(steps),
        WIRE in added,
        _script_in(scripts),
        tuple(aliases.text(sentence, only_known=True) for sentence in missing),
    )


def _script_in(scripts: Mapping[str, str]) -> str:
    return next(iter(scripts.values()), "")


def _steps(run: JobEvidence) -> tuple[list[bytes], list[str]]:
    """The rows of every rank, or none and why: a part of the ranks gives no window."""
    rows = []
    for path in run.steps:
        try:
            content = unpacked(path)
            for _row in rows_of(content.splitlines(keepends=True)):
                pass
        except ValueError as error:
            return [], [f"the steps cannot be used: {path.name}: {error}"]
        rows.append(content)
    return rows, []


def folder_of(envelope: Envelope) -> str:
    """The folder of a run in a bundle."""
    key = envelope.key
    name = job_folder.folder_name(job_key(key.test, key.trial))
    name += f".{key.attempt}" if key.attempt > 1 else ""
    return f"jobs/{_safe(key.run_id)}/{_safe(name)}"


def _safe(name: str) -> str:
    """A name that is a file's on every system."""
    return re.sub(r"[^A-Za-z0-9_.=+-]+", "-", name)[:150].lstrip(".-") or "run"


def json_text(content: Mapping[str, Any]) -> str:
    """A run.json with one key a line."""
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()) + "\n}\n"
