"""All jobs of a session: submitted, polled, finished, retried, cancelled.

Who does what, from the main thread inwards. Read the modules in this order:

- `Runner` (runner.py): the main thread's side. It adds jobs, starts the workers that are due, waits and cancels.
- `PlatformQueue` (platform_queue.py): the jobs of one platform. The platform's worker thread runs its cycle: poll, then
  submit what there is room for. It owns three others: `Slots` (slots.py) knows which jobs wait and which take a slot
  at the scheduler, `Contact` (contact.py) calls the scheduler and knows when to leave it alone, and `Finalizer`
  (finalizer.py) does what follows an end: log, outcome, run.json, clean-up, retry.
- `Job` (live_job.py): one submission. The worker thread changes it, the main thread reads it. Its `Deadlines`
  (deadlines.py) say when waiting for it is over; its `Attempt` says which try of its test it is (retries.py).
- `Worker` (workers.py): a thread, one for each platform, so that a scheduler that hangs holds up no other platform.

messages.py has the texts that people read.
"""

from platforms.runner.live_job import Job
from platforms.runner.runner import Runner

__all__ = ["Job", "Runner"]
