"""A paragraph of methods for a paper, made of what the runs of a bundle recorded; what they did not record, it says."""

from __future__ import annotations

import datetime
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from platforms.job import split_refusal
from platforms.results.gates import part
from reporting.bundle.records import RunRecord
from reporting.tables.row import number, workload

NAMES = {"resnet50": "ResNet-50", "cosmoflow": "CosmoFlow", "deepcam": "DeepCAM"}

_EXCLUSIVE = re.compile(r"^#SBATCH\s+--exclusive", re.MULTILINE)


def methods_text(records: Sequence[RunRecord], unfinished: Sequence[str] = ()) -> str:
    """The file METHODS.md: how the numbers were made, and for each platform a paragraph and one for each test.

    Args:
        unfinished: sentences on runs that were not finished when the bundle was made.
    """
    lines = ["# Methods", "", *_paragraph(_how_measured(records))]
    if unfinished:
        lines += ["", " ".join(unfinished)]
    platforms: dict[str, list[RunRecord]] = {}
    for record in records:
        platforms.setdefault(record.envelope.platform, []).append(record)
    for platform, of_platform in sorted(platforms.items()):
        tests: dict[str, list[RunRecord]] = {}
        for record in of_platform:
            tests.setdefault(record.envelope.key.test, []).append(record)
        lines += ["", f"## {platform}", "", *_paragraph(_of_platform(platform, of_platform))]
        for _test, of_test in sorted(tests.items()):
            lines += ["", *_paragraph(_of_test(of_test))]
        lines += ["", *_paragraph(_not_known(of_platform, tests))]
    return "\n".join([*lines, ""])


def _paragraph(sentences: Iterator[str]) -> list[str]:
    return [" ".join(sentence for sentence in sentences if sentence)]


# --- how the numbers were made ---


def _how_measured(records: Sequence[RunRecord]) -> Iterator[str]:
    ours = [record for record in records if record.envelope.source == "suite"]
    if ours:
        commits = _all(ours, lambda record: part(record.content, "suite").get("commit"))
        yield f"The runs were made with hpc-ml-bench{_at_commits(commits)}."
    for source in _all(records, lambda record: record.envelope.source):
        if source != "suite":
            count = sum(record.envelope.source == source for record in records)
            yield f"The numbers of {_count(count, 'run')} were recorded by {source} and imported."
    codes = _all(records, lambda record: part(record.content, "start").get("code"))
    if codes:
        yield f"The code of the jobs has the content hash{_plural(codes, 'es')} {_listed(codes)}."
    with_windows = [record for record in records if record.content.get("windows")]
    if with_windows:
        yield "Effective throughput is the number of samples divided by the time between two barriers."
        yield from _how_split(with_windows)
        yield (
            "The spread is the standard deviation over the mean of the windows of one run, in seconds per sample. It "
            "says how steady a run was, and not how much runs differ."
        )
    first = min(record.envelope.time_s for record in records)
    last = max(record.envelope.time_s for record in records)
    yield f"{_count(len(records), 'run')} started {_period(first, last)}."


def _how_split(records: Sequence[RunRecord]) -> Iterator[str]:
    reasons = _all(records, lambda record: split_refusal(part(record.content, "summary")))
    without = sum(record.run.no_split is not None for record in records)
    if without < len(records):
        yield (
            "Each step of each rank was split into the wait for data, the copy to the device and the computation. "
            "In each step the rank that stalled longest sets the pace. Compute fraction is one minus the share of "
            "stalls, and compute throughput is the number of samples divided by the time of the computation."
        )
    if without:
        yield f"{_count(without, 'run')} without compute fraction and compute throughput: {'; '.join(reasons)}."


def _at_commits(commits: Sequence[str]) -> str:
    if not commits:
        return ", at a commit that was not recorded"
    changed = " (with changes that are not committed)" if any(commit.endswith("-dirty") for commit in commits) else ""
    return (
        f" at commit{_plural(commits)} {_listed([commit.removesuffix('-dirty')[:12] for commit in commits])}{changed}"
    )


def _period(first_s: float, last_s: float) -> str:
    first, last = (datetime.datetime.fromtimestamp(time_s, datetime.UTC) for time_s in (first_s, last_s))
    if first.date() == last.date():
        return f"on {first.date()} between {first:%H:%M} and {last:%H:%M} UTC"
    return f"between {first:%Y-%m-%d %H:%M} and {last:%Y-%m-%d %H:%M} UTC"


# --- one platform ---


def _of_platform(platform: str, records: Sequence[RunRecord]) -> Iterator[str]:
    starts = [part(record.content, "start") for record in records if record.content.get("start")]
    if not starts:
        yield f"The runs on {platform} did not record on what they ran."
    else:
        yield _hardware(platform, records, starts)
        yield _software(records, starts)
    yield _nodes(records)


