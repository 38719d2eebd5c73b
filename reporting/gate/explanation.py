"""What people read of a verdict: one sentence, the numbers behind it, what changed, and the commands that answer it."""

from __future__ import annotations

import datetime
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from reporting.compare.causes import Causes, ProvenanceChange, causes_of, provenance_values, shown
from reporting.compare.robust import MEDIAN_PER_MEAN, UNCERTAINTY
from reporting.gate import estimates
from reporting.gate.comparison import Comparison, LevelChange
from reporting.gate.course import DRIFT_NIGHTS, Loss, RecentNights
from reporting.gate.estimates import PIN_RUNS, RETURN, WINDOW_NIGHTS, Noise, Strictness
from reporting.gate.series import Departure, Pin, RunValue, Series
from reporting.gate.verdict import Kind
from reporting.history.envelope import Envelope
from reporting.history.run_facts import STEP_PARTS
from reporting.phrases import counted, number, percent, size, spaced
from reporting.references.answers import Acceptance, Acknowledgement, References

MARGIN_RUNS = 3
"""The first night of a drift is an estimate: what was before and after it is looked for this many runs away."""
RUNS_BESIDE = 60  # say where runs of the series are slow; older ones may be of another network
RUNS_BEFORE = 7  # as many as the window has nights; older runs may have been before another change
# Work on a machine is noted when it begins and is felt when it is used, and the first night is an estimate.
NOTE_DAYS_BEFORE = 7
NOTE_DAYS_AFTER = 2
ACKNOWLEDGED_FOR = datetime.timedelta(days=14)
RUNS_TO_ACCEPT = (
    5  # the error of their median is .56 scales, beside .47 of the seven nights; fewer would blind the gate
)
RIGHT = "If the new level is right from now on"
WRONG = "If it is wrong and will be mended"
COLUMN = 16
SURE = 1.96  # standard errors, beyond which chance is in five of 100
NEXT_RUN = "The next run without doubt"
"""With it begins the sentence on what ends the red of a single run."""


@dataclass(frozen=True)
class Subject:
    """What is judged: a run, its series, whose last run it is, and what people have answered.

    Attributes:
        night: of the run.
        tonight: the night whose answers count; that of the run, or a later one.
        options: what printed commands need beside their arguments, such as `--site=centre`.
        strictness: how far beyond chance a number must be.
    """

    current: Envelope
    series: Series
    references: References
    night: datetime.date
    tonight: datetime.date
    options: str
    strictness: Strictness

    @property
    def name(self) -> str:
        """The metric as it is printed."""
        return spaced(self.series.metric)


def away(change: float, series: Series) -> str:
    """A change in words: `10.8 % below`. If lower is better, a value above the pin is the worse one."""
    below = (change < 0) == (series.better == "higher")
    return f"{100 * abs(change):.1f} % {'below' if below else 'above'}"


def runs_of(pin: Pin) -> str:
    """What a pin consists of."""
    if pin.acceptance is None:
        return f"{pin.runs} runs since {pin.first}"
    return f"accepted by {pin.acceptance.author.by} from {pin.runs} runs since {pin.first}"


def change_sentence(subject: Subject, comparison: Comparison, found: LevelChange) -> str:
    """The first sentence of a verdict on something that is away from its pin.

    Args:
        found: all that was measured since the change began, so that its size here is that of tables and reports.
    """
    pin, series = comparison.pin, subject.series
    value = f"{number(found.value, pin.level)} {series.unit}"
    distance = f"{away(found.change, series)} its pin of {number(pin.level, pin.level)} ({runs_of(pin)})"
    word = "faster" if found.kind is Kind.FASTER else "slower"
    since = f"{word} since {comparison.since()}"
    if found.nights > 1:
        nights = f"of {found.nights} nights together"
        return f"{series.test}: {subject.name} {nights}, {value}, is {distance}, {since}"
    if comparison.standing is not None and found.value != comparison.run.value:
        night = comparison.standing.night
        return f"{series.test}: {subject.name} was {value} in the night of {night}, {distance}, {since}"
    return f"{series.test}: {subject.name} {value} is {distance}, {since}"


