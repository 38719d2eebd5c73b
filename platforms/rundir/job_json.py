"""What stands in the run.json and the submitted.json of a job's folder, written and read (docs/outcomes.md)."""

from __future__ import annotations

import contextlib
import json
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from platforms import atomic_file, environ
from platforms.job import JobSpec, Layout, Metric, Run, State, Status, Trial, Window, names_a_secret

SCHEMA = 1
ROOT = Path(__file__).resolve().parents[2]


# --- run.json --------------------------------------------------------------------------------------------------------


def run_content(
    run: Run, spec: JobSpec, job_id: str | None, queue_s: float | None, error: str | None
) -> dict[str, object]:
    """The content of run.json: the whole run, what was asked of the job, and which suite it was.

    Args:
        queue_s: how long the job waited to start.
        error: what the test failed with; None after a success.
    """
    status = run.status
    return {
        "schema": SCHEMA,
        "name": run.name,
        "test": run.test,
        "platform": run.platform,
        "benchmark": run.benchmark,
        "layout": run.layout,
        "trial": spec.trial.content(),
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
        "nodes_energy_j": status.nodes_energy_j,
        "effective_throughput": run.effective_throughput,
        "compute_fraction": run.compute_fraction,
        "compute_throughput": run.compute_throughput,
        "identity_gap": run.identity_gap,
        "spread_within_job": run.spread,
        "read_by_test": run.read_by_test,
        "metrics": run.metrics,
        "windows": run.windows,
        "start": run.start,
        "summary": run.summary,
        "problems": run.problems,
        "said": run.said,
        "warnings": run.warnings,
        "node_facts": run.nodes,
        "asked": _asked(spec),
        "suite": {"commit": suite_commit(), "host": platform.node(), "python": platform.python_version()},
    }


def read_run(folder: Path, *, strict: bool = False) -> tuple[Run, str | None] | None:
    """The run that run.json describes, and what its test failed with. None if there is no run.json.

    `strict` is that of `read_json`.
    """
    content = read_json(folder / "run.json", strict=strict)
    if content.get("schema") != SCHEMA:
        return None
    return run_from(content, folder), content["error"]


def run_from(content: Mapping[str, Any], folder: Path | None = None) -> Run:
    """The run that the content of a run.json describes.

    Args:
        folder: where the run's other files lie; None if they are not at hand.

    Raises:
        KeyError: something is missing.
        ValueError, TypeError: a value cannot be read.
    """
    status = Status(
        State(content["state"]),
        content["reason"],
        exit_code=content["exit_code"],
        signal=content["signal"],
        nodes=tuple(content["nodes"]),
        submitted_s=content["submitted_s"],
        started_s=content["started_s"],
        ended_s=content["ended_s"],
        events=tuple(content["events"]),
        nodes_energy_j=content.get("nodes_energy_j"),
    )
    return Run(
        name=content["name"],
        test=content["test"],
        platform=content["platform"],
        benchmark=content["benchmark"],
        layout=content["layout"],
        windows=tuple(Window(**window) for window in content["windows"]),
        read_by_test=tuple(content.get("read_by_test", ())),
        metrics={name: Metric(**metric) for name, metric in content.get("metrics", {}).items()},
        start=content["start"],
        summary=content["summary"],
        problems=tuple(content["problems"]),
        said=tuple(content.get("said", ())),
        warnings=tuple(content["warnings"]),
        nodes=content.get("node_facts", {}),
        status=status,
        folder=folder,
    )


def add_recorded(run: Run) -> None:
    """Add to run.json what a test has read from the log: seconds per sample, metrics."""
    assert run.folder is not None
    path = run.folder / "run.json"
    content = read_json(path)
    if not content:
        return
    content["read_by_test"] = run.read_by_test
    content["metrics"] = run.metrics
    content["effective_throughput"] = run.effective_throughput
    content["spread_within_job"] = run.spread
    with contextlib.suppress(OSError):  # the disk is full; the results of the session have it, too
        write_json(path, content)


