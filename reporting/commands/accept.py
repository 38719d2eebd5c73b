"""`python -m reporting accept TEST --since DATE --reason TEXT`: the level since then is right from now on."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import shlex

from platforms.job import RefusedError
from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.gate import estimates, new_level
from reporting.gate.explanation import (
    ACKNOWLEDGED_FOR,
    RUNS_TO_ACCEPT,
    accept_command,
    ack_command,
    eligible_from,
)
from reporting.gate.new_level import NewLevel
from reporting.gate.verdict import Kind, Verdict
from reporting.phrases import percent, plain, size, spaced

WIDE = 2.0  # runs of one level do not vary by so many scales; runs of two levels, accepted as one, do


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("test", metavar="TEST", help="the id of a test, or a part that only one id has")
    parser.add_argument(
        "--since", metavar="DATE", required=True, help="the first night of the new level, or its first run's id"
    )
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why the new level is right")
    parser.add_argument("--metric", metavar="NAME", help="which metric, if the test has several")
    answering.add_by(parser)


def main(options: argparse.Namespace) -> int:
    """Accept a level. Raises BenchError."""
    author = answering.author_of(options)
    reason = answering.text_of("--reason", options.reason)
    opened = open_site(options)
    tonight = answering.night_at(opened, author.at)
    test, envelopes = answering.runs_of_test(opened, options.test)
    metric = answering.metric_of(options.metric, test, envelopes)
    references = answering.references_of(opened)
    since: datetime.date | str = options.since
    if options.since not in {envelope.key.run_id for envelope in envelopes}:
        since = answering.past("--since", options.since, tonight, answering.NIGHT)
    level = new_level.level_since(since, metric, envelopes, references, opened.settings.night_ends)
    acceptance = level.acceptance(reason, author)
    before = answering.last_verdict(metric, envelopes, references, opened)
    with_answer = dataclasses.replace(references, acceptances=(*references.acceptances, acceptance))
    after = answering.last_verdict(metric, envelopes, with_answer, opened)
    better = _better(level, before, after)
    instead = []
    if better is not None:
        instead = _with_start(level, better, reason, opened)
    if _changes_nothing(level, before, after):
        said = f"{test}: nothing is written, since this would change nothing: the last run would still be {after.short}"
        if after.kind is Kind.NODE:
            instead = _on_the_node(level, tonight, opened)
        raise RefusedError("\n".join([said, *shown(level), *instead]))
    lines = [f"{test}: {spaced(metric)} is accepted as it is since {_named(since)}", *shown(level)]
    lines += [f"  {line}" for line in _too_early(level, before, after)]
    print("\n".join([*lines, *instead]))
    answering.write(opened, acceptance)
    return 0


def _named(since: datetime.date | str) -> str:
    if isinstance(since, str):
        return f"the run {since}"
    return f"the night of {since}"


def _began(verdict: Verdict) -> datetime.date | str | None:
    """Where the change began that a verdict is about, as it is typed."""
    return verdict.since_run or verdict.since


def _is_later(began: datetime.date | str | None, level: NewLevel) -> bool:
    """Whether a change began after the first run of a level."""
    return began is not None and len(eligible_from(level.series, began)) < len(level.runs)


def _too_early(level: NewLevel, before: Verdict, after: Verdict) -> list[str]:
    """Warnings about a level that begins before the change that it shall answer."""
    lines = []
    began = _began(before)
    if began is not None and _is_later(began, level):
        lines.append(f"WARNING: the gate sees the change since {_named(began)}, so this level has runs from before it")
    if after.since is not None:
        lines.append(f"WARNING: the gate is not satisfied with this level; the last run is {after.short}")
    return lines


def _better(level: NewLevel, before: Verdict, after: Verdict) -> datetime.date | str | None:
    """A later start of the level; None if there is none."""
    for verdict in (before, after):
        if _is_later(_began(verdict), level):
            return _began(verdict)
    return None


def _changes_nothing(level: NewLevel, before: Verdict, after: Verdict) -> bool:
    """Whether the gate is red because of the same change with the level and without it."""
    if not before.red or not after.red or _began(before) != _began(after):
        return False
    if after.kind is not Kind.NODE:
        return True
    if level.old_level is None:
        return False
    return abs(level.series.change(level.level, level.old_level)) <= level.drift_limit(level.error)


def _with_start(level: NewLevel, since: datetime.date | str, reason: str, opened: OpenedSite) -> list[str]:
    """The command that accepts the level since a better start."""
    metrics = len(level.runs[-1].envelope.metrics)
    command = accept_command(level.series, since, shlex.quote(reason), metrics, opened.options)
    return [f"  a better start is {_named(since)}{_missing(level, since)}:", f"    {command}"]


def _on_the_node(level: NewLevel, tonight: datetime.date, opened: OpenedSite) -> list[str]:
    """What is typed where repeats have named a node: other nodes are as they were, so no level is new."""
    metrics = len(level.runs[-1].envelope.metrics)
    platform = shlex.quote(level.runs[-1].envelope.platform)
    return [
        "  repeats have named the node, and other nodes are as they were, so there is no new level; its runs:",
        f"    python -m reporting nodes {platform} {opened.options}".rstrip(),
        "  until the node is repaired:",
        f"    {ack_command(level.series, tonight + ACKNOWLEDGED_FOR, metrics, opened.options)}",
    ]


def _missing(level: NewLevel, since: datetime.date | str) -> str:
    runs = len(eligible_from(level.series, since))
    if runs >= RUNS_TO_ACCEPT:
        return ""
    return f", once it has {RUNS_TO_ACCEPT} runs (there are {runs})"


def shown(level: NewLevel) -> list[str]:
    """A level, and the limits that the gate has with it, as lines to print."""
    noise = level.noise
    unit = f" {level.series.unit}".rstrip()
    lines = [f"  level   {plain(level.level, 6)}{unit}, from {len(level.runs)} runs"]
    if level.left_out:
        lines.append(f"  {new_level.left_out_sentence(level.left_out)}")
    if level.old_level is not None:
        moved = _moved(level, level.old_level)
        lines.append(f"  before  {plain(level.old_level, 6)}{unit}; the new level is {moved} from it")
    moved = _moved(level, level.anchor)
    before = "" if level.old_error is None else f" (before {size(level.drift_limit(level.old_error))})"
    lines += [
        f"  anchor  {plain(level.anchor, 6)}{unit}, {level.anchor_text}; the new level is {moved} from it",
        f"  scale   {size(noise.scale)} of one run, {level.scale_text}; autocorrelation {noise.autocorrelation:.2f}",
        f"  error   {size(level.error)} of the level {level.error_text}",
        f"  limits  seven nights together {size(level.drift_limit(level.error))}{before}, "
        f"one run {size(estimates.step_limit(noise))}",
    ]
    if level.spread > WIDE * noise.scale:
        lines.append(
            f"  these runs vary by {size(level.spread)}, much more than the scale: is it one level since then?"
        )
    return lines


def _moved(level: NewLevel, other: float) -> str:
    return percent(level.series.change(level.level, other))