def _hardware(platform: str, records: Sequence[RunRecord], starts: Sequence[Mapping[str, Any]]) -> str:
    devices = _all(starts, lambda start: part(start, "device").get("name"))
    layouts = _all(records, lambda record: record.envelope.layout)
    ranks = _all(starts, lambda start: part(start, "world").get("size"))
    said = f"On {platform} the runs used the device{_plural(devices)} {_listed(devices) or '(not recorded)'}"
    said += f" in the layout{_plural(layouts)} {_listed(layouts)} (nodes x devices per node)" if layouts else ""
    said += f" with {_listed(ranks)} rank{'' if ranks == ['1'] else 's'}" if ranks else ""
    replicas = _all(starts, _replicas)
    said += f", which drive {_listed(replicas)}" if replicas else ""
    hosts = []
    for key, unit in (("cpu", ""), ("cores", " cores available to rank 0"), ("threads", " threads per rank")):
        values = _all(starts, lambda start, key=key: part(start, "host").get(key))
        hosts += [f"{_listed(values)}{unit}"] if values else []
    memory = _all(starts, lambda start: _gib(part(start, "host").get("memory_bytes")))
    hosts += [f"{_listed(memory)} GiB of memory"] if memory else []
    return f"{said}, on nodes with {', '.join(hosts)}." if hosts else f"{said}."


def _replicas(start: Mapping[str, Any]) -> str | None:
    """`8 replicas of 1 device`, where ranks drive several devices; None elsewhere."""
    world = part(start, "world")
    if world.get("replicas") is None:
        return None
    replicas = _count(world["replicas"], "replica")
    return f"{replicas} of {_count(world.get('devices_per_replica', 1), 'device')}"


def _gib(size: object) -> str | None:
    return f"{size / 2**30:.1f}" if isinstance(size, int | float) else None


def _software(records: Sequence[RunRecord], starts: Sequence[Mapping[str, Any]]) -> str:
    names = dict.fromkeys(name for start in starts for name in part(start, "versions"))
    parts = []
    for name in names:
        versions = _all(starts, lambda start, name=name: part(start, "versions").get(name))
        parts += [f"{name} {_listed(versions)}"] if versions else []
    for said, place, key in (
        ("driver", "device", "driver"),
        ("Linux", "host", "kernel"),
        ("launcher", "world", "launcher"),
    ):
        values = _all(starts, lambda start, place=place, key=key: part(start, place).get(key))
        parts += [f"{said} {_listed(values)}"] if values and values != ["none"] else []
    backends = _all(starts, lambda start: part(start, "world").get("backend"))
    parts += [f"{_listed(backends)} between ranks"] if backends else []
    images = _all(records, lambda record: part(record.content, "asked").get("image"))
    parts += [f"container image {_listed(images)}"] if images else []
    return f"The software was {', '.join(parts)}." if parts else ""


def _nodes(records: Sequence[RunRecord]) -> str:
    names = dict.fromkeys(name for record in records for name in record.content.get("nodes") or ())
    said = f"The runs were on {_count(len(names), 'node')} in all ({', '.join(names)})." if 0 < len(names) <= 8 else ""
    if len(names) > 8:
        said = f"The runs were on {len(names)} nodes in all."
    exclusive = [_EXCLUSIVE.search(record.script) is not None for record in records]
    if all(exclusive):
        said += " The nodes were requested for these jobs alone."
    elif any(exclusive):
        said += f" {sum(exclusive)} of {len(records)} runs requested nodes for themselves alone."
    shared = [record for record in records if any(word in ("not alone", "crowded") for word in record.envelope.doubts)]
    measured = [record for record in records if part(part(record.content, "summary"), "contention")]
    if measured:
        said += f" Other processes disturbed {len(shared)} of {len(measured)} runs in which that was measured."
    return said.strip()


def _not_known(records: Sequence[RunRecord], tests: Mapping[str, Sequence[RunRecord]]) -> Iterator[str]:
    """A sentence on what a reader of the numbers should know, and nothing recorded."""
    unknown = []
    starts = [part(record.content, "start") for record in records]
    if not any(_EXCLUSIVE.search(record.script) for record in records):
        unknown.append("whether the nodes were reserved for these jobs alone")
    if any(
        part(start, "device").get("type") not in ("cpu", None) and not part(start, "device").get("driver")
        for start in starts
    ):
        unknown.append("the driver of the device")
    if not all(part(start, "data") for start in starts):
        unknown.append("the data of programs that do not report it")
    before = [part(part(part(record.content, "summary"), "health"), "before") for record in records]
    if not all(health.get("clock_cap_mhz") or health.get("power_limit_w") for health in before):
        unknown.append("limits of clock or power of some runs")
    if any(len(of_test) == 1 for of_test in tests.values()):
        unknown.append("how much runs differ, of a test that ran once")
    if unknown:
        yield f"Not known: {'; '.join(unknown)}."


