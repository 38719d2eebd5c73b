"""An envelope as one line of JSON, and back. docs/history.md lists the keys.

A line begins with the test's id, so that a reader can pass over the lines of other tests without parsing them. A key
without a value, or with its default, is left out. A reader ignores keys that it does not know, so that later versions
may add some.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from sys import intern
from typing import Any

from platforms.job import ONLY, Outcome, Trial, is_judgeable
from platforms.rundir.job_json import as_json
from reporting.history.envelope import EXPLANATIONS, SCHEMA, Envelope, Key, Metric, Revision, RunReference

TRIAL_KEYS = vars(ONLY).keys()
REPETITION = re.compile(r" %[.$]repeat_no=\d+")  # how ReFrame writes it in a test's name, up to 4.7 in all names
LATEST_S = 4e9  # the year 2096: a larger number is in milliseconds
_START = b'{"test":"'
_REVISION = b',"revision":'
_JOB_ENDED = f"{Revision.JOB_ENDED:d},".encode()


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)  # to make one for each line takes as long as to parse it


def to_line(envelope: Envelope) -> bytes:
    """The line of an envelope, with its end. A number that is not finite becomes null, since it is not known."""
    content: dict[str, object] = {
        "test": envelope.key.test,
        "schema": SCHEMA,
        "site": envelope.key.site,
        "run_id": envelope.key.run_id,
        "attempt": envelope.key.attempt,
        "job_id": envelope.key.job_id,
        "submitted_s": envelope.key.submitted_s,
        "revision": int(envelope.revision),
        "written_s": envelope.written_s,
        "outcome": envelope.outcome,
        "sane": envelope.sane,
        "platform": envelope.platform,
        "benchmark": envelope.benchmark,
        "layout": envelope.layout,
        **envelope.trial.content(),
        "started_s": envelope.started_s,
        "ended_s": envelope.ended_s,
        "metrics": _metrics_content(envelope.metrics),
        "beside": _metrics_content(envelope.beside),
        "no_split": envelope.no_split,
        "fields": envelope.fields,
        "comparability": envelope.comparability,
        "doubts": envelope.doubts,
        "explanations": envelope.explanations,
        "statistic": envelope.statistic,
        "verdicts": envelope.verdicts,
        "provenance": envelope.provenance,
        "network": envelope.network,
        "source": None if envelope.source == "suite" else envelope.source,
        "run": envelope.run._asdict() if envelope.run else None,
    }
    known = {name: value for name, value in content.items() if value is not None and value not in ("", (), {})}
    return as_json(known, compact=True).encode() + b"\n"


def _metrics_content(metrics: Mapping[str, Metric]) -> dict[str, dict[str, object]]:
    content: dict[str, dict[str, object]] = {}
    for name, metric in metrics.items():
        content[name] = {"value": metric.value, "unit": metric.unit}
        if metric.better != "higher":
            content[name]["better"] = metric.better
    return content


def ids_in_lines(tests: Collection[str]) -> frozenset[bytes]:
    """The tests' ids as they stand in lines, for `may_be_of`."""
    return frozenset(json.dumps(test)[1:-1].encode() for test in tests)


def may_be_of(line: bytes, ids: frozenset[bytes]) -> bool:
    """Whether a line can be an envelope of one of these tests.

    A line that begins otherwise than ours do, whose id has escaped characters, or which was imported when each
    repetition was a test of its own, must be parsed to know that.
    """
    if not line.startswith(_START):
        return True
    test = line[len(_START) : line.find(b'"', len(_START))]
    return test in ids or test[: test.find(b"[") + 1] in ids or b"\\" in test or b"repeat_no=" in test


def without_repetition(test: str) -> str:
    """The id or name of a test of ReFrame without the number of its repetition: repetitions are one test."""
    return REPETITION.sub("", test)


def job_of(line: bytes) -> bytes:
    """The beginning of a line, up to its revision: the lines of one job have it in common."""
    return line.partition(_REVISION)[0]


def job_that_ended(line: bytes) -> bytes | None:
    """`job_of` a line that the line of the job's test replaces; None for any other line.

    A job that was not submitted has nothing by which its beginning differs from that of the test's other jobs.
    """
    job, _, rest = line.partition(_REVISION)
    if rest.startswith(_JOB_ENDED) and b',"job_id":"' in job and b',"submitted_s":' in job:
        return job
    return None


