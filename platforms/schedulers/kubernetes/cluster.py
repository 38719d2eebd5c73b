"""Our jobs in one namespace of one cluster: judged from snapshots, their logs followed, failed ones stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from platforms.job import AwayError, BenchError, LoginNeeded, Outcome, RefusedError, State, Status, unseen
from platforms.schedulers.kubernetes import delete, evidence
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.informer import shared_informer
from platforms.schedulers.kubernetes.job_record import JobRecord
from platforms.schedulers.kubernetes.log.job_log import JobLog
from platforms.schedulers.kubernetes.objects.pod_history import deletion_requested_s
from platforms.schedulers.kubernetes.snapshot import SnapshotReader
from platforms.schedulers.kubernetes.status import kinds
from platforms.schedulers.kubernetes.status.judge import JobVerdict, Observation, judge

STOP_S = 30.0  # pods may take so long to stop before their job is deleted
UNSTOPPED_S = 600.0  # so long we try to stop a job while the cluster does not answer
WAITING = (State.QUEUED, State.STARTING, State.UNKNOWN)

Verdicts = Mapping[str, tuple[Observation, JobVerdict]]  # by job id


class Cluster:
    """One namespace, for one scheduler."""

    def __init__(self, client: Client, pod_start_limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.client = client
        self._clock = clock
        self._snapshots = SnapshotReader(client, shared_informer(client), pod_start_limit_s, clock)
        self._logs: dict[str, JobLog] = {}
        self.code: set[str] = set()  # the names of the code archives that this session has created there

    def log(self, job: JobRecord) -> JobLog:
        job_id = job.submitted.job_id
        if job_id not in self._logs:
            self._logs[job_id] = JobLog(self.client, job.submitted.folder)
        return self._logs[job_id]

    def forget(self, job: JobRecord) -> None:
        """Stop following the job's log."""
        log = self._logs.pop(job.submitted.job_id, None)
        if log is not None:
            log.close()

    def status(self, jobs: Sequence[JobRecord], *, stop: bool = True) -> dict[str, Status]:
        """Return the status of each job by id.

        Before a job counts as ended, our objects are listed again, once for all jobs. What explains an end is listed
        once, too, and not for jobs that have plainly succeeded. With `stop`, the pods of failed jobs are stopped.

        Raises AwayError, LoginNeeded; RefusedError when our objects may not be listed.
        """
        self._snapshots.begin_poll()
        live = [job for job in jobs if job.ended is None]
        verdicts = self._judge(live)
        if not _new_ends(live, verdicts) and _needs_explanation(live, verdicts):
            # Explanations are some seconds old, so an end that follows from them is confirmed below.
            verdicts = self._judge(live, explain=True)
        if _new_ends(live, verdicts):
            verdicts = self._judge(live, fresh=True, explain=True)
        if any(not _plainly_succeeded(*end) for end in _new_ends(live, verdicts)):
            self._snapshots.forget_explanations()  # an old reason would explain a new end wrongly
            verdicts = self._judge(live, explain=True)
        statuses = {}
        for job in live:
            job.timers.next_round()
            job_id = job.submitted.job_id
            if job_id in verdicts:
                observation, verdict = verdicts[job_id]
                try:
                    statuses[job_id] = self._settle(job, observation, verdict, stop=stop)
                except BenchError:
                    raise
                except Exception as error:  # of this job alone
                    statuses[job_id] = unseen(error)
            else:
                statuses[job_id] = self._snapshots.unseen[job_id]
        for job in jobs:
            if job.ended is not None:
                statuses[job.submitted.job_id] = job.ended
        return statuses

    def _judge(self, jobs: Sequence[JobRecord], *, fresh: bool = False, explain: bool = False) -> Verdicts:
        if not jobs:
            return {}
        observations = self._snapshots.look(jobs, fresh=fresh, explain=explain)
        verdicts = {}
        for job_id, observation in observations.items():
            try:
                verdicts[job_id] = observation, judge(observation)
            except Exception as error:  # of this job alone
                self._snapshots.unseen[job_id] = unseen(error)
        return verdicts

    def _settle(self, job: JobRecord, observation: Observation, verdict: JobVerdict, *, stop: bool) -> Status:
        """Return the job's status. It has ended only when none of its pods runs any more.

        A problem with its folder or with stopping it is part of its own status and concerns no other job.
        """
        with contextlib.suppress(RefusedError):  # reading the log raises the same error
            gone_pods = [*observation.gone_pods, *_as_pod(observation.gone_root)]
            self.log(job).follow([*gone_pods, *_existing_pods(observation)])
        if job.failed is None:
            if not verdict.final and not verdict.stop:
                return verdict.status
            job.failed = verdict.status  # kept: what follows from our stopping the job is not why it ended
        if job.failed.state.outcome is not Outcome.PASSED:
            if stop:
                goes_on = self._stop(job, observation, verdict)
            else:
                goes_on = _goes_on(observation, verdict)
            if goes_on:
                return self._stopping_status(job, job.failed, stop=stop)
        reasons = [job.failed.reason]
        if job.unstopped:
            command = self.client.kubectl_command(f"delete {job.address.resource}/{job.name}")
            reasons.append(f"it could not be stopped: {job.unstopped}: it may still hold a device: {command}")
        reasons.append(_write_objects(job, observation))
        if observation.root is None:
            job.deleted = True
        job.ended = replace(job.failed, reason=_joined(*reasons))
        return job.ended

    def _stopping_status(self, job: JobRecord, failed: Status, *, stop: bool) -> Status:
        """Return the status of a job that has failed and of which pods still run."""
        state = State.STARTING if failed.started_s is None else State.RUNNING
        how = "is being stopped" if stop else "goes on until a session, or `cancel`, stops it"
        return replace(failed, state=state, reason=_joined(f"what is left of it {how}: {failed}", job.unstopped))

    def _stop(self, job: JobRecord, observation: Observation, verdict: JobVerdict) -> bool:
        """Stop what still runs of a failed job, so that it holds no device.

        Returns whether something may still run, so that the job must be looked at again. When it is given up, the
        job's `unstopped` says why.
        """
        now = self._clock()
        if job.stopping is None:
            job.stopping = now
        stopping_s = now - job.stopping
        job.unstopped = ""
        pods = _existing_pods(observation)
        would_restart = _would_restart(observation, verdict)
        if not _goes_on(observation, verdict):
            return False
        try:
            if not would_restart and stopping_s <= STOP_S:
                delete.stop_pods(self.client, pods)
                return True
            _write_objects(job, observation)
            delete.delete_job(self.client, job)
            job.deleted = True
            return False
        except LoginNeeded:
            raise
        except (AwayError, RefusedError) as error:
            job.unstopped = str(error)
            if would_restart:
                with contextlib.suppress(AwayError, RefusedError):  # stopped pods hold no device meanwhile
                    delete.stop_pods(self.client, pods)
            limit_s = UNSTOPPED_S if isinstance(error, AwayError) else STOP_S
            return stopping_s <= limit_s


