"""The labels by which our objects are found again, and names that are derived from names."""

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

LONGEST = 63  # the most characters of a label's value and of most names
_HASH_LENGTH = 8


def of_job(spec: JobSpec) -> dict[str, str]:
    """The labels of every object of a job, and of its pods."""
    return {MANAGED_BY: OUR_NAME, RUN: spec.run, JOB: spec.name, PLATFORM: spec.platform, TEST: label_value(spec.test)}


def selector(runs: Collection[str]) -> str:
    """A label selector for all objects of some runs. Clusters often change what MANAGED_BY says."""
    return f"{RUN} in ({','.join(sorted(runs))})"


def label_value(text: str) -> str:
    """Turn a text into the value of a label. A text that is too long keeps its beginning and gets a hash."""
    value = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    if len(value) <= LONGEST:
        return value
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:_HASH_LENGTH]
    beginning = value[: LONGEST - _HASH_LENGTH - 1].rstrip("-._")
    return f"{beginning}-{digest}"


def config_map(archive: Path) -> str:
    """The name of the ConfigMap that holds a code archive. The archive is named by its content."""
    name = re.sub(r"[^a-z0-9]+", "-", archive.stem.lower()).strip("-")
    return f"hpc-ml-bench-{name}"


def service(name: str) -> str:
    """The name of the Service by which the pods of a job find each other. It must begin with a letter."""
    return name if name[:1].isalpha() else f"job-{name}"
