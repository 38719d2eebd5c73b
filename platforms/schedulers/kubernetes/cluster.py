"""Our jobs in one namespace of one cluster: seen, judged, their logs followed, and what has failed stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from platforms.job import AwayError, LoginNeeded, Outcome, RefusedError, State, Status
from platforms.schedulers.kubernetes import delete, evidence
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.informer import shared_informer
from platforms.schedulers.kubernetes.job_record import JobRecord
from platforms.schedulers.kubernetes.log.job_log import JobLog
from platforms.schedulers.kubernetes.snapshot import SnapshotReader
from platforms.schedulers.kubernetes.status import kinds
from platforms.schedulers.kubernetes.status.judge import Observation, Verdict, judge

STOP_S = 30.0  # how long pods may take to stop before their job is deleted
UNSTOPPED_S = 600.0  # how long a job is stopped that nobody answers for
WAITS = (State.QUEUED, State.STARTING, State.UNKNOWN)


class Cluster:
    """One namespace, for one scheduler."""

    def __init__(self, client: Client, pod_start_limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.client, self._clock = client, clock
        self._sights = SnapshotReader(client, shared_informer(client), pod_start_limit_s, clock)
        self._logs: dict[str, JobLog] = {}
        self.code: set[str] = set()  # names of the archives that this session has put there

    def log(self, job: JobRecord) -> JobLog:
        if job.submitted.job_id not in self._logs:
            self._logs[job.submitted.job_id] = JobLog(self.client, job.submitted.folder)
        return self._logs[job.submitted.job_id]

    def forget(self, job: JobRecord) -> None:
        """Nothing of it is followed any more."""
        if (log := self._logs.pop(job.submitted.job_id, None)) is not None:
            log.close()

    def status(self, jobs: Sequence[JobRecord], *, stop: bool = True) -> dict[str, Status]:
        """By id. Before an end is believed everything is asked for anew, once for all of them. With `stop`, what still
        runs of a job that has failed is stopped.

        Raises AwayError, LoginNeeded; RefusedError when our objects may not be listed.
        """
        live = [job for job in jobs if job.ended is None]
        verdicts = self._judge(live)
        waits = any(job.failed for job in live) or any(each.status.state in WAITS for _, each in verdicts.values())
        if waits and not _news(live, verdicts):
            verdicts = self._judge(live, explain=True)  # what explains is some seconds old: no end by it yet
        if _news(live, verdicts):
            verdicts = self._judge(live, fresh=True, explain=True)
        found = {}
        for job in live:
            job.timers.next_round()
            job_id = job.submitted.job_id
            if job_id in verdicts:
                found[job_id] = self._settle(job, *verdicts[job_id], stop=stop)
            else:
                found[job_id] = self._sights.unseen[job_id]
        ended = {job.submitted.job_id: job.ended for job in jobs if job.ended}
        return found | ended

    def _judge(
        self, jobs: Sequence[JobRecord], *, fresh: bool = False, explain: bool = False
    ) -> Mapping[str, tuple[Observation, Verdict]]:
        sights = self._sights.look(jobs, fresh=fresh, explain=explain) if jobs else {}
        return {job_id: (sight, judge(sight)) for job_id, sight in sights.items()}

    def _settle(self, job: JobRecord, sight: Observation, verdict: Verdict, *, stop: bool) -> Status:
        """What is to be said of a job now: its end only when nothing of it goes on. What goes wrong with its folder, or
        with stopping it, is no other job's trouble."""
        with contextlib.suppress(RefusedError):  # which whoever reads its log is told
            self.log(job).follow([*sight.gone_pods, *_own(sight.gone_root), *_there(sight)])
        if job.failed is None and not verdict.final and not verdict.stop:
            return verdict.status
        job.failed = job.failed or verdict.status  # what came of our stopping it is no news
        wrong = job.failed.state.outcome is not Outcome.PASSED
        if wrong and (self._stop(job, sight, verdict) if stop else _goes_on(sight, verdict)):
            meanwhile = State.STARTING if job.failed.started_s is None else State.RUNNING
            how = "is being stopped" if stop else "goes on until a session, or `cancel`, stops it"
            reason = _said(f"what is left of it {how}: {job.failed}", job.unstopped)
            return replace(job.failed, state=meanwhile, reason=reason)
        still = f"it could not be stopped: {job.unstopped}: it may still hold a device: {self._typed(job)}"
        unkept = _kept(job, sight)
        job.deleted = job.deleted or sight.root is None
        job.ended = replace(job.failed, reason=_said(job.failed.reason, still if job.unstopped else "", unkept))
        return job.ended

    def _stop(self, job: JobRecord, sight: Observation, verdict: Verdict) -> bool:
        """A failed job keeps no device. Whether something of it is still there, so that we must look again; where that
        is of no use any more, `unstopped` says why."""
        now, pods = self._clock(), _there(sight)
        job.stopping = now if job.stopping is None else job.stopping
        stopping_s, job.unstopped = now - job.stopping, ""
        restarts = _restarts(sight, verdict)
        if not _goes_on(sight, verdict):
            return False
        try:
            if not restarts and stopping_s <= STOP_S:
                delete.stop_pods(self.client, pods)
                return True
            _kept(job, sight)
            delete.delete_job(self.client, job)
            job.deleted = True
            return False
        except LoginNeeded:
            raise
        except (AwayError, RefusedError) as error:
            job.unstopped = str(error)
            with contextlib.suppress(AwayError, RefusedError):  # what can be stopped holds nothing meanwhile
                delete.stop_pods(self.client, pods if restarts else ())
            return stopping_s <= (UNSTOPPED_S if isinstance(error, AwayError) else STOP_S)

    def _typed(self, job: JobRecord) -> str:
        return self.client.kubectl_command(f"delete {job.address.resource}/{job.name}")


def _news(jobs: Sequence[JobRecord], verdicts: Mapping[str, tuple[Observation, Verdict]]) -> bool:
    """Whether one of them seems to have come to an end of which nobody knew."""
    seen = (verdicts[job.submitted.job_id][1] for job in jobs if not job.failed and job.submitted.job_id in verdicts)
    return any(verdict.final or verdict.stop for verdict in seen)


def _restarts(sight: Observation, verdict: Verdict) -> bool:
    """Whether its controller would begin again what we stop."""
    return verdict.stop and sight.root is not None and kinds.restartable(sight.root)


def _goes_on(sight: Observation, verdict: Verdict) -> bool:
    return _restarts(sight, verdict) or bool(delete.live_pods(_there(sight)))


def _kept(job: JobRecord, sight: Observation) -> str:
    """Write down how all of it looked. Why that is not possible, or nothing."""
    try:
        evidence.write_objects(job.submitted.folder, sight)
    except RefusedError as error:
        return str(error)
    return ""


def _said(*words: str) -> str:
    return "; ".join(filter(None, words))


def _there(sight: Observation) -> list[Mapping[str, Any]]:
    """The pods that there are."""
    return [*sight.pods, *_own(sight.root)]


def _own(root: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """A Pod is its own pod; other kinds make theirs."""
    return [root] if root is not None and root.get("kind") == "Pod" else []
