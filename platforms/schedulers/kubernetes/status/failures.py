"""Why a job has failed: of all of its pods, which one was first, and what it says; and why it has too few."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from platforms.job import State, state_of_exit
from platforms.schedulers.kubernetes.objects.fields import number
from platforms.schedulers.kubernetes.status import exits, kinds, reasons, wording
from platforms.schedulers.kubernetes.status.observation import JobView
from platforms.schedulers.kubernetes.status.pods import Pod
from platforms.schedulers.kubernetes.status.reasons import Finding

TAKEN = "its pod was deleted while it ran, and the job itself was not"
SETTLE_S = 20.0  # how much later pods may show what their kind already says, or the other way round


def of_pods(case: JobView, chosen: Sequence[Pod]) -> Finding | None:
    """The failure that came first. What was deleted, or stopped by a signal, may be a consequence of another's; so it
    counts only where there is no other at that time."""
    events = case.events
    found = [(pod, exits.ending(pod, events) if pod.ended else exits.vanished(pod, events)) for pod in chosen]
    failed = [(pod, each) for pod, each in found if each.state is not State.SUCCEEDED]
    if not failed:
        return None
    pod, first = min(failed, key=lambda pair: (_consequence(pair[1]), pair[0].ended_s or float("inf"), pair[0].rank))
    return replace(first, reason=case.said_of(pod, first))


def _consequence(found: Finding) -> int:
    """0: a cause of its own. Ranks end each other with SIGTERM, and a controller deletes what is left of a job."""
    if found.state in (State.CANCELLED, State.LOST):
        return 2
    return 1 if found.state is State.SIGNALLED and found.signal == 15 else 0


def of_kind(case: JobView, said: kinds.Completion) -> Finding:
    """A kind that says that it has failed. Live while its pods have not told why yet."""
    rule = reasons.find(reasons.KIND, said.reason, said.message)
    words = ": ".join(filter(None, (said.reason, said.message)))
    if rule is not None:
        ran = case.ran or not case.pods  # a Job deletes its pods when its deadline has passed
        found = reasons.finding(rule, words, ran=ran)
        waits = next(filter(None, map(wording.waited_for, case.pods)), "")
        return found if ran or not waits else replace(found, reason=f"{words}; until then {waits}")
    cause = of_pods(case, case.over)
    if cause is None or _consequence(cause) > 1:
        if case.live and not case.waited("cause", SETTLE_S):
            return Finding(case.between, f"ended ({words}); its pods have not told why yet")
        leaving = [pod for pod in case.live if pod.deleted_s is not None]
        cause = of_pods(case, [*case.over, *case.torn, *leaving])
    if cause is None or cause.state in (State.LOST, State.CANCELLED):  # whoever says so may have deleted them for that
        crash = _crash(case)
        if crash is not None:
            return replace(crash, reason=f"{crash.reason} ({words})")
        if said.reason == "BackoffLimitExceeded" and (taken := _taken_away(case, cause)) is not None:
            return taken
        if cause is None or _exit_code(said) is not None:
            return _by_message(said, words)
    return replace(cause, reason=_and(cause.reason, case, said, words))


def _taken_away(case: JobView, cause: Finding | None) -> Finding | None:
    """A Job fails when a pod of it is deleted while it runs, and says no more than that it may not try again. That is
    no failure of what ran, also where that pod was never seen."""
    if cause is None:
        return unwitnessed(case, 1)
    return from_a_job(case, cause) if cause.state is State.CANCELLED else None


def from_a_job(case: JobView, deleted: Finding) -> Finding:
    """What the deletion of a pod means: who wants to end a Job deletes the Job, and not its pod. The controller itself
    deletes none of the pods that it needs, unless it restarts them in place."""
    if not _keeps_its_pods(case):
        return deleted
    return replace(deleted, state=State.EVICTED, reason=deleted.reason.replace(exits.DELETED, TAKEN))


def unwitnessed(case: JobView, needed: int) -> Finding | None:
    """A Job that would have so many pods still, had they not been deleted: before their end or later, and whatever it
    makes of that. None where as many go on, or were seen to end well, and where its kind may have taken them."""
    witnesses = [pod for pod in case.live + case.over if pod.succeeded or not pod.ended]
    if len(witnesses) >= needed or not _keeps_its_pods(case):
        return None
    cause = of_pods(case, case.torn)
    if any(map(exits.stops, case.events)) or (cause is not None and cause.state is State.CANCELLED):
        return Finding(State.EVICTED, TAKEN)
    if cause is not None and cause.state is not State.LOST:
        return cause
    return Finding(State.LOST, "its pods are gone, and nothing shows how they ended")


def _keeps_its_pods(case: JobView) -> bool:
    return case.sight.root is not None and not case.being_deleted and kinds.keeps_its_pods(case.object)


def of_deletion(case: JobView) -> Finding | None:
    """Why a kind takes its pods away: it is about to fail, as it says itself or as the end of one of its pods shows."""
    said = kinds.failing(case.object)
    if said is not None:
        return of_kind(case, said)
    cause = None if case.is_pod or case.retries else of_pods(case, case.over)
    return cause if cause is not None and _consequence(cause) == 0 else None


def _crash(case: JobView) -> Finding | None:
    """The first failure of a container that was started again."""
    ends = [
        (each.last.ended_s or 0.0, pod, each, each.last) for pod in case.pods for each in pod.containers if each.last
    ]
    failed = [(pod, each, end) for _time, pod, each, end in sorted(ends, key=itemgetter(0)) if not end.good]
    return exits.by_exit(*failed[0]) if failed else None


def _and(reason: str, case: JobView, said: kinds.Completion, words: str) -> str:
    """The kind's own words where they say more than that a pod has failed."""
    tries = number(case.object, "status", "failed") or 0
    if said.reason == "BackoffLimitExceeded" and tries < 2:
        return reason
    return f"{reason} ({words})" if words else reason


def _exit_code(said: kinds.Completion) -> int | None:
    found = re.search(r"exit code (\d+)", said.message)
    return int(found[1]) if found else None


def _by_message(said: kinds.Completion, words: str) -> Finding:
    """Its pods are gone, or say nothing: what it says itself."""
    code = _exit_code(said)
    if code is None:
        return Finding(State.EXITED, words or "its kind says that it has failed, and nobody says why")
    return Finding(state_of_exit(code, speaks_wire=False), words, exit_code=code)


def refused(case: JobView) -> Finding | None:
    """The last pod that was to be created, when there are too few and it was refused."""
    there = len(case.live) + sum(pod.succeeded for pod in case.over)
    if case.is_pod or there >= (case.expected or 1):
        return None
    tried = [event for event in case.events if event.reason.startswith(("FailedCreate", "SuccessfulCreate"))]
    failed = [event for event in tried if event.reason in ("FailedCreate", "FailedCreatePod")]
    if not failed or tried[-1] is not failed[-1]:
        return None
    words = failed[-1].message.removeprefix("Error creating: ")
    if (quota := reasons.quota(words)) is not None:
        return Finding(State.NEVER_ADMISSIBLE if quota.never else State.QUEUED, quota.words)
    rule = reasons.always(reasons.REFUSED, failed[-1].reason, words)
    if rule.state is not State.QUEUED and sum(event.count for event in failed) < reasons.TRIES:
        return Finding(State.QUEUED, words)
    return reasons.finding(rule, words)
