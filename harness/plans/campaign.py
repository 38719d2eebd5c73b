"""`--repeat N --label NAME`: a test is measured several times in one session, spread over nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from harness.plans import Conclusion, TrialRequest, TrialResult
from platforms.job import JobError, Trial

NAMED = 5  # failed jobs that a sentence names


class Campaign:
    """The plan of a test in a campaign.

    Args:
        label: of the campaign; None for repeats without one.
        repeats: how many jobs.
        places: sets of nodes, of which the repeats take one after the other; () leaves the choice to the scheduler.
        treated: the nodes that an upgrade changes; the other ones are its control nodes. () without an upgrade.
    """

    def __init__(
        self,
        label: str | None,
        repeats: int,
        places: Sequence[tuple[str, ...]] = (),
        treated: Collection[str] = (),
    ) -> None:
        self.most = repeats
        self._label = label
        self._places = places
        self._treated = treated

    def first(self) -> Sequence[TrialRequest]:
        return [self._request(number) for number in range(1, self.most + 1)]

    def _request(self, number: int) -> TrialRequest:
        trial = Trial(label=self._label, repeat=number)
        if not self._places:
            return TrialRequest(trial)
        nodes = self._places[(number - 1) % len(self._places)]
        if not self._treated:
            return TrialRequest(trial, nodes)
        return TrialRequest(trial, nodes, group="treated" if nodes[0] in self._treated else "control")

    def more(self, results: Sequence[TrialResult]) -> Sequence[TrialRequest]:
        return []

    def conclusion(self, results: Sequence[TrialResult]) -> Conclusion | None:
        failed = [result for result in results if result.envelope is None]
        measured = len(results) - len(failed)
        name = f"campaign {self._label}" if self._label else "repeats"
        text = f"{name}: {measured} of {len(results)} jobs measured{_medians(results)}"
        if failed:
            text += f"; failed: {_named(failed)}"
        return Conclusion(text, text, fails=bool(failed))


def _medians(results: Sequence[TrialResult]) -> str:
    """The median of each metric over the jobs."""
    envelopes = [result.envelope for result in results if result.envelope is not None]
    if not envelopes:
        return ""
    from reporting.phrases import plain

    texts = []
    for name, metric in envelopes[0].metrics.items():
        values = [envelope.metrics[name].value for envelope in envelopes if name in envelope.metrics]
        spread = f"{plain(min(values), 4)} to {plain(max(values), 4)}"
        texts.append(f"{name.replace('_', ' ')} {plain(median(values), 4)} {metric.unit}, {spread}")
    return f"; median {'; '.join(texts)}" if texts else ""


def _named(failed: Sequence[TrialResult]) -> str:
    texts = [f"{result.request.trial.key}{_where(result)} ({_why(result)})" for result in failed[:NAMED]]
    if len(failed) > NAMED:
        texts.append(f"and {len(failed) - NAMED} more")
    return ", ".join(texts)


def _where(result: TrialResult) -> str:
    nodes = result.request.nodes
    if not nodes and result.job is not None:
        nodes = result.job.status.nodes
    return f" on {', '.join(nodes)}" if nodes else ""


def _why(result: TrialResult) -> str:
    if result.job is None:
        return "max_device_hours does not allow it"
    if result.error is not None:
        return result.error.partition("\n")[0]
    failure = result.job.error
    status = failure.status if isinstance(failure, JobError) else result.job.status
    return str(status).partition("\n")[0]
