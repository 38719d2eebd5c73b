"""One line of the history: what became of one job of one test, small enough to read thousands of them.

The whole run.json lies beside it, and the envelope says where. docs/history.md describes the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from platforms.job import ONLY, Metric, Outcome, Trial

__all__ = ["Envelope", "Key", "Metric", "Revision", "RunReference"]

SCHEMA = 1


class Key(NamedTuple):
    """What identifies a job in the history of many sites for years.

    A job's name or its scheduler's id alone would not do: schedulers give ids again, and a run id may be used twice.
    `trial` is the key of the job's trial. Jobs that could not be submitted have no other difference.
    """

    site: str
    run_id: str
    test: str
    attempt: int
    job_id: str | None
    submitted_s: float | None
    trial: str = ""


class Revision(IntEnum):
    """How final an envelope is. Of two envelopes with the same key the higher revision counts, else the later one."""

    PENDING = 1
    """The session stopped waiting for the job."""
    JOB_ENDED = 2
    """The job has ended, and its test has not been run yet. It stays so if the session is killed in between."""
    TEST_ENDED = 3
    """The test's own outcome."""


class RunReference(NamedTuple):
    """Where a run.json lies in the history.

    Attributes:
        file: relative to the history's folder, as in `2026-11/20261122T220000Z-1a2b3c.runs.jsonl`.
        offset, length: of its line in that file, in bytes, without the line's end.
    """

    file: str
    offset: int
    length: int


UNSTEADY_RUN = "unsteady"
THROTTLED = "throttled"
EXPLANATIONS = frozenset({UNSTEADY_RUN, THROTTLED})
"""Why a number may be low. Before the gate judged all windows of a run, these were doubts."""
ALL_WINDOWS = "all windows"
"""The `statistic` of an envelope whose throughput is that of all windows. Older ones have the fastest stretch's."""
TRIED = "said not to run"
"""The doubt in a job that `--try-unsupported` began."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is known of one job. Times are Unix seconds.

    Attributes:
        revision: a Revision. Writing a key again replaces the earlier envelope, so that a job is never counted twice.
        outcome: of the test, or of the job while its test has not ended.
        sane: the test has passed its own assertions and recorded its numbers. A regressed number is sane. Metrics of
            an envelope that is not sane mean nothing.
        trial: which of the test's jobs it is, and why it was begun.
        started_s: by the scheduler's clock; None where the program that made the line does not record it.
        metrics: what is judged, by name.
        beside: what is not judged and says where a change is, by name: compute throughput and fraction, the parts of
            a step (run_facts.STEP_PARTS).
        no_split: why the device does not tell waiting from computing, so that nothing stands beside; None: it does.
        fields: what makes runs comparable (reporting/history/comparability.py).
        comparability: a hash of these fields.
        doubts: why the run fills no pin and clears no red, such as `not alone`; empty for a run that does.
        explanations: why its number may be low, such as `throttled`. The run counts all the same.
        statistic: of which windows its throughput is: ALL_WINDOWS, or "" in a line that is older than that.
        verdicts: of the gate, by metric: `kind`, `red`, `change`, `since`, `limit`, `level`, `scale`.
        provenance: what may explain a change: driver, image, commit, versions, nodes.
        network: what the nodes' network cards counted: `elapsed_s`, `nodes`, and `most`, by counter: node, port, count,
            and the highest count of another node. Empty where it was not read.
        source: which program made it: `suite`, `reframe`.
        run: where its run.json lies; None where there is none.
    """

    key: Key
    revision: int
    written_s: float
    outcome: Outcome
    sane: bool
    platform: str
    benchmark: str | None = None
    layout: str = ""
    trial: Trial = ONLY
    started_s: float | None = None
    ended_s: float | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    beside: Mapping[str, Metric] = field(default_factory=dict)
    no_split: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    comparability: str = ""
    doubts: tuple[str, ...] = ()
    explanations: tuple[str, ...] = ()
    statistic: str = ""
    verdicts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)
    source: str = "suite"
    run: RunReference | None = None

    @property
    def time_s(self) -> float:
        """The time by which runs are ordered: its start, or what is known in place of it."""
        if self.started_s is not None:  # nearly always, and this is asked of every run more than once
            return self.started_s
        for seconds in (self.key.submitted_s, self.ended_s):
            if seconds is not None:
                return seconds
        return self.written_s

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes that it ran on; empty if they are not known."""
        names = self.provenance.get("nodes") or ()
        if isinstance(names, str):
            names = names.split(",")
        if not isinstance(names, list | tuple):
            return ()
        return tuple(name for name in (str(one).strip() for one in names) if name)

    @property
    def has_numbers(self) -> bool:
        """Whether its test has passed its own assertions and recorded numbers."""
        return self.sane and bool(self.metrics)

    @property
    def is_vain_try(self) -> bool:
        """Whether its platform's file says that it cannot run there, and it was tried and has no numbers.

        Such a job says nothing of the machine, so it is no incident, and its test is not blind for it.
        """
        return TRIED in self.doubts and not self.has_numbers

    @property
    def eligible(self) -> bool:
        """Whether the run may fill a pin and clear a red."""
        return self.sane and not self.doubts and self.trial.in_series
