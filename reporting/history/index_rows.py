"""A line of the history as a row of the index, and back.

Lines of one session say much the same: the same test on the same machine, the same versions. The index has each such
part once, and rows refer to it by a hash of its content. So a row is small, reading it parses little, and envelopes
that say the same share one object.

What the jobs of one kind have in common is an envelope without what differs from job to job, as a line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

from platforms.job import Metric, Trial, is_judgeable
from reporting.history.envelope import Envelope, Key, RunReference
from reporting.history.envelope_json import TRIAL_KEYS, content_of, from_content, mapping, seconds
from reporting.history.measured import Facts, JobNumbers

MEASURED = (
    *("kind", "id", "time_s", "written_s", "started_s", "ended_s", "run_id", "job_id", "node", "numbers", "verdicts"),
    *("provenance", "nodes", "network"),
)
"""The columns that `JobNumbers` needs."""
LINES = 1 << 32  # a file has fewer
COLUMNS = {
    "id": "INTEGER PRIMARY KEY",  # the file's id times LINES, plus the number of the line
    "key": "INTEGER",  # a hash of what identifies the job
    "revision": "",
    "written_s": "",
    "time_s": "",
    "kind": "INTEGER",
    "run_id": "",
    "job_id": "",
    "submitted_s": "",
    "started_s": "",
    "ended_s": "",
    "node": "",  # the one that is visited
    "numbers": "",  # the values of the metrics: one alone is a number, several are a list in JSON
    "beside": "",  # the values of what is not judged, in JSON
    "verdicts": "",
    "provenance": "",  # without the nodes' names
    "nodes": "",
    "network": "",
    "run_file": "",
    "run_offset": "",
    "run_length": "",
}
"""Of the table `line`, with their types in SQLite. What ends with `_s` is in Unix seconds; `kind` is the id of a kind;
`run_id`, `node`, `provenance`, `nodes` and `run_file` are ids of parts; `verdicts` and `network` are JSON, or NULL."""

_OF_A_KIND = (
    *("test", "schema", "site", "attempt", "revision", "outcome", "sane", "platform", "benchmark", "layout"),
    *(name for name in TRIAL_KEYS if name != "node"),
    *("no_split", "fields", "comparability", "doubts", "explanations", "statistic", "source"),
)
_BLANK = {"run_id": "", "written_s": 0.0}  # what no line may lack, and each job has of its own
_MOST_REMEMBERED = 50_000  # parts; a year of a fleet has hundreds of thousands
_NOTHING: Mapping[str, Any] = {}
_NOT_READABLE = (KeyError, TypeError, AttributeError, OverflowError, ValueError, RecursionError)

Row = tuple[Any, ...]


class RowMaker:
    """Makes rows of lines. Those of a file may refer to parts that an earlier file has brought.

    Attributes:
        kinds: new ones since they were last taken away: id, JSON, site, test.
        parts: new ones: id and JSON.
    """

    def __init__(self) -> None:
        self.kinds: list[tuple[object, ...]] = []
        self.parts: list[tuple[int, str]] = []
        self._ids: dict[str | bytes, int] = {}  # of parts, by their content
        self._kinds: dict[bytes, tuple[int, Envelope]] = {}
        self._jobs: dict[tuple[int, int | None], str] = {}  # how the key of a job begins, by kind and node

    def row(self, line: bytes, row_id: int) -> Row:
        """The row of a line. Raises ValueError with what `from_line` says of a line that is no envelope."""
        content = content_of(line)
        try:
            return self._row(content, row_id)
        except _NOT_READABLE as error:
            from_content(content)
            raise ValueError(f"a value has the wrong type: {error}") from None

    def forget(self) -> None:
        """Keep memory bounded: parts that come again are made again, with the same ids."""
        if len(self._ids) > _MOST_REMEMBERED:
            self._ids.clear()

    def _row(self, content: Mapping[str, Any], row_id: int) -> Row:
        get = content.get
        numbers: list[float] = []
        beside: list[float] = []
        kind, like = self._kind(content, numbers, beside)
        job_id = get("job_id")
        job_id = None if job_id is None else str(job_id)
        submitted_s, started_s, ended_s = (
            seconds(get("submitted_s")),
            seconds(get("started_s")),
            seconds(get("ended_s")),
        )
        written_s = seconds(content["written_s"]) or 0.0
        run_id = str(content["run_id"])
        node = None if get("node") is None else self._part(content["node"])
        begins = self._jobs.get((kind, node))
        if begins is None:
            trial = replace(like.trial, node=get("node"))
            begins = repr((like.key.site, like.key.test, like.key.attempt, trial.key))
            self._jobs[kind, node] = begins
        provenance = content.get("provenance", _NOTHING)
        nodes = provenance.get("nodes")
        if nodes:
            provenance["nodes"] = None
        verdicts, network, run = get("verdicts", _NOTHING), get("network", _NOTHING), get("run")
        if not all(type(each) is dict for each in (network, *verdicts.values())):
            raise TypeError("it is no object")
        return (
            row_id,
            _hash(f"{begins}{run_id!r} {job_id!r} {submitted_s!r}".encode(errors="backslashreplace")),
            _integer(like.revision),
            written_s,
            next((time_s for time_s in (started_s, submitted_s, ended_s) if time_s is not None), written_s),
            kind,
            self._part(run_id),
            None if job_id is None else storable(job_id),
            submitted_s,
            started_s,
            ended_s,
            node,
            numbers[0] if len(numbers) == 1 and type(numbers[0]) is float else repr(numbers),
            repr(beside) if beside else None,
            _json(verdicts) if verdicts else None,
            self._part(provenance),
            self._part(nodes) if nodes else None,
            _json(network) if network else None,
            None if run is None else self._part(str(run["file"])),
            None if run is None else _integer(run["offset"]),
            None if run is None else _integer(run["length"]),
        )

    def _kind(self, content: Mapping[str, Any], numbers: list[float], beside: list[float]) -> tuple[int, Envelope]:
        """The kind of a job, and an envelope like it. The lists get the values of its metrics."""
        lists = ("metrics", numbers), ("beside", beside)
        names = {name: _without_values(content[name], values) for name, values in lists if name in content}
        get = content.get
        known = marshal.dumps(([get(name, ...) for name in _OF_A_KIND], names), 2)
        found = self._kinds.get(known)
        if found is None:
            common = {name: content[name] for name in _OF_A_KIND if name in content}
            text = json.dumps({**_BLANK, **common, **names})
            like = from_content(json.loads(text))
            found = self._kinds[known] = _hash(text.encode()), like
            self.kinds.append((found[0], text, storable(like.key.site), storable(like.key.test)))
        return found

    def _part(self, content: Any) -> int:
        known = content if type(content) is str else marshal.dumps(content, 2)
        found = self._ids.get(known)
        if found is None:
            found = self._ids[known] = _new(self.parts, json.dumps(content))
        return found


def _new(parts: list[tuple[int, str]], text: str) -> int:
    part = _hash(text.encode())
    parts.append((part, text))
    return part


def _without_values(metrics: dict[str, Any], numbers: list[float]) -> dict[str, Any]:
    """Take the values out of metrics, and add them to `numbers`. A metric that cannot be compared leaves as a whole."""
    not_comparable = []
    for name, metric in metrics.items():
        value = metric["value"]
        if isinstance(value, bool) or metric.get("better", "higher") not in ("higher", "lower"):
            raise TypeError(f"{metric!r} is no metric")
        if value is not None and is_judgeable(value):
            metric["value"] = 0
            numbers.append(value)
        else:
            not_comparable.append(name)
    for name in not_comparable:
        del metrics[name]
    return metrics


def _hash(content: bytes) -> int:
    """64 bits: of two million contents two are the same by chance once in ten million histories."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)


