"""`python -m reporting accept TEST --since DATE --reason TEXT`: the level since then is right from now on."""

from __future__ import annotations

import argparse

from reporting.commands import answering
from reporting.commands.opened_site import open_site
from reporting.gate import estimates, new_level
from reporting.gate.explanation import percent, size
from reporting.gate.new_level import NewLevel

WIDE = 2.0  # runs of one level do not vary by so many scales


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("test", metavar="TEST", help="the id of a test, or a part that only one id has")
    parser.add_argument("--since", metavar="DATE", required=True, help="the first night of the new level")
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why the new level is right")
    parser.add_argument("--metric", metavar="NAME", help="which metric, if the test has several")
    answering.add_by(parser)


def main(options: argparse.Namespace) -> int:
    """Accept a level. Raises BenchError."""
    author = answering.author_of(options)
    reason = answering.text_of("--reason", options.reason)
    opened = open_site(options)
    tonight = answering.night_at(opened, author.at)
    since = answering.past_day("--since", options.since, author.at.date())
    test, envelopes = answering.runs_of_test(opened, options.test)
    metric = answering.metric_of(options.metric, test, envelopes)
    references = answering.references_of(opened)
    level = new_level.level_since(since, metric, envelopes, references, opened.settings.night_ends, tonight)
    print(f"{test}: {metric.replace('_', ' ')} is accepted as it is since the night of {since}")
    show(level)
    answering.write(opened, level.acceptance(reason, author))
    return 0


def show(level: NewLevel) -> None:
    """Print a level, and the limits that the gate has with it."""
    noise = level.noise
    unit = f" {level.series.unit}".rstrip()
    print(f"  level   {level.level:.6g}{unit}, from {len(level.runs)} runs")
    if level.old_level is not None:
        print(f"  before  {level.old_level:.6g}{unit}; the new level is {_moved(level, level.old_level)} from it")
    print(f"  anchor  {level.anchor:.6g}{unit}, the first pin; the new level is {_moved(level, level.anchor)} from it")
    print(f"  scale   {size(noise.scale)} of one run, as before; autocorrelation {noise.autocorrelation:.2f}")
    print(f"  error   {size(level.error)} of the level {level.error_text}")
    before = "" if level.old_error is None else f" (before {size(level.drift_limit(level.old_error))})"
    print(f"  limits  seven nights together {size(level.drift_limit(level.error))}{before}, ", end="")
    print(f"one run {size(estimates.step_limit(noise))}")
    if level.spread > WIDE * noise.scale:
        print(f"  these runs vary by {size(level.spread)}, much more than the scale: is it one level since then?")


def _moved(level: NewLevel, other: float) -> str:
    return percent(level.series.change(level.level, other))
