"""How a job's objects end: stopped so that no device is held and everything stays to be looked at, or deleted."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from platforms.job import AwayError, BenchError, RefusedError
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import PODS
from platforms.schedulers.kubernetes.job_record import JobRecord
from platforms.schedulers.kubernetes.objects import labels

GONE_LIMIT_S = 60.0  # graceful ends take up to terminationGracePeriodSeconds
GONE_POLLS_S = (0.1, 0.2, 0.4, 0.8)  # and so on in steps of the last one
OVER = ("Succeeded", "Failed")
Object = Mapping[str, Any]


def live_pods(pods: Sequence[Object]) -> list[Object]:
    """Pods that hold something, or could one day."""
    return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in OVER]


def stop_pods(client: Client, pods: Sequence[Object]) -> None:
    """End pods and let them lie, with their logs. A deadline that has passed is the one thing that a pod may be given
    later; what no node has yet would begin one day, shows nothing, and is deleted.

    Raises AwayError, and RefusedError when some of them must not be ended.
    """
    refused = []
    for pod in live_pods(pods):
        name, spec = str(pod["metadata"]["name"]), pod.get("spec") or {}
        try:
            if not spec.get("nodeName"):
                client.delete(PODS, name)
            elif spec.get("activeDeadlineSeconds") != 1:
                client.patch(PODS, name, {"spec": {"activeDeadlineSeconds": 1}})
        except ApiError as error:
            if error.reason not in ("NotFound", "Conflict"):
                refused.append(error.message)
    if refused:
        raise RefusedError(f"{client.where}: {'; '.join(refused)}")


def delete_job(client: Client, job: JobRecord) -> None:
    """The root, by the garbage collector whatever it owns, and what it does not. Raises AwayError, RefusedError."""
    of_it = [(job.root["apiVersion"], job.root["kind"], job.name), *job.unowned]
    for version, kind, name in of_it:
        resource = client.resource(version, kind)
        try:
            client.delete(resource, name)
        except ApiError as error:
            raise RefusedError(f"{client.where}: {resource.kubectl}/{name} is not deleted: {error.message}") from None


def wait_until_gone(
    client: Client,
    jobs: Sequence[JobRecord],
    limit_s: float = GONE_LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, list[str]]:
    """By job id, what of deleted jobs is not gone after a while; one LIST a kind for all of them. Raises AwayError."""
    deadline = clock() + limit_s
    pauses_s = itertools.chain(GONE_POLLS_S, itertools.repeat(GONE_POLLS_S[-1]))
    while True:
        found = _remains(client, jobs)
        if not found or clock() >= deadline:
            return found
        sleep(next(pauses_s))


def _remains(client: Client, jobs: Sequence[JobRecord]) -> dict[str, list[str]]:
    resources = {client.resource(job.root["apiVersion"], job.root["kind"]) for job in jobs} | {PODS}
    by_name = {job.name: job.submitted.job_id for job in jobs}
    selector = labels.selector({job.run for job in jobs})
    found: dict[str, list[str]] = {}
    for resource in sorted(resources, key=lambda each: each.kubectl):
        try:
            objects, _version = client.list(resource, labels=selector)
        except ApiError as error:
            raise AwayError(f"{client.where}: {error.message}") from None
        for each in objects:
            job_id = by_name.get((each["metadata"].get("labels") or {}).get(labels.JOB, ""))
            if job_id is not None:
                found.setdefault(job_id, []).append(f"{resource.kubectl}/{each['metadata']['name']}")
    return found


def cancel_jobs(
    client: Client,
    jobs: Sequence[JobRecord],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Delete jobs and wait until they are seen to be gone. Returns, by id, what may still be there and why."""
    failed: dict[str, str] = {}
    for job in jobs:
        try:
            delete_job(client, job)
        except BenchError as error:
            failed[job.submitted.job_id] = str(error)
    asked = [job for job in jobs if job.submitted.job_id not in failed]
    try:
        remains = wait_until_gone(client, asked, clock=clock, sleep=sleep) if asked else {}
    except BenchError as error:
        return {**failed, **{job.submitted.job_id: f"nobody says whether it is gone: {error}" for job in asked}}
    return {**failed, **{job_id: f"{', '.join(left)} will not go" for job_id, left in remains.items()}}