def from_line(line: bytes) -> Envelope:
    """Read a line that `to_line` or another program has written.

    Raises:
        ValueError: the line is no envelope, or has another schema. The text says why.
    """
    return from_content(content_of(line))


def content_of(line: bytes) -> dict[str, Any]:
    """The object of a line. Raises ValueError where `from_line` does so without looking at the single values."""
    try:
        content = _DECODER.decode(line.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    schema = content.get("schema")
    if schema != SCHEMA:
        raise ValueError(f"it has the schema {schema!r}, and this version reads {SCHEMA} (update the suite)")
    return content


def from_content(content: Mapping[str, Any]) -> Envelope:
    """The envelope of a line's object. Raises ValueError as `from_line` does."""
    try:
        return _envelope(content)
    except KeyError as error:
        raise ValueError(f"the key {error} is missing") from None
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"a value has the wrong type: {error}") from None


def _envelope(content: Mapping[str, Any]) -> Envelope:
    get = content.get
    job_id = get("job_id")
    trial = Trial.from_content(content) if content.keys() & TRIAL_KEYS else ONLY
    return Envelope(
        key=Key(
            site=intern(content["site"]),
            run_id=str(content["run_id"]),
            test=intern(without_repetition(content["test"]) if get("source") else content["test"]),
            attempt=int(content["attempt"]),
            job_id=None if job_id is None else str(job_id),
            submitted_s=seconds(get("submitted_s")),
            trial=trial.key,
        ),
        revision=int(content["revision"]),
        written_s=seconds(content["written_s"]) or 0.0,
        outcome=Outcome(content["outcome"]),
        sane=content["sane"] is True,
        platform=intern(content["platform"]),
        benchmark=_text(get("benchmark")),
        layout=intern(get("layout", "")),
        trial=trial,
        started_s=seconds(get("started_s")),
        ended_s=seconds(get("ended_s")),
        metrics=_metrics(get("metrics", {})),
        beside=_metrics(get("beside", {})),
        no_split=_text(get("no_split")) or None,
        fields=mapping(get("fields", {})),
        comparability=intern(get("comparability", "")),
        doubts=tuple(intern(word) for word in get("doubts", ()) if word not in EXPLANATIONS),
        explanations=_explanations(content),
        statistic=intern(get("statistic", "")),
        verdicts={metric: mapping(verdict) for metric, verdict in mapping(get("verdicts", {})).items()},
        provenance=mapping(get("provenance", {})),
        network=mapping(get("network", {})),
        source=intern(get("source", "suite")),
        run=_run_reference(get("run")),
    )


def _explanations(content: Mapping[str, Any]) -> tuple[str, ...]:
    """Older lines have them among the doubts."""
    doubts = (word for word in content.get("doubts", ()) if word in EXPLANATIONS)
    return tuple(map(intern, (*content.get("explanations", ()), *doubts)))


def seconds(value: object) -> float | None:
    """A time. Raises TypeError."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < LATEST_S:
        raise TypeError(f"{value!r} is no time in Unix seconds")
    return float(value)


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return None if value is None else intern(value)


def mapping(value: object) -> dict[str, Any]:
    """An object, with each text kept in memory once: most lines have their devices and drivers in common.

    Raises TypeError.
    """
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return {intern(name): intern(each) if type(each) is str else each for name, each in value.items()}


def _metrics(content: object) -> dict[str, Metric]:
    """The metrics that have a value to compare. It is null if it was not finite."""
    metrics = {}
    for name, metric in mapping(content).items():
        value, better = metric["value"], metric.get("better", "higher")
        if better not in ("higher", "lower") or isinstance(value, bool):
            raise TypeError(f"{metric!r} is no metric")
        if value is not None and is_judgeable(value):
            metrics[name] = Metric(value, intern(metric["unit"]), better)
    return metrics


def _run_reference(content: object) -> RunReference | None:
    if content is None:
        return None
    reference = mapping(content)
    return RunReference(str(reference["file"]), int(reference["offset"]), int(reference["length"]))