# --- one test ---


def _of_test(records: Sequence[RunRecord]) -> Iterator[str]:
    record = records[-1]
    start = part(record.content, "start")
    request = part(start, "request")
    name = NAMES.get(workload(record.run), workload(record.run))
    if not record.content.get("windows"):
        metrics = ", ".join(f"{metric} in {each.unit}" for metric, each in record.envelope.metrics.items())
        test = record.envelope.key.test
        yield f"{test} is another program, from whose output {metrics} was read; it ran {_times(records)}."
        return
    said = [_words(request, name)]
    said.append(_data(part(start, "data"), str(part(record.content, "summary").get("data_from") or "unknown")))
    said.append(_windows(record))
    said.append(f"The test ran {_times(records)}{_between(records)}.")
    yield " ".join(filter(None, said))


def _words(request: Mapping[str, Any], name: str) -> str:
    words = []
    for key, text in (("variant", "variant {}"), ("configuration", "configuration {}"), ("size", "size {}")):
        words += [text.format(request[key])] if request.get(key) else []
    words += [f"samples of {request['shape']}"] if request.get("shape") else []
    words += [f"number format {request['dtype']}"] if request.get("dtype") else []
    if request.get("global_batch_size"):
        parts = request.get("accumulation_steps", 1)
        unit = "replica" if request.get("replicas") else "rank"
        local = f"{request.get('local_batch_size')} per {unit} and micro-batch"
        words.append(
            f"global batch size {request['global_batch_size']} ({local}, {_count(parts, 'micro-batch', 'es')})"
        )
    words += [f"mode {request['mode']}"] if request.get("mode") else []
    words += ["torch.compile"] if request.get("compile") else []
    inject = request.get("inject")
    slowed = " It was slowed on purpose." if inject else ""
    if "configuration" not in request:
        how = ", ".join(words) or "a way that was not recorded"
        return f"{name}, a program of its own, was measured in {how}.{slowed}"
    return f"{name} was trained with {', '.join(words)}.{slowed}"


def _data(data: Mapping[str, Any], came_from: str) -> str:
    if not data:
        return ""
    said = f"Its data set was {data.get('kind')}, {data.get('samples')} samples as {data.get('format')}"
    mean = data.get("bytes_per_sample")
    said += f" of {mean / 1e6:.3g} MB on average" if isinstance(mean, int | float) else ""
    places = {
        "storage": "before the run at most 10 % of its bytes were in the page cache, so they came from storage",
        "memory": "at least 90 % of its bytes were in the page cache, or it was read twice: they came from memory",
        "mixed": "some of its bytes were in the page cache, so they came from both memory and storage",
    }
    return f"{said}; {places.get(came_from, 'where its bytes came from is not known')}."


def _windows(record: RunRecord) -> str:
    windows = record.content["windows"]
    steps = dict.fromkeys(str(window["steps"]) for window in windows)
    warmup = part(record.content, "summary").get("warmup_steps")
    discarded = (
        f"{_count(warmup, 'step')} of warm-up {'was' if warmup == 1 else 'were'} discarded, then" if warmup else ""
    )
    each = f"{_listed(list(steps))} step{'' if list(steps) == ['1'] else 's'}"
    shortest, longest = (choose(window["wall_s"] for window in windows) for choose in (min, max))
    said = f"{discarded} {_count(len(windows), 'window')} of {each} {'was' if len(windows) == 1 else 'were'} measured"
    said = said.strip()
    return f"{said[0].upper()}{said[1:]}, back to back, of {shortest:.2f} to {longest:.2f} s."


def _times(records: Sequence[RunRecord]) -> str:
    sessions = len({record.envelope.key.run_id for record in records})
    times = "once" if len(records) == 1 else f"{len(records)} times"
    return f"{times} in {_count(sessions, 'session')}"


def _between(records: Sequence[RunRecord]) -> str:
    rates = [record.run.effective_throughput for record in records]
    known = [rate for rate in rates if rate is not None]
    if len(known) < 2:
        return ""
    mean = statistics.fmean(known)
    return (
        f"; the effective throughput of the runs has the mean {number(mean)} samples/s and the standard deviation "
        f"{statistics.stdev(known) / mean:.1%} of it"
    )


# --- words ---


def _all(values: Sequence[Any], of: Callable[..., object]) -> list[str]:
    """Each different value once, as a text, in their order; without what is not known."""
    return list(dict.fromkeys(str(found) for found in map(of, values) if found not in (None, "")))


def _listed(words: Sequence[str]) -> str:
    if len(words) <= 1:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _plural(words: Sequence[str], ending: str = "s") -> str:
    return ending if len(words) > 1 else ""


def _count(count: object, word: str, ending: str = "s") -> str:
    return f"{count} {word}{'' if count == 1 else ending}"