def outlook(comparison: Comparison, found: LevelChange) -> list[str]:
    """How sure a red is and what would end it; and whether a lasting loss has become larger or smaller.

    Args:
        found: as of `change_sentence`.
    """
    lasting = comparison.course.lasting
    if lasting is None:
        if found.kind is Kind.FASTER:
            return []
        near = size(RETURN * comparison.course.step_limit)
        return [f"{NEXT_RUN} that is less than {near} worse than the pin ends this red."]
    sure = f"{-100 * found.change:.1f} ± {100 * SURE * comparison.error():.1f} %"
    nights = counted(comparison.course.nights_to_end, "more night")
    before = f"{_before(comparison, lasting)} {comparison.series.unit}"
    lines = [f"Slower since {comparison.since()} by {sure}; {nights} at {before} would end it."]
    shift = comparison.shift()
    if shift is not None:
        lines.append(f"The loss was {size(-shift.was, 1)} at first, and is {size(-shift.now, 1)} since {shift.since}.")
    return lines


def this_run(comparison: Comparison, found: LevelChange, change: LevelChange) -> list[str]:
    """A sentence on a run that is clearly worse than the change of which it is a part; nothing on any other."""
    if found.kind is not Kind.SLOWER or found.change >= change.change - found.limit:
        return []
    value = f"{number(found.value, comparison.pin.level)} {comparison.series.unit}"
    return [f"This run is worse than that: {value}, {away(found.change, comparison.series)} the pin."]


def ok_sentence(subject: Subject, comparison: Comparison) -> str:
    """The first sentence on a run that is ok."""
    pin, series = comparison.pin, subject.series
    value = f"{number(comparison.run.value, pin.level)} {series.unit}"
    level = number(pin.level, pin.level)
    return (
        f"{series.test}: {subject.name} {value} is ok, "
        f"{away(comparison.change, series)} its pin of {level} ({runs_of(pin)})"
    )


def learning_sentence(subject: Subject, runs: int) -> str:
    """The first sentence while a series has no pin."""
    if runs == PIN_RUNS:
        which = f"this run is the last of the {runs} runs of its pin, and the next run is compared with it"
        return f"{subject.series.test}: {subject.name} is not judged yet: {which}"
    return f"{subject.series.test}: {subject.name} has no pin yet: {runs} of the {PIN_RUNS} runs are there"


def coarse_sentence(subject: Subject, found: LevelChange, level: float, runs: int, night: datetime.date) -> str:
    """The first sentence on a coarse step in a night, while a series has no pin."""
    series = subject.series
    value = f"{number(found.value, level)} {series.unit} in the night of {night}"
    return (
        f"{series.test}: {subject.name} of {value} is {away(found.change, series)} {number(level, level)}, the median "
        f"of {runs} other runs. More than {100 * found.limit:.0f} % is red while the series has no pin"
    )


def zero_sentence(subject: Subject) -> str:
    """The first sentence where a relative change has no meaning."""
    return f"{subject.series.test}: {subject.name} is not judged: its pin is 0, so there is no relative change"


def left_sentence(subject: Subject, left: Departure) -> str:
    """The first sentence on a run that has left its series."""
    what = "; ".join(left.differences)
    return f"{subject.series.test}: {subject.name} has left its series: {what}, since {left.since}"


def left_numbers(subject: Subject, left: Departure, found: LevelChange) -> str:
    """How far a run is from the pin of the series that it has left."""
    level = left.pin.level
    value = f"{number(found.value, level)} {subject.series.unit}"
    is_one_unit = (subject.series.unit, subject.series.better) == (left.series.unit, left.series.better)
    distance = away(found.change, left.series) if level and is_one_unit else "beside"
    pin = number(level, level)
    if not is_one_unit:
        pin = f"{pin} {left.series.unit}".rstrip()
    return (
        f"This run has {value}, {distance} the pin that the series had, "
        f"{pin} ({runs_of(left.pin)}). Runs that differ in this have no common pin."
    )


