"""Runs of the history become rows: the latest one of each test, or those of many nights."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from platforms.job import RefusedError, Role, Run
from platforms.rundir import job_json
from reporting.gate.confirmation import stored_confirmation
from reporting.gate.tonight import judge_tonight
from reporting.gate.verdict import Kind, Verdict
from reporting.history.endings import endings_in
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.history.reader import run_of
from reporting.phrases import percent
from reporting.references.answers import References
from reporting.tables.row import Row, workload

CHANGED = (Kind.SLOWER, Kind.DRIFTED, Kind.FASTER, Kind.ACKNOWLEDGED)
# A line of the history keeps the change that the gate compared: for these that of the last seven nights together. What
# is judged now shows the change of all runs since it began, so the two must not look alike.
OF_SEVEN_NIGHTS = (Kind.DRIFTED, Kind.FASTER)
_KINDS = {kind.value: kind for kind in Kind}


def latest_rows(
    history: Path,
    envelopes: Sequence[Envelope],
    references: References,
    night_ends: datetime.time,
    now: datetime.datetime,
    problems: list[str],
    *,
    options: str = "",
) -> list[Row]:
    """A row for the latest run of each test that has numbers. It is judged now, with all answers given until now.

    Args:
        history: the folder that has the run.json's.
        envelopes: what the history holds, in the order of their starts.
        now: the present time; a series whose last run is old is blind.
        problems: gets a sentence for each run.json that cannot be read.
        options: what the commands in the verdicts' texts need, such as `--site=centre`.
    """
    rows = []
    ending = endings_in(history, problems)
    for of_test in by_test(envelopes).values():
        with_numbers = [number for number, envelope in enumerate(of_test) if is_measured(envelope)]
        if not with_numbers:
            continue
        current = of_test[with_numbers[-1]]
        later = [ending(envelope).state for envelope in of_test[with_numbers[-1] + 1 :]]
        remarks = []
        if later:
            remarks.append(f"later runs have no numbers: {_counted(later)}")
        verdicts = judge_tonight(current, of_test, references, night_ends, now, options=options)
        rows.append(_row(history, current, verdicts, remarks, problems))
    return sorted(rows, key=place_in_tables)


def _counted(states: Sequence[str]) -> str:
    return ", ".join(f"{state} ({count})" for state, count in Counter(states).most_common())


def all_rows(
    history: Path,
    envelopes: Sequence[Envelope],
    references: References,
    night_ends: datetime.time,
    now: datetime.datetime,
    problems: list[str],
    *,
    first: datetime.date = datetime.date.min,
) -> list[Row]:
    """A row for each run that has numbers, with what the gate said when it was recorded. The latest one is judged now.

    Args:
        envelopes: all runs of these tests, since the latest ones are judged; the other arguments are as above.
        first: the first night whose runs have rows.
    """
    rows = []
    for of_test in by_test(envelopes, with_campaigns=True).values():
        with_numbers = [envelope for envelope in of_test if is_measured(envelope)]
        latest = next((envelope for envelope in reversed(with_numbers) if envelope.trial.in_series), None)
        for envelope in with_numbers:
            if night_of(envelope.time_s, night_ends) < first:
                continue
            if envelope is latest:
                verdicts = judge_tonight(envelope, of_test, references, night_ends, now)
            else:
                verdicts = stored_verdicts(envelope)
            rows.append(_row(history, envelope, verdicts, [], problems))
    return sorted(rows, key=place_in_tables)


def unjudged_rows(history: Path, envelopes: Sequence[Envelope], problems: list[str]) -> list[Row]:
    """A row for each run that has numbers, without a verdict: that depends on runs beside them."""
    rows = [_row(history, envelope, {}, [], problems) for envelope in envelopes if is_measured(envelope)]
    return sorted(rows, key=place_in_tables)


def stored_verdicts(envelope: Envelope) -> dict[str, Verdict]:
    """What the gate said of a run when it was recorded."""
    return {
        metric: _stored(envelope.key.test, metric, kind, stored)
        for metric, stored in envelope.verdicts.items()
        if (kind := stored_kind(stored)) is not None
    }


def stored_kind(stored: Mapping[str, Any]) -> Kind | None:
    """The kind of a stored verdict; None if a later version of the suite has written it, and if nothing is stored."""
    return _KINDS.get(stored.get("kind", ""))


def _stored(test: str, metric: str, kind: Kind, stored: Mapping[str, Any]) -> Verdict:
    since = _since(stored)
    short = stored_short(kind, stored)
    change, level = stored.get("change"), stored.get("level")
    return Verdict(test, metric, kind, bool(stored.get("red")), short, "", change=change, level=level, since=since)


def _since(stored: Mapping[str, Any]) -> datetime.date | None:
    return datetime.date.fromisoformat(str(stored["since"])) if stored.get("since") else None


def stored_short(kind: Kind, stored: Mapping[str, Any]) -> str:
    """A stored verdict in a few words."""
    change, since = stored.get("change"), _since(stored)
    short = kind.value
    if kind in CHANGED and since is not None and change is not None:
        word = "faster" if kind is Kind.FASTER else "slower"
        short = f"{percent(change)}, {word} since {since}"
        if kind in OF_SEVEN_NIGHTS:
            short = f"seven nights {short}"
        if kind is Kind.ACKNOWLEDGED:
            short = f"{kind.value}: {short}"
    found = stored_confirmation(stored)
    if found is not None:
        short = f"{short}; {found.short}" if kind is Kind.SLOWER else found.short
    return short


def by_test(envelopes: Sequence[Envelope], *, with_campaigns: bool = False) -> dict[str, list[Envelope]]:
    """The jobs of a site that the gate judges, of each test.

    What was tried in vain where it cannot run is left out.

    Args:
        with_campaigns: also those of sessions with `--label`.
    """
    tests: dict[str, list[Envelope]] = {}
    for envelope in envelopes:
        if envelope.is_vain_try:
            continue
        if envelope.trial.in_series or (with_campaigns and envelope.trial.role is Role.MEASURE):
            tests.setdefault(envelope.key.test, []).append(envelope)
    return tests


def tried_in_vain(envelopes: Sequence[Envelope]) -> list[str]:
    """The tests that were only tried, where their platform's file says that they cannot run, and have no numbers."""
    others = {envelope.key.test for envelope in envelopes if not envelope.is_vain_try}
    return sorted({envelope.key.test for envelope in envelopes} - others)