def _integer(value: Any) -> int:
    """A number that SQLite can keep. Raises OverflowError, TypeError and ValueError."""
    number = int(value)
    number.to_bytes(8, signed=True)
    return number


def storable(text: str) -> str | bytes:
    """A text as SQLite takes it: JSON may have half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
    return text


def restored(text: str | bytes) -> str:
    """What `storable` was given."""
    return text.decode(errors="surrogatepass") if isinstance(text, bytes) else text


_json = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` would make an encoder for each line
_parsed = json.JSONDecoder().raw_decode  # of what `_json` has made: `json.loads` takes twice as long
_SET = [getattr(Envelope, field.name).__set__ for field in fields(Envelope)]


class EnvelopeMaker:
    """Makes envelopes of rows.

    Args:
        kinds: of the jobs, by their ids.
        part: gives the JSON of a part.
    """

    def __init__(self, kinds: Mapping[int, Envelope], part: Callable[[int], str]) -> None:
        self._kinds = kinds
        self._part = cache(lambda key: json.loads(part(key)))
        self._trial = cache(self._visit)
        self._provenance = cache(self._with_nodes)
        self._facts = cache(self._of_nodes)

    def measured(self, row: Row) -> JobNumbers:
        """What the job of a row has measured. Its columns are MEASURED."""
        kind, _id, time_s, _written_s, started_s, ended_s, run_id, job_id, node, numbers, *others = row
        verdicts, provenance, nodes, network = others
        like = self._kinds[kind]
        return JobNumbers(
            like,
            time_s,
            started_s,
            ended_s,
            self._part(run_id),
            restored(job_id) if type(job_id) is bytes else job_id,
            tuple(_values(numbers)),
            _NOTHING if verdicts is None else _verdicts(verdicts),
            self._facts(kind, node, provenance, nodes),
            _NOTHING if network is None else _parsed(network, 0)[0],
        )

    def envelope(self, row: Row) -> Envelope:
        """The envelope of a row, whose columns are COLUMNS."""
        _id, _key, _revision, written_s, _time_s, kind, *of_job = row
        run_id, job_id, submitted_s, started_s, ended_s, node, numbers, beside, *others = of_job
        verdicts, provenance, nodes, network, run_file, run_offset, run_length = others
        like = self._kinds[kind]
        key = like.key
        trial, trial_key = (like.trial, key.trial) if node is None else self._trial(kind, node)
        made: Envelope = object.__new__(Envelope)
        each = (
            Key(
                key.site,
                self._part(run_id),
                key.test,
                key.attempt,
                restored(job_id) if type(job_id) is bytes else job_id,
                submitted_s,
                trial_key,
            ),
            like.revision,
            written_s,
            like.outcome,
            like.sane,
            like.platform,
            like.benchmark,
            like.layout,
            trial,
            started_s,
            ended_s,
            _filled(like.metrics, _values(numbers)),
            like.beside if beside is None else _Beside(like.beside, beside),
            like.no_split,
            like.fields,
            like.comparability,
            like.doubts,
            like.explanations,
            like.statistic,
            _NOTHING if verdicts is None else _verdicts(verdicts),
            self._provenance(provenance, nodes),
            _NOTHING if network is None else _parsed(network, 0)[0],
            like.source,
            None if run_file is None else RunReference(self._part(run_file), run_offset, run_length),
        )
        for set_field, value in zip(_SET, each, strict=True):
            set_field(made, value)
        return made

    def _visit(self, kind: int, node: int) -> tuple[Trial, str]:
        trial = replace(self._kinds[kind].trial, node=self._part(node))
        return trial, trial.key

    def _with_nodes(self, provenance: int, nodes: int | None) -> Mapping[str, Any]:
        found = mapping(self._part(provenance))
        return found if nodes is None else {**found, "nodes": self._part(nodes)}

    def _of_nodes(self, kind: int, node: int | None, provenance: int, nodes: int | None) -> Facts:
        found = self._provenance(provenance, nodes)
        run = replace(self._kinds[kind], provenance=found)
        return Facts(run.nodes if node is None else (self._part(node),), found)


class _Beside(Mapping[str, Metric]):
    """What stands beside the metrics of a run, made when somebody looks at it: of most runs nobody does."""

    __slots__ = ("_like", "_made", "_text")

    def __init__(self, like: Mapping[str, Metric], text: str) -> None:
        self._like = like
        self._text = text
        self._made: Mapping[str, Metric] | None = None

    def _all(self) -> Mapping[str, Metric]:
        if self._made is None:
            self._made = _filled(self._like, json.loads(self._text))
        return self._made

    def __getitem__(self, name: str) -> Metric:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._like)

    def __len__(self) -> int:
        return len(self._like)

    def __repr__(self) -> str:
        return repr(self._all())


def _values(numbers: float | str) -> list[float]:
    return [numbers] if isinstance(numbers, float) else list(json.loads(numbers))


def _verdicts(text: str) -> dict[str, dict[str, Any]]:
    """Verdicts whose words are in memory once."""
    return {metric: mapping(verdict) for metric, verdict in _parsed(text, 0)[0].items()}


def _filled(like: Mapping[str, Metric], values: list[float]) -> dict[str, Metric]:
    return {name: Metric(value, one.unit, one.better) for (name, one), value in zip(like.items(), values, strict=True)}