def acknowledged_line(answer: Acknowledgement) -> str:
    """What is said of a regression that people know of."""
    return (
        f"{answer.author.by} has acknowledged {percent(answer.change)} until {answer.until} ({answer.ticket}), "
        "so it is not red."
    )


def expired_line(answer: Acknowledgement) -> str:
    """What is said once the day of an acknowledgement has passed."""
    return f"The acknowledgement of {answer.author.by} ended on {answer.until} ({answer.ticket})."


def worse_line(answer: Acknowledgement, loss: LevelChange, limit: float) -> str:
    """What is said of an acknowledged regression that is worse than it was by more than a limit."""
    return (
        f"{answer.author.by} has acknowledged {percent(answer.change)} until {answer.until} ({answer.ticket}). "
        f"It is red again: {percent(loss.change)} is worse than that by more than {size(limit)}."
    )


def doubts(subject: Subject) -> list[str]:
    """Sentences on what is doubtful about the run, and on why it may be slow."""
    lines = []
    if subject.current.doubts:
        words = ", ".join(subject.current.doubts)
        lines.append(f"This run is in doubt ({words}): it fills no pin and clears no red.")
    if subject.current.explanations:
        lines.append(f"This run was {', '.join(subject.current.explanations)}, which may explain its number.")
    return lines


def numbers(subject: Subject, comparison: Comparison) -> list[str]:
    """The lines from which a person can recompute a verdict."""
    series, pin, window = subject.series, comparison.pin, comparison.window
    level = number(pin.level, pin.level)
    lines = ["How it was computed (docs/gate.md):"]
    if pin.acceptance is None:
        lines.append(_line("pin", f"{level} {series.unit}, the median of {pin.runs} runs, {pin.first} to {pin.last}"))
    else:
        lines.extend(_accepted(series, pin, pin.acceptance))
    lines.append(_line("scale", _scale(comparison.noise)))
    lines.append(_line("autocorrelation", f"{comparison.noise.autocorrelation:.2f} from run to run"))
    run = f"{number(comparison.run.value, pin.level)}, {percent(comparison.change)}"
    over = "  RED" if comparison.change < -comparison.step_limit else ""
    limit = f"limit of one run {size(comparison.step_limit)} = {_step_limit(comparison)}"
    lines.append(_line("this run", f"{run}; {limit}{over}"))
    if window is None:
        when = "after those of the pin" if pin.acceptance is None else f"from {pin.first} on"
        if comparison.course.losses:
            when = "after those of the loss"
        lines.append(
            _line(
                f"last {WINDOW_NIGHTS} nights",
                f"are compared once {DRIFT_NIGHTS} nights have runs without doubt {when}",
            )
        )
    else:
        lines.extend(_window_lines(comparison, window))
    if comparison.course.lasting is not None:
        lines.extend(_left_of_loss(comparison, comparison.course.lasting))
    return lines


def _step_limit(comparison: Comparison) -> str:
    """Where the limit of one run comes from."""
    rule = f"{estimates.STEP_SCALES:g} x scale, at least {size(estimates.LEAST_STEP, 0)}"
    tail = comparison.noise.tail
    if tail == comparison.course.step_limit:
        rule = "the loss that chance alone seldom exceeds in this series"
        if tail == estimates.LARGE:
            rule = f"{size(tail, 0)} until enough runs show what chance alone exceeds, as the site has many tests"
    if comparison.step_limit < comparison.course.step_limit:
        return f"{RETURN:g} x ({rule}), since the run before was red"
    return rule


def _line(name: str, text: str) -> str:
    return f"  {name:<{COLUMN}}{text}"