def _new_ends(jobs: Sequence[JobRecord], verdicts: Verdicts) -> list[tuple[Observation, JobVerdict]]:
    """Return the verdicts on jobs that seem to have ended and had not ended before."""
    ends = []
    for job in jobs:
        if job.failed is None and job.submitted.job_id in verdicts:
            observation, verdict = verdicts[job.submitted.job_id]
            if verdict.final or verdict.stop:
                ends.append((observation, verdict))
    return ends


def _plainly_succeeded(observation: Observation, verdict: JobVerdict) -> bool:
    """Say whether a job has succeeded and nothing of it was deleted, so that no event can say anything else."""
    if verdict.status.state is not State.SUCCEEDED or observation.root is None or observation.gone_pods:
        return False
    return all(deletion_requested_s(tree) is None for tree in (observation.root, *observation.pods))


def _needs_explanation(jobs: Sequence[JobRecord], verdicts: Verdicts) -> bool:
    """Say whether a job waits or has failed, so that events and nodes may say why."""
    if any(job.failed is not None for job in jobs):
        return True
    return any(verdict.status.state in WAITING for _observation, verdict in verdicts.values())


def _would_restart(observation: Observation, verdict: JobVerdict) -> bool:
    """Say whether the root's controller would start again what we stop."""
    return verdict.stop and observation.root is not None and kinds.restartable(observation.root)


def _goes_on(observation: Observation, verdict: JobVerdict) -> bool:
    return _would_restart(observation, verdict) or bool(delete.live_pods(_existing_pods(observation)))


def _write_objects(job: JobRecord, observation: Observation) -> str:
    """Write the job's objects to its folder. Returns why that is not possible, or ""."""
    try:
        evidence.write_objects(job.submitted.folder, observation)
    except RefusedError as error:
        return str(error)
    return ""


def _joined(*reasons: str) -> str:
    return "; ".join(reason for reason in reasons if reason)


def _existing_pods(observation: Observation) -> list[Mapping[str, Any]]:
    return [*observation.pods, *_as_pod(observation.root)]


def _as_pod(root: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return a root that is itself a Pod; other kinds make their pods."""
    if root is None or root.get("kind") != "Pod":
        return []
    return [root]
