"""The folder that a run leaves behind: what it is called, which attempt it is, and run.json (docs/outcomes.md)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from platforms import atomic_file
from platforms.job import JobSpec, Layout, RefusedError, Run, State, Status, Window, names_a_secret

SCHEMA = 1
RENDERED = ("job.sh", "manifest.yaml")  # what schedulers call the text that they submit
ROOT = Path(__file__).resolve().parents[2]


def slug(test: str) -> str:
    """A test's id as the name of a folder: `test_resnet50.py::test_resnet50[local-1x1cpu-gbs32]` ->
    `test_resnet50-local-1x1cpu-gbs32`; a site's test begins with `site-`. What could become ambiguous that way gets a
    hash."""
    match = re.fullmatch(r"(site/)?(test_\w+)\.py::(test_\w+)\[([\w.=-]+)\]", test, re.ASCII)
    if match and len(test) < 120:
        site, file, function, parameters = match.groups()
        parts = ["site"] if site else []
        parts += [file, parameters] if file == function else [file, function, parameters]
        return "-".join(parts)
    words = re.sub(r"[^\w.=]+", "-", test, flags=re.ASCII).strip("-.")[:80]
    return f"{words}-{hashlib.sha256(test.encode(errors='surrogateescape')).hexdigest()[:8]}"


def attempt(runs: Path, run_id: str, test: str) -> tuple[Path, int]:
    """The folder of a test that is about to run, and its number. One that holds a run.json has ended and is never taken
    for tonight's; one that does not may hold a job that still runs, or ended when nobody looked: it is found again."""
    number = 1
    while ((folder := of_attempt(runs, run_id, test, number)) / "run.json").exists():
        number += 1
    return folder, number


def of_attempt(runs: Path, run_id: str, test: str, number: int) -> Path:
    """The folder of a test's attempt."""
    first = runs / run_id / slug(test)
    return first if number == 1 else first.with_name(f"{first.name}.{number}")


def is_used(folder: Path) -> bool:
    """Whether a job may have begun there. A session that was killed before it wrote its journal leaves a folder with
    nothing in it, or with nothing but what it was about to submit."""
    if not folder.exists():
        return False
    return any(path.name not in RENDERED for path in folder.iterdir())


def make_folder(folder: Path) -> None:
    """Raises RefusedError: without a place for its evidence nothing is submitted."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"no evidence can be kept: {error}; --runs-dir names another place") from None


def link_latest(runs: Path, run_id: str) -> None:
    """`runs/latest` -> this run. A convenience: no error where that name is taken or links cannot be made."""
    draft = runs / f".latest.{os.getpid()}"
    with contextlib.suppress(OSError):
        draft.unlink(missing_ok=True)
        draft.symlink_to(run_id)
        draft.replace(runs / "latest")
    draft.unlink(missing_ok=True)


def keep(folder: Path) -> None:
    """After this the names of the files in a folder outlive a power failure."""
    with contextlib.suppress(OSError):  # which not every network file system knows of folders
        atomic_file.sync_folder(folder)


def put(path: Path, chunk: bytes, offset: int) -> None:
    """A piece of a log, at its own place: two that bring the same bytes at the same time do no harm. Raises OSError."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        while chunk:
            written = os.pwrite(file, chunk, offset)
            chunk = chunk[written:]
            offset += written
    finally:
        os.close(file)


def write_json(path: Path, value: Mapping[str, object], *, sync: bool = False) -> None:
    """A line for each key, for people. `json` with `indent` is written in Python, and slow."""
    lines = [f" {json.dumps(str(key))}: {as_json(item)}" for key, item in value.items()]
    atomic_file.write_text(path, "{\n" + ",\n".join(lines) + "\n}\n", sync=sync)