def _accepted(series: Series, pin: Pin, answer: Acceptance) -> list[str]:
    level = number(pin.level, pin.level)
    lines = [
        _line("pin", f"{level} {series.unit}, accepted by {answer.author.by} on {answer.author.at.date()} from"),
        _line("", f"{pin.runs} runs since {pin.first}: {answer.reason}"),
    ]
    if answer.anchor != 0:
        moved = percent(series.change(answer.level, answer.anchor))
        lines.append(_line("first pin", f"{number(answer.anchor, pin.level)}; the accepted level is {moved} from it"))
    return lines


def _scale(noise: Noise) -> str:
    if not noise.runs:
        return (
            f"{size(noise.scale)}, kept from the pin before, until {PIN_RUNS} runs of this level lie before the window"
        )
    which = f"the scaled MAD of {noise.runs} runs"
    if noise.skewed:
        which = f"the scaled median distance of the slower half of {noise.runs} runs"
    deviation = f"{size(noise.deviation)}, {which}"
    if noise.deviation < estimates.LEAST_DEVIATION:
        least = size(estimates.LEAST_DEVIATION)
        deviation = f"{least} at least ({which} is {size(noise.deviation)})"
    return f"{size(noise.scale)} = {deviation}, x (1 + {UNCERTAINTY} / sqrt({noise.runs}))"


def _window_lines(comparison: Comparison, window: RecentNights) -> list[str]:
    pin, noise = comparison.pin, comparison.noise
    values = " ".join(number(run.value, pin.level) for run in window.runs)
    median_of_nights = f"{number(window.value, pin.level)}, {percent(window.change)}; {_window_limit(comparison)}"
    parts = f"sqrt({100 * window.own_error:.2f}^2 + {100 * window.pin_error:.2f}^2) %"
    of_pin = f"{size(window.pin_error)} of the pin"
    if pin.acceptance is not None:
        of_pin += ", as it was accepted"
    else:
        of_pin += f" = {_error(noise, pin.runs)}"
    return [
        _line(f"last {window.nights} nights", median_of_nights),
        _line("", f"median of {values}"),
        _line("", f"({window.runs[0].night} to {window.runs[-1].night})"),
        _line("error", f"{size(window.error)} = {parts}"),
        _line("", f"{size(window.own_error)} of the nights = {_error_of_nights(noise, len(window.runs))}"),
        _line("", of_pin),
    ]


def _window_limit(comparison: Comparison) -> str:
    """The limit of the last nights, and where it comes from."""
    rule = f"{comparison.strictness.errors:.3g} x error, at least {size(estimates.LEAST_DRIFT, 0)}"
    when = "" if comparison.course.lasting is None else ", when the loss was found"
    return f"limit {size(comparison.window_limit)} = {rule}{when}"


def _before(comparison: Comparison, lasting: Loss) -> str:
    """The level before a lasting loss."""
    level = comparison.pin.level
    return number(comparison.series.value_at(lasting.noise.level, level), level)


def _left_of_loss(comparison: Comparison, lasting: Loss) -> list[str]:
    """How much of a lasting loss is left, and in how many nights."""
    one, more = size(lasting.size), estimates.RUNS_AT_LIMIT
    mean = f"({lasting.runs} x {size(lasting.below)} + {more} x {size(lasting.limit)}) / {lasting.runs + more}"
    errors = f"({estimates.ERRORS_APART:.2f} x {size(lasting.window_error)} / {one})^2"
    left = f"{comparison.course.left:.2f} in the last {lasting.nights} nights"
    return [
        _line("still lost", f"{left}; red until below {estimates.LEFT_AT_END}  RED"),
        _line("", f"0: back at {_before(comparison, lasting)}, the median of the runs before; 1: {one} worse, or more"),
        _line("", f"{one} = {mean}: its runs, and {more} as if at the limit"),
        _line("", f"{lasting.nights} nights = {errors}, {estimates.FEWEST_NIGHTS} to {estimates.MOST_NIGHTS}"),
    ]


def _error_of_nights(noise: Noise, runs: int) -> str:
    if noise.weeks is not None:
        return "the standard deviation of earlier weeks, which vary by more than their nights explain"
    return _error(noise, runs)


