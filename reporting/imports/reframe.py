"""What ReFrame records of one test case, and the envelope that it becomes.

ReFrame 4.10 records for each test case a result, the times at which its job was submitted and was complete, and for
each performance variable a value, a unit and a reference with bounds. It does not record when the job started, the
device, or which direction of a variable is good. Older versions record less of it, under other names.
"""

from __future__ import annotations

import datetime
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from platforms.job import Metric, Outcome
from reporting.history.comparability import comparability
from reporting.history.envelope import Envelope, Key, Revision
from reporting.imports.directions import Direction, MetricName

SOURCE = "reframe"

# These go into the provenance. They are no part of what makes runs comparable: a test that takes the idle nodes has
# another number of tasks each night.
SETTINGS = ("modules", "num_tasks", "num_tasks_per_node", "num_cpus_per_task", "num_gpus_per_node")

# `xfail` and `xpass` are tests whose failure was expected. Their numbers are as good as those of others.
OUTCOMES = {
    "pass": Outcome.PASSED,
    "xfail": Outcome.PASSED,
    "xpass": Outcome.FAILED,
    "fail": Outcome.FAILED,
    "abort": Outcome.ERROR,
    "skip": Outcome.SKIPPED,
    "fail_deps": Outcome.SKIPPED,
}


@dataclass(frozen=True)
class PerformanceValue:
    """One performance variable of one test case. `lower` and `upper` are the bounds of its reference, if it has any."""

    name: str
    unit: str
    value: float
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True)
class ReframeCase:
    """One test case of one run of ReFrame.

    Attributes:
        check: the test's name with its parameters, as in `stream %size=small`.
        result: pass, fail, xfail, xpass, abort, skip or fail_deps.
        fail_phase: the stage of ReFrame in which it failed. Perflogs do not always have it.
        session: the uuid of ReFrame's session. Perflogs do not have it, and older reports a time in its place.
        attempt: 2 for the first retry of a session.
        nodes: with commas between them.
        submitted_s, completed_s: when the job was submitted and was complete, in Unix seconds; from some perflogs only
            to the second. Reports before 4.7 do not say it: there they are the beginning and the end of the session.
        settings: what else may explain a change, by ReFrame's names (`SETTINGS`).
    """

    check: str
    system: str
    partition: str
    environ: str
    result: str
    values: tuple[PerformanceValue, ...] = ()
    fail_phase: str | None = None
    session: str | None = None
    attempt: int = 1
    job_id: str | None = None
    submitted_s: float | None = None
    completed_s: float | None = None
    nodes: str = ""
    version: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def test(self) -> str:
        """The test's id in the history: `stream %size=small@daint:gpu+gnu`, as ReFrame shows it, without its hash."""
        return f"{self.check}@{self.system}:{self.partition}+{self.environ}"

    @property
    def outcome(self) -> Outcome:
        return OUTCOMES.get(self.result, Outcome.ERROR)

    @property
    def sane(self) -> bool:
        """Whether its numbers count.

        ReFrame reads numbers only once the sanity of a test is established. A test that fails after that, because a
        number misses its reference, was measured well, and the gate must see that number.
        """
        if self.outcome not in (Outcome.PASSED, Outcome.FAILED):
            return False
        if self.fail_phase not in (None, "", "performance"):
            return False
        return bool(self.values)

    @property
    def has_run(self) -> bool:
        """Whether there is a job to tell of: the test was not skipped, and it is known when it ran."""
        if self.outcome is Outcome.SKIPPED:
            return False
        return self.session is not None or self.completed_s is not None

    def metric_name(self, value: PerformanceValue) -> MetricName:
        """The name by which a direction is decided."""
        return MetricName(self.check.partition(" ")[0], value.name, value.unit)


def envelope_of(case: ReframeCase, site: str, directions: Mapping[MetricName, Direction], written_s: float) -> Envelope:
    """The envelope of a test case. It has only those metrics whose direction is known."""
    metrics = {}
    for value in case.values:
        direction = directions.get(case.metric_name(value))
        if case.sane and direction is not None and math.isfinite(value.value):
            metrics[value.name] = Metric(value.value, value.unit, direction)
    fields = {"source": SOURCE}
    provenance = {"nodes": case.nodes, "reframe": case.version, **case.settings}
    return Envelope(
        key=Key(site, _run_id(case), case.test, case.attempt, case.job_id, case.submitted_s),
        revision=Revision.TEST_ENDED,
        written_s=written_s,
        outcome=case.outcome,
        sane=bool(metrics),
        platform=f"{case.system}:{case.partition}",
        benchmark=case.check.partition(" ")[0],
        ended_s=case.completed_s,
        metrics=metrics,
        fields=fields,
        comparability=comparability(fields),
        provenance={name: value for name, value in provenance.items() if value},
        source=SOURCE,
    )


def unix_seconds(text: str, where: str) -> float:
    """A time as ReFrame writes it. Raises ValueError with a sentence."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError(f"{where}: {text!r} is no time like 2026-01-31T22:00:00+0100") from None


def repeat_command(run: Envelope) -> str:
    """What is typed to run an imported test case again: ReFrame matches names without their blanks, as patterns."""
    check, _, environ = run.key.test.rpartition(f"@{run.platform}+")
    name = re.escape(check.replace(" ", "")).replace("@", ".")  # to ReFrame a pattern with an @ is a variant's number
    patterns = [shlex.quote(f"^{pattern}$") for pattern in (name, re.escape(environ))]
    return f"reframe -n {patterns[0]} --system={shlex.quote(run.platform)} -p {patterns[1]} -r"


def _run_id(case: ReframeCase) -> str:
    """The session; for a line of a perflog, which does not name it, the job."""
    if case.session is not None:
        return f"reframe-{case.session}"
    return f"reframe-perflog-{int(case.completed_s or 0)}-{case.job_id}"
