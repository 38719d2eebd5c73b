"""All jobs of a session: submitted, polled, finished, retried, cancelled.

Read runner.py (the main thread), platform_queue.py (what a platform's worker thread does), live_job.py (one job) and
finalizer.py (how a job ends), in this order.
"""

from platforms.runner.live_job import Job
from platforms.runner.runner import Runner

__all__ = ["Job", "Runner"]