def _error(noise: Noise, runs: int) -> str:
    """How the standard error of a median is computed."""
    return f"{MEDIAN_PER_MEAN} x scale x sqrt({estimates.inflation(noise.autocorrelation, runs):.2f} / {runs})"


def causes_between(subject: Subject, before: Sequence[RunValue], since: Sequence[RunValue]) -> Causes:
    """What may explain a change, by runs surely before and surely after it."""
    old = [run.envelope for run in before]
    new = [run.envelope for run in since]
    others = [run.envelope for run in subject.series.runs[-RUNS_BESIDE:] if run.eligible]
    return causes_of(old, new, metric=subject.series.metric, others=others)


def why(
    subject: Subject,
    found: LevelChange,
    causes: Causes,
    before: Sequence[RunValue],
    since: Sequence[RunValue],
    night: datetime.date,
    since_run: str | None = None,
) -> list[str]:
    """Everything that may explain a change, and the commands that answer it.

    Args:
        causes: of `causes_between`.
        before, since: runs surely before and surely after the change.
        night: the first one of the change.
        since_run: the run id with which it began, if earlier runs of that night are without it.
    """
    is_comparable = found.kind is not Kind.LEFT or found.change != 0  # of another unit, or of a pin of 0
    return [
        *([f"{percent(found.change)}, {causes.sentence()}"] if is_comparable else []),
        *what_changed(causes, subject.series.runs),
        *notes(subject, night),
        *lines_on_parts(subject, before, since, causes),
        *commands(subject, found, since_run or night),
    ]


def lines_on_parts(
    subject: Subject, before: Sequence[RunValue], since: Sequence[RunValue], causes: Causes
) -> list[str]:
    """Which part of a run has changed, by the parts of a step and what else stands beside the judged number."""
    lines = []
    if causes.split is not None:
        lines.append(f"  {causes.split.numbers()}")
    for name, metric in subject.current.beside.items():
        if name in STEP_PARTS:
            continue
        old = _values_beside(name, before)
        new = _values_beside(name, since)
        if not old or not new or not median(old):
            continue
        was, is_now = median(old), median(new)
        unit = f" {metric.unit}" if metric.unit else ""
        moved = percent((is_now - was) / abs(was))
        lines.append(f"  {spaced(name)} {number(was, was)} -> {number(is_now, was)}{unit} ({moved})")
    if lines:
        lines.insert(0, "Where it is (medians before and since):")
    return lines


def _values_beside(name: str, runs: Sequence[RunValue]) -> list[float]:
    found = [run.envelope.beside[name].value for run in runs if name in run.envelope.beside]
    return [value for value in found if math.isfinite(value)]


def around(runs: Sequence[RunValue], start: int) -> tuple[list[RunValue], list[RunValue]]:
    """Runs that lie surely before and surely after the start of a change, since that is an estimate.

    If it starts with the last run, the runs just before that one are surely before it.
    """
    if start == len(runs) - 1:
        return list(runs[max(0, start - RUNS_BEFORE) : start]), list(runs[start:])
    before = list(runs[max(0, start - MARGIN_RUNS - RUNS_BEFORE) : max(0, start - MARGIN_RUNS)])
    since = list(runs[start + MARGIN_RUNS :])
    return before or list(runs[:start]), since or list(runs[-1:])


def what_changed(causes: Causes, all_runs: Sequence[RunValue]) -> list[str]:
    """What provenance has since a change and did not have before, with the first night of it."""
    if causes.changed:
        lines = []
        for changed in causes.changed:
            first = _first_night(changed, all_runs)
            lines.append(f"  {changed.name}: {shown(changed.before)} -> {shown(changed.after)}{first}")
        return ["What changed at that time:", *lines]
    if causes.seen:
        return []  # the sentence has it
    if not causes.same:
        return ["No provenance is recorded, so it is not known what changed at that time."]
    return [f"Recorded, and the same before and since: {', '.join(causes.same)}"]


