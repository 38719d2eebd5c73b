"""What all jobs of a report come to: a site has millions of visits to nodes, so it has no envelope of each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from reporting.fleet.node_runs import NodeJob, NodeJobMaker
from reporting.history.envelope import Envelope
from reporting.history.measured import JobNumbers, measured_by
from reporting.report.one_test import device_hours_of, devices_of


@dataclass
class Totals:
    """Of the jobs of some tests of a site.

    Attributes:
        device_hours: what the jobs of each test took, by its id. Jobs of which a time or the number of devices is not
            known are left out.
        node_jobs: those that measured one node alone, by platform.
        first_s: when the first job started, in Unix seconds.
        last_s: when the last job of each platform started.
    """

    device_hours: dict[str, float] = field(default_factory=dict)
    node_jobs: dict[str, list[NodeJob]] = field(default_factory=dict)
    first_s: float = math.inf
    last_s: dict[str, float] = field(default_factory=dict)


def totals_of(jobs: Iterable[JobNumbers]) -> Totals:
    """The totals of jobs, each test's in the order of their starts."""
    totals = Totals()
    hours, make = totals.device_hours, NodeJobMaker()
    devices: dict[int, tuple[Envelope, int | None]] = {}  # by the id of the envelope that jobs are like
    for job in jobs:
        like = job.like
        known = devices.get(id(like))
        if known is None:
            known = devices[id(like)] = like, devices_of(like)
        taken = device_hours_of(known[1], job.started_s, job.ended_s)
        hours[like.key.test] = hours.get(like.key.test, 0.0) + (taken or 0.0)
        node_job = make.of(job)
        if node_job is not None:
            totals.node_jobs.setdefault(like.platform, []).append(node_job)
        totals.first_s = min(totals.first_s, job.time_s)
        totals.last_s[like.platform] = max(totals.last_s.get(like.platform, job.time_s), job.time_s)
    return totals


def totals_by(envelopes: Iterable[Envelope]) -> Totals:
    """The totals of the jobs of envelopes, in the order of their starts."""
    return totals_of(map(measured_by, envelopes))