def is_measured(envelope: Envelope) -> bool:
    """Whether a job that a test asked for has numbers; repeats of suspect runs and visits to nodes have no row."""
    return envelope.has_numbers and envelope.trial.role is Role.MEASURE


def _row(
    history: Path,
    envelope: Envelope,
    verdicts: Mapping[str, Verdict],
    remarks: Sequence[str],
    problems: list[str],
) -> Row:
    return Row(_run(history, envelope, problems), verdicts, envelope, (*doubt_remarks(envelope), *remarks))


def doubt_remarks(envelope: Envelope) -> list[str]:
    """The sentence below a table on a run that is in doubt."""
    if not envelope.doubts:
        return []
    return [f"it fills no pin, since it is in doubt: {', '.join(envelope.doubts)}"]


def _run(history: Path, envelope: Envelope, problems: list[str]) -> Run:
    """The whole run; what the line itself says where there is no run.json, or where it cannot be read."""
    try:
        content = run_of(history, envelope)
        if content:
            return job_json.run_from(content)
    except RefusedError as error:
        problems.append(str(error))
    except (KeyError, ValueError, TypeError) as error:
        problems.append(f"{history}: the run.json of {envelope.key.test} in {envelope.key.run_id} lacks {error}")
    return run_without_record(envelope)


def run_without_record(envelope: Envelope) -> Run:
    """What the line of the history itself says of a run."""
    return Run(
        test=envelope.key.test,
        platform=envelope.platform,
        benchmark=envelope.benchmark,
        layout=envelope.layout,
        metrics=envelope.metrics,
    )


def place_in_tables(row: Row) -> tuple[str, str, str]:
    """Rows of one platform and test stand together, and keep the order of their starts."""
    return workload(row.run), row.run.platform, row.run.test
