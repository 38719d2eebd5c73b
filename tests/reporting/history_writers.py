"""Sixteen processes that write into one history, each killed at a random moment and replaced.

python -m tests.reporting.history_writers HISTORY ACKNOWLEDGED KILLS SEED

Each writer notes in a file below ACKNOWLEDGED the run id and the attempt of every envelope that `write` has taken.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
from pathlib import Path

from reporting.history.writer import HistoryWriter
from tests.reporting.history_lines import envelope

WRITERS = 16
LONGEST_LIFE_S = 0.3


def run_json(run_id: str, attempt: int) -> dict[str, object]:
    """Up to 200 kB, so that a writer is often killed in the middle of it."""
    return {"run_id": run_id, "attempt": attempt, "log": "x" * (attempt * 7919 % 200_000)}


def write_until_killed(history: Path, acknowledged: Path) -> None:
    run_id = f"run-{os.getpid()}"
    notes = os.open(acknowledged / run_id, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    writer = HistoryWriter(history)
    for attempt in itertools.count(1):
        writer.write(envelope(run_id=run_id, attempt=attempt), run_json(run_id, attempt))
        os.write(notes, f"{run_id} {attempt}\n".encode())


def main(history: Path, acknowledged: Path, kills: int, seed: int) -> None:
    """Start the writers, and kill and replace one after the other."""
    chance = random.Random(seed)
    alive: list[int] = []
    for _ in range(kills):
        while len(alive) < WRITERS:
            process = os.fork()
            if process == 0:
                write_until_killed(history, acknowledged)
            alive.append(process)
        time.sleep(chance.uniform(0, LONGEST_LIFE_S / WRITERS))
        end(alive.pop(chance.randrange(WRITERS)))
    for process in alive:
        end(process)


def end(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