def read_json(path: Path) -> dict[str, Any]:
    """Empty when it is not there or is no JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def record(run: Run, spec: JobSpec, job_id: str | None, queue_s: float | None, error: str | None) -> dict[str, object]:
    """What stands in run.json: the whole run, what was asked, and what the suite was."""
    status = run.status
    return {
        "schema": SCHEMA,
        "name": run.name,
        "test": run.test,
        "platform": run.platform,
        "benchmark": run.benchmark,
        "layout": run.layout,
        "outcome": status.state.outcome,
        "state": status.state,
        "reason": status.reason,
        "error": error,
        "exit_code": status.exit_code,
        "signal": status.signal,
        "job_id": job_id,
        "nodes": status.nodes,
        "events": status.events,
        "submitted_s": status.submitted_s,
        "started_s": status.started_s,
        "ended_s": status.ended_s,
        "queue_s": queue_s,
        "run_s": status.run_s,
        "effective_throughput": run.effective_throughput,
        "compute_fraction": run.compute_fraction,
        "compute_throughput": run.compute_throughput,
        "identity_gap": run.identity_gap,
        "spread_within_job": run.spread,
        "read_by_test": run.read_by_test,
        "windows": run.windows,
        "start": run.start,
        "summary": run.summary,
        "problems": run.problems,
        "warnings": run.warnings,
        "asked": asked(spec),
        "suite": {"commit": suite_commit(), "host": platform.node(), "python": platform.python_version()},
    }


def add_read_by_test(run: Run) -> None:
    """What a test read from the log of a program without windows, into its run.json beside what was known before."""
    assert run.folder is not None
    path = run.folder / "run.json"
    more = {"read_by_test": run.read_by_test, "effective_throughput": run.effective_throughput}
    if known := read_json(path):
        with contextlib.suppress(OSError):  # a full disk; what is recorded has it, too
            write_json(path, {**known, **more, "spread_within_job": run.spread})


def recorded(folder: Path) -> tuple[Run, str | None] | None:
    """What run.json says: the run, and what its test failed with; None where there is none."""
    found = read_json(folder / "run.json")
    if found.get("schema") != SCHEMA:
        return None
    known: dict[str, Any] = {name: found[name] for name in ("reason", "exit_code", "signal")}
    times: dict[str, Any] = {name: found[name] for name in ("submitted_s", "started_s", "ended_s")}
    lists: dict[str, Any] = {name: tuple(found[name]) for name in ("nodes", "events")}
    status = Status(State(found["state"]), **known, **times, **lists)
    names: dict[str, Any] = {name: found[name] for name in ("name", "test", "platform", "benchmark", "layout")}
    run = Run(
        **names,
        windows=tuple(Window(**window) for window in found["windows"]),
        read_by_test=tuple(found.get("read_by_test", ())),
        start=found["start"],
        summary=found["summary"],
        problems=tuple(found["problems"]),
        warnings=tuple(found["warnings"]),
        status=status,
        folder=folder,
    )
    return run, found["error"]


def asked(spec: JobSpec) -> dict[str, object]:
    """What was asked of a job, as JSON has it, without the values of secrets."""
    asked = {name: value for name, value in vars(spec).items() if name not in ("name", "test", "platform", "benchmark")}
    asked["env"] = {name: "(hidden)" if names_a_secret(name) else value for name, value in spec.env.items()}
    return {**asked, "layout": str(spec.layout), "ranks": spec.ranks}


def submitted(spec: JobSpec, job_id: str, at_s: float) -> dict[str, object]:
    """What stands in submitted.json: enough to find the job, and to judge its end, without its test."""
    what = {"benchmark": spec.benchmark, "asked": asked(spec)}
    return {"job_id": job_id, "name": spec.name, "submitted_s": at_s, **what}


def spec_of(name: str, test: str, platform: str, before: Mapping[str, Any]) -> JobSpec:
    """What was asked of a job, as submitted.json has it, to judge its end; it cannot be submitted again, since secrets
    are hidden. Where nothing tells, the layout is the one in its name."""
    asked = before.get("asked") or {}
    layout = re.search(r"(\d+)x(\d+)([a-z]*)(-k\w{7})?$", str(asked.get("layout", name)))
    known = {each.name for each in fields(JobSpec)} - {"name", "test", "platform", "layout", "benchmark", "archive"}
    given: dict[str, Any] = {key: value for key, value in asked.items() if key in known and value is not None}
    lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    return JobSpec(
        name,
        test,
        platform,
        Layout(int(layout[1]), int(layout[2]), layout[3]) if layout else Layout(1, 1, ""),
        **{"arguments": (), **given, **lists},
        benchmark=before.get("benchmark"),
        archive=Path(asked["archive"]) if asked.get("archive") else None,
    )


@cache
def suite_commit() -> str | None:
    """The suite's own git commit, with `-dirty` when its files are changed; None outside of a clone."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def as_json(value: object) -> str:
    """A value on one line; a number that is not finite is not known, hence null."""
    try:
        return json.dumps(value, default=_simpler, allow_nan=False)
    except ValueError:
        text = json.dumps(value, default=_simpler)
        return json.dumps(json.loads(text, parse_constant=lambda word: None))


def _simpler(value: object) -> object:
    """What `json` takes in place of a value that it does not know."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)
