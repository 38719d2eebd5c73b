"""Finds what there is of a run: its run.json in the history; its script, log, steps and code in the folder of runs."""

from __future__ import annotations

import contextlib
import gzip
import re
import shlex
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platforms.job import RefusedError, job_key
from platforms.rundir import job_folder, job_json, run_archive
from reporting.history.envelope import Envelope
from reporting.history.reader import run_of

MOST_STEPS_BYTES = 1 << 30  # of one rank's file, unpacked
_STEPS = re.compile(r"steps-rank(\d+)\.csv\.gz")


@dataclass(frozen=True)
class JobEvidence:
    """What there is of one run.

    Attributes:
        content: of its run.json; empty if it has none.
        folder: runs/<run id>/<test> on this machine; None if it is not there.
        scripts: the rendered job, by the name of its file.
        steps: of each rank from 0, the packed file; empty if that of any rank is missing.
        archive: the code that ran; None if it is not there.
        missing: what is not there, and why, each a sentence.
    """

    envelope: Envelope
    content: Mapping[str, Any]
    folder: Path | None
    scripts: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    steps: Sequence[Path] = ()
    archive: Path | None = None
    missing: tuple[str, ...] = ()


def evidence_of(envelope: Envelope, history: Path, runs: Path) -> JobEvidence:
    """Look for everything. Raises RefusedError if neither the history nor a folder has the run.json that must be."""
    key = envelope.key
    folder = job_folder.attempt_folder(runs, key.run_id, job_key(key.test, key.trial), key.attempt)
    kept = job_json.read_json(folder / "run.json")
    content: Mapping[str, Any] = {}
    try:
        content = run_of(history, envelope)
    except RefusedError:
        if not kept:
            raise
    content = content or kept
    if not content:
        return JobEvidence(envelope, {}, None, missing=("it is imported, so it has no run.json, log, steps or code",))
    if not folder.is_dir():
        return JobEvidence(envelope, content, None, missing=(_why_no_folder(runs, key.run_id),))
    if kept and any(kept.get(name) != content.get(name) for name in ("name", "job_id", "started_s")):
        return JobEvidence(envelope, content, None, missing=("its folder here is that of another job",))
    missing: list[str] = []
    scripts = {}
    for name in job_folder.RENDERED:
        if (folder / name).is_file():
            scripts[name] = (folder / name).read_text(encoding="utf-8", errors="surrogateescape")
    if not scripts:
        missing.append("the rendered job is not in its folder")
    log = folder / "log"
    if not log.is_file():
        missing.append("the log is not in its folder")
    steps = _steps((folder, *_work_folders(scripts)), content, missing)
    return JobEvidence(
        envelope,
        content,
        folder,
        scripts,
        log if log.is_file() else None,
        steps,
        _archive(runs, content, missing),
        tuple(missing),
    )


def _why_no_folder(runs: Path, run_id: str) -> str:
    lacking = "its script, log, steps and code are not in the bundle"
    archives = run_archive.archives(runs, run_id)
    if archives:
        return f"{lacking}: its folder was archived (tar -xf runs/old/{archives[-1].name} -C runs brings it back)"
    return f"{lacking}: its folder is not on the machine that made the bundle"


def _work_folders(scripts: Mapping[str, str]) -> list[Path]:
    """The folder in which a Slurm job ran, if this machine sees it, as a login node does."""
    found = []
    for script in scripts.values():
        for words in re.findall(r"^#SBATCH\s+--chdir=(.+)$", script, re.MULTILINE):
            with contextlib.suppress(ValueError):
                found += [Path(word) for word in shlex.split(words)[:1] if word.startswith("/")]
    return found


def _steps(places: Sequence[Path], content: Mapping[str, Any], missing: list[str]) -> list[Path]:
    """The packed steps of all ranks. Jobs leave them in the folder in which they ran, which may be far away."""
    if not content.get("windows"):
        return []
    found: dict[int, Path] = {}
    for path in [path for place in places for path in sorted(place.rglob("steps-rank*.csv.gz"))]:
        match = _STEPS.fullmatch(path.name)
        if match and path.is_file():
            found.setdefault(int(match[1]), path)
    size = ((content.get("start") or {}).get("world") or {}).get("size")
    ranks = size if isinstance(size, int) else max(found, default=-1) + 1
    lacking = [rank for rank in range(ranks) if rank not in found]
    if lacking or not ranks:
        missing.append(
            f"the steps of {len(lacking) or 'all'} of {ranks or 'its'} ranks are not in its folder: copy "
            "steps-rank<N>.csv.gz there from where the job ran (work/ of its folder on that machine), and bundle again"
        )
        return []
    return [found[rank] for rank in range(ranks)]


def unpacked(path: Path) -> bytes:
    """The rows of a rank. Raises ValueError if the file is damaged or too large."""
    try:
        with gzip.open(path) as file:
            content = file.read(MOST_STEPS_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path.name} is damaged: {error}") from None
    if len(content) > MOST_STEPS_BYTES:
        raise ValueError(f"{path.name} has more than {MOST_STEPS_BYTES} bytes")
    return content


def _archive(runs: Path, content: Mapping[str, Any], missing: list[str]) -> Path | None:
    code = (content.get("start") or {}).get("code")
    if not code:
        return None
    path = runs / "archives" / f"models-{code}.pyz"
    if path.is_file():
        return path
    missing.append(f"the code models-{code}.pyz is not in runs/archives (pytest --code COMMIT makes it again)")
    return None
