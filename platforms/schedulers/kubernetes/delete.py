"""Ends a job's objects: stops its pods, so that they hold no device and stay for inspection, or deletes the objects."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from platforms.job import AwayError, BenchError, RefusedError
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import PODS
from platforms.schedulers.kubernetes.job_record import JobRecord, job_of
from platforms.schedulers.kubernetes.objects import labels

GONE_LIMIT_S = 60.0  # graceful ends take up to terminationGracePeriodSeconds
GONE_POLLS_S = (0.1, 0.2, 0.4, 0.8)  # the last one is repeated
OVER = ("Succeeded", "Failed")
Object = Mapping[str, Any]


def live_pods(pods: Sequence[Object]) -> list[Object]:
    """Return the pods that hold something, or may do so later."""
    return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in OVER]


def stop_pods(client: Client, pods: Sequence[Object]) -> None:
    """Stop pods but keep their objects and logs.

    A deadline that has passed is the only thing that ends a pod without deleting it. A pod without a node would start
    one day and has nothing to show, so it is deleted.

    Raises AwayError, and RefusedError when we may not stop some of them.
    """
    refused = []
    for pod in live_pods(pods):
        name = str(pod["metadata"]["name"])
        spec = pod.get("spec") or {}
        try:
            if not spec.get("nodeName"):
                client.delete(PODS, name)
            elif spec.get("activeDeadlineSeconds") != 1:
                client.patch(PODS, name, {"spec": {"activeDeadlineSeconds": 1}})
        except ApiError as error:
            if error.status not in (404, 409):
                refused.append(error.message)
    if refused:
        raise RefusedError(f"{client.where}: {'; '.join(refused)}")


def delete_job(client: Client, job: JobRecord) -> None:
    """Delete the root and the objects that it does not own; the garbage collector deletes those that it owns.

    Raises AwayError, RefusedError.
    """
    root = (job.root["apiVersion"], job.root["kind"], job.name)
    for address in (root, *job.unowned):
        version, kind, name = address
        resource = client.resource(version, kind)
        try:
            client.delete(resource, name, uid=(job.uid or None) if address == root else None)
        except ApiError as error:
            raise RefusedError(f"{client.where}: {resource.kubectl}/{name} is not deleted: {error.message}") from None


def wait_until_gone(
    client: Client,
    jobs: Sequence[JobRecord],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, list[str]]:
    """Wait until the objects of deleted jobs are gone, at most for GONE_LIMIT_S.

    Returns those that are still there, by job id. One LIST a kind serves all jobs. Raises AwayError.
    """
    deadline = clock() + GONE_LIMIT_S
    pauses_s = itertools.chain(GONE_POLLS_S, itertools.repeat(GONE_POLLS_S[-1]))
    while True:
        remaining = _remaining(client, jobs, labels.selector({job.run for job in jobs}))
        remaining = remaining or _remaining(client, jobs, "")  # what has lost its labels
        if not remaining or clock() >= deadline:
            return remaining
        sleep(next(pauses_s))


def _remaining(client: Client, jobs: Sequence[JobRecord], selector: str) -> dict[str, list[str]]:
    resources = {client.resource(job.root["apiVersion"], job.root["kind"]) for job in jobs}
    resources.add(PODS)
    by_name = {job.name: job for job in jobs}
    remaining: dict[str, list[str]] = {}
    for resource in sorted(resources, key=lambda resource: resource.kubectl):
        try:
            objects, _version = client.list(resource, labels=selector)
        except ApiError as error:
            raise AwayError(f"{client.where}: {error.message}") from None
        for obj in objects:
            job_name = job_of(obj, by_name)
            if job_name:
                left = remaining.setdefault(by_name[job_name].submitted.job_id, [])
                left.append(f"{resource.kubectl}/{obj['metadata']['name']}")
    return remaining


def cancel_jobs(
    client: Client,
    jobs: Sequence[JobRecord],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Delete jobs and wait until they are gone. Returns by id what may still be there, and why."""
    failed: dict[str, str] = {}
    deleted = []
    for job in jobs:
        try:
            delete_job(client, job)
        except BenchError as error:
            failed[job.submitted.job_id] = str(error)
        else:
            deleted.append(job)
    if not deleted:
        return failed
    try:
        remaining = wait_until_gone(client, deleted, clock=clock, sleep=sleep)
    except BenchError as error:
        for job in deleted:
            failed[job.submitted.job_id] = f"it is unknown whether it is gone: {error}"
        return failed
    for job_id, names in remaining.items():
        failed[job_id] = f"{', '.join(names)} will not go"
    return failed
