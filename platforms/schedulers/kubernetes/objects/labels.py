"""By which labels our objects are found again, and the names that are made of names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from pathlib import Path

from platforms.job import JobSpec

MANAGED_BY = "app.kubernetes.io/managed-by"
OUR_NAME = "hpc-ml-bench"
RUN = "hpc-ml-bench/run"
JOB = "hpc-ml-bench/job"
PLATFORM = "hpc-ml-bench/platform"
TEST = "hpc-ml-bench/test"

QUEUE = "kueue.x-k8s.io/queue-name"
MAX_EXEC_TIME = "kueue.x-k8s.io/max-exec-time-seconds"

LONGEST = 63  # characters of a label's value and of most names
_HASH = 8


def of_job(spec: JobSpec) -> dict[str, str]:
    """The labels of every object of a job, and of its pods."""
    return {MANAGED_BY: OUR_NAME, RUN: spec.run, JOB: spec.name, PLATFORM: spec.platform, TEST: label_value(spec.test)}


def selector(runs: Collection[str]) -> str:
    """A label selector for whatever belongs to one of these runs."""
    return f"{MANAGED_BY}={OUR_NAME},{RUN} in ({','.join(sorted(runs))})"


def label_value(text: str) -> str:
    """A text as the value of a label; what is longer than that keeps its beginning and gets a hash."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    if len(words) <= LONGEST:
        return words
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:_HASH]
    return f"{words[: LONGEST - _HASH - 1].rstrip('-._')}-{digest}"


def config_map(archive: Path) -> str:
    """The ConfigMap that holds a code archive, which is named by its content."""
    return f"hpc-ml-bench-{re.sub(r'[^a-z0-9]+', '-', archive.stem.lower()).strip('-')}"


def service(name: str) -> str:
    """The Service by which the pods of a job find each other. Its name must begin with a letter."""
    return name if name[:1].isalpha() else f"job-{name}"
