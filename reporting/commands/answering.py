"""What the commands share that people answer with: who and when, dates, texts, and which test or platform is meant."""

from __future__ import annotations

import argparse
import datetime
import getpass
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from platforms import checkout
from platforms.config.loading import nearest
from platforms.job import RefusedError
from platforms.rundir.accepted_runs import FOLDER
from reporting.commands.opened_site import OpenedSite
from reporting.commands.selection import nearest_of, of_one_test
from reporting.gate.judge import judge
from reporting.gate.series import order
from reporting.gate.verdict import Verdict
from reporting.history import reader
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.references import store
from reporting.references.answer_file import Answer
from reporting.references.answers import Author, References
from reporting.references.kept_in_git import can_be_committed

CI_USERS = ("GITLAB_USER_LOGIN", "GITHUB_ACTOR")  # who triggered the pipeline


def add_by(parser: argparse.ArgumentParser) -> None:
    """Declare `--by`."""
    parser.add_argument("--by", metavar="WHO", help="who answers (default: the user of the pipeline, or of this login)")


def author_of(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Author:
    """Who answers, and that it is now. Raises RefusedError for an empty `--by`."""
    if options.by is not None:
        return Author(text_of("--by", options.by), now())
    for name in CI_USERS:
        if environ.get(name, "").strip():
            return Author(text_of(name, environ[name]), now())
    return Author(login_name(), now())


def login_name() -> str:
    """The name of the user of this process; a container's user may have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def now() -> datetime.datetime:
    """The time, with its zone, in whole seconds as answers have it."""
    return datetime.datetime.now().astimezone().replace(microsecond=0)


def text_of(option: str, typed: str | None) -> str:
    """A text in one line. Raises RefusedError for one that is empty or cannot be printed."""
    text = " ".join((typed or "").split())
    if not text:
        raise RefusedError(f"{option}: say it in words; this is read by others, for years")
    if not text.isprintable():
        raise RefusedError(f"{option}: {text!r} has a character that cannot be printed (write it without)")
    return text


def day_of(option: str, typed: str) -> datetime.date:
    """A date that was typed. Raises RefusedError."""
    try:
        day = datetime.datetime.strptime(typed.strip(), "%Y-%m-%d").date()
    except ValueError:
        raise RefusedError(f"{option}: {typed!r} is no day (write YYYY-MM-DD, as in 2026-11-17)") from None
    return day


NIGHT = "the night of "


def coming(option: str, typed: str, now: datetime.date, of: str = "") -> datetime.date:
    """A day that has not passed, or a night where `of` is NIGHT. Raises RefusedError.

    In the morning the present night has the date of the day before.
    """
    day = day_of(option, typed)
    if day < now:
        raise RefusedError(f"{option}: {of}{day} has passed, now it is {of}{now}")
    return day


def past(option: str, typed: str, now: datetime.date, of: str = "") -> datetime.date:
    """A day that has begun, or a night where `of` is NIGHT. Raises RefusedError."""
    day = day_of(option, typed)
    if day > now:
        raise RefusedError(f"{option}: {of}{day} is still to come, now it is {of}{now}")
    return day


def night_at(opened: OpenedSite, moment: datetime.datetime) -> datetime.date:
    """The night to which a run belongs that starts at a moment."""
    return night_of(moment.timestamp(), opened.settings.night_ends)


def runs_of_test(opened: OpenedSite, typed: str) -> tuple[str, list[Envelope]]:
    """The test that is meant, and its runs at this site.

    Args:
        typed: the id of a test, or a part of it that no other test has.

    Raises RefusedError where no test or several tests are meant.
    """
    problems: list[str] = []
    envelopes = of_one_test(opened, [typed], problems)
    warn(problems)
    return envelopes[0].key.test, envelopes


def refuse_unknown_platform(opened: OpenedSite, name: str) -> None:
    """Raise RefusedError for a platform that has no file, and no run in the history, as imported ones have."""
    with_file = checkout.file_names(opened.folder)
    if name in with_file:
        return
    known = with_file | reader.platforms(opened.history, opened.settings.name)
    if name not in known:
        raise RefusedError(f"there is no platform {name!r} {nearest_of(name, known)}")


def metric_of(typed: str | None, test: str, envelopes: Sequence[Envelope]) -> str:
    """The metric that is meant. `--metric` is needed only for a test with several ones. Raises RefusedError."""
    metrics: list[str] = []
    for envelope in envelopes:
        if envelope.sane and envelope.trial.in_series:
            metrics = list(envelope.metrics)
    if not metrics:
        raise RefusedError(f"{test}: the history has no run of it with numbers")
    if typed is None and len(metrics) == 1:
        return metrics[0]
    if typed is None:
        raise RefusedError(f"{test} has several metrics; name one: {_choices(metrics)}")
    for metric in metrics:
        if metric.replace("_", " ") == typed.replace("_", " "):
            return metric
    raise RefusedError(f"--metric: {test} has no {typed!r} {nearest(typed, metrics)}")


def last_verdict(metric: str, envelopes: Sequence[Envelope], references: References, opened: OpenedSite) -> Verdict:
    """What the gate says of the last run of a test that has the metric."""
    runs = [run for run in envelopes if run.sane and run.trial.in_series and metric in run.metrics]
    last = max(runs, key=order)
    return judge(last, envelopes, references, opened.settings.night_ends)[metric]


def _choices(metrics: Iterable[str]) -> str:
    return ", ".join(f"--metric {shlex.quote(metric)}" for metric in sorted(metrics))


def references_of(opened: OpenedSite) -> References:
    """The answers of a site. What is wrong with some of them is printed."""
    references = opened.references()
    warn(references.problems)
    return references


def warn(problems: Iterable[str]) -> None:
    """Print problems that do not prevent the command."""
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)


def write(opened: OpenedSite, answer: Answer) -> Path:
    """Write an answer, and say where. Raises RefusedError."""
    try:
        path = store.append(opened.folder, answer)
    except OSError as error:
        raise RefusedError(f"{opened.folder / FOLDER}: the answer cannot be written: {error}") from None
    if can_be_committed(path):
        print(f"written to {path}; commit this file, so that every session of the site reads it")
    else:
        print(f"written to {path}; git does not keep this folder yet (docs/answers.md says how)")
    return path