# --- submitted.json --------------------------------------------------------------------------------------------------


def submitted_content(spec: JobSpec, job_id: str, submitted_s: float) -> dict[str, object]:
    """The content of submitted.json: enough to find the job, and to judge its end, without its test."""
    return {
        "job_id": job_id,
        "name": spec.name,
        "submitted_s": submitted_s,
        "benchmark": spec.benchmark,
        "asked": _asked(spec),
    }


def spec_from_submitted(name: str, test: str, platform: str, content: Mapping[str, Any]) -> JobSpec:
    """The spec of a job, to judge its end. It cannot be submitted again, since the values of secrets are hidden.

    Args:
        content: of submitted.json; if it is empty, the layout is read from the job's name.
    """
    asked = content.get("asked") or {}
    named = {"name", "test", "platform", "layout", "benchmark", "archive", "trial"}
    others: dict[str, Any] = {"arguments": ()}
    for field in fields(JobSpec):
        value = asked.get(field.name)
        if field.name not in named and value is not None:
            others[field.name] = tuple(value) if isinstance(value, list) else value
    return JobSpec(
        name=name,
        test=test,
        platform=platform,
        layout=_layout_at_end(str(asked.get("layout", name))),
        benchmark=content.get("benchmark"),
        archive=Path(asked["archive"]) if asked.get("archive") else None,
        trial=Trial.from_content(asked.get("trial") or {}),
        **others,
    )


def _layout_at_end(text: str) -> Layout:
    """The layout `2x4gpu` at the end of a text, or before the key of a job's name."""
    match = re.search(r"(\d+)x(\d+)([a-z]*)(-k\w{7})?$", text)
    if match is None:
        return Layout(1, 1, "")
    return Layout(int(match[1]), int(match[2]), match[3])


def _asked(spec: JobSpec) -> dict[str, object]:
    """What was asked of a job, without the values of secrets."""
    content = {key: value for key, value in vars(spec).items() if key not in ("name", "test", "platform", "benchmark")}
    content["env"] = {name: "(hidden)" if names_a_secret(name) else value for name, value in spec.env.items()}
    content["layout"] = str(spec.layout)
    content["trial"] = spec.trial.content()
    content["ranks"] = spec.ranks
    return content


@cache
def suite_commit() -> str | None:
    """The suite's own git commit, with `-dirty` when its files are changed; None outside of a clone."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, env=environ.copied(), capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


# --- JSON ------------------------------------------------------------------------------------------------------------


def write_json(path: Path, content: Mapping[str, object], *, sync: bool = False) -> None:
    """Write an object with one key in each line, for people. Raises OSError.

    `json` with `indent` would also break nested values into lines; and Python writes that slowly.
    """
    lines = [f" {_key(key)}: {as_json(value)}" for key, value in content.items()]
    atomic_file.write_text(path, "{\n" + ",\n".join(lines) + "\n}\n", sync=sync)


def read_json(path: Path, *, strict: bool = False) -> dict[str, Any]:
    """The object in a file; empty if there is none.

    With `strict` a file that is there, and cannot be read now, raises its OSError.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if strict and isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise
        return {}
    return value if isinstance(value, dict) else {}


def as_json(value: object, *, compact: bool = False) -> str:
    """A value on one line. A number that is not finite becomes null, since it is not known.

    Args:
        compact: without blanks.
    """
    encoder = _COMPACT if compact else _SPACED
    try:
        return encoder.encode(value)
    except ValueError:
        text = json.dumps(value, default=_to_plain_value)
        return encoder.encode(json.loads(text, parse_constant=lambda word: None))


def _to_plain_value(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)


# `json.dumps` would make an encoder for each value.
_SPACED = json.JSONEncoder(default=_to_plain_value, allow_nan=False)
_COMPACT = json.JSONEncoder(default=_to_plain_value, allow_nan=False, separators=(",", ":"))


@cache
def _key(name: str) -> str:
    """A key as JSON has it: all files have the same ones."""
    return json.dumps(str(name))