def _first_night(changed: ProvenanceChange, runs: Sequence[RunValue]) -> str:
    for run in runs:
        if provenance_values([run.envelope]).get(changed.name, set()) & changed.after:
            return f" (first in the night of {run.night})"
    return ""


def notes(subject: Subject, since: datetime.date) -> list[str]:
    """What people have noted about the platform near the first night of a change."""
    first = since - datetime.timedelta(days=NOTE_DAYS_BEFORE)
    last = since + datetime.timedelta(days=NOTE_DAYS_AFTER)
    return [
        f"Note of {note.at} on {note.platform}: {note.text} ({note.author.by})"
        for note in subject.references.notes_on(subject.current.platform, first, last)
    ]


def eligible_from(series: Series, since: datetime.date | str) -> list[RunValue]:
    """The eligible runs from a night on, or from the run with this id on; none if the series has no such run.

    Runs that were slow through a node or by chance are left out: they say nothing about a level.
    """
    return [run for run in runs_from(series, since) if run.eligible and not series.was_exceptional(run)]


def exceptional_from(series: Series, since: datetime.date | str) -> list[RunValue]:
    """The runs that `eligible_from` leaves out, since repeats have named a node or were normal."""
    return [run for run in runs_from(series, since) if run.eligible and series.was_exceptional(run)]


def runs_from(series: Series, since: datetime.date | str) -> list[RunValue]:
    """All runs from a night on, or from the run with this id on; none if the series has no such run."""
    if isinstance(since, datetime.date):
        return [run for run in series.runs if run.night >= since]
    ids = [run.run_id for run in series.runs]
    return list(series.runs[ids.index(since) :]) if since in ids else []


def accept_command(series: Series, since: datetime.date | str, reason: str, metrics: int, options: str) -> str:
    """What is typed to accept the level since a night, or since a run.

    Args:
        reason: with the quotes that a shell needs.
        metrics: how many the test has.
        options: what the command needs beside its arguments, such as `--site=centre`.
    """
    typed = f"--since {shlex.quote(str(since))} --reason {reason} {options}"
    return f"python -m reporting accept {_asked(series, metrics)} {typed}".rstrip()


def ack_command(series: Series, until: datetime.date, metrics: int, options: str) -> str:
    """What is typed to acknowledge a regression until a night. The arguments are those of `accept_command`."""
    return f"python -m reporting ack {_asked(series, metrics)} --ticket URL --until {until} {options}".rstrip()


def _asked(series: Series, metrics: int) -> str:
    """How a command names a series; the metric only if the test has several."""
    test = shlex.quote(series.test)
    return test if metrics == 1 else f"{test} --metric {shlex.quote(series.metric)}"


def commands(subject: Subject, found: LevelChange, since: datetime.date | str) -> list[str]:
    """What can be typed to answer a verdict. `since` is the first night of a change, or the id of its first run."""
    runs = len(eligible_from(subject.series, since))
    right = RIGHT
    if runs < RUNS_TO_ACCEPT:
        right += f" (this needs {RUNS_TO_ACCEPT} runs of it; there are {runs})"
    metrics = len(subject.current.metrics)
    accept = accept_command(subject.series, since, "'WHY'", metrics, subject.options)
    lines = [f"{right}:", f"  {accept}"]
    if found.kind is not Kind.FASTER:
        until = subject.tonight + ACKNOWLEDGED_FOR
        lines += [f"{WRONG}:", f"  {ack_command(subject.series, until, metrics, subject.options)}"]
    return lines


def without_answers(lines: Sequence[str], headings: Sequence[str]) -> list[str]:
    """The lines of a verdict without the commands below some headings: `RIGHT`, `WRONG`."""
    kept = []
    skips_command = False
    for line in lines:
        is_heading = line.startswith(tuple(headings))
        if not is_heading and not skips_command:
            kept.append(line)
        skips_command = is_heading
    return kept
