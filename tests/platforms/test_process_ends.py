"""The kernel tells each end once, whatever else the process starts meanwhile."""

from __future__ import annotations

import subprocess
import threading

from platforms.schedulers.process_ends import ProcessEnds


def test_each_end_is_told_while_children_begin_that_inherit_everything() -> None:
    """For a moment such a child has the descriptors of the ended ones, too."""
    told: list[int] = []
    all_told, over = threading.Event(), threading.Event()

    def tell(number: int) -> None:
        told.append(number)
        if len(told) == 60:
            all_told.set()

    def start_children() -> None:
        while not over.is_set():
            subprocess.run(["true"], close_fds=False, check=True)

    starting = threading.Thread(target=start_children, daemon=True)
    starting.start()
    ends = ProcessEnds()
    processes = [subprocess.Popen(["sleep", "0.02"]) for _ in range(60)]
    for number, process in enumerate(processes):
        ends.watch(process.pid, lambda number=number: tell(number))  # type: ignore[misc]

    all_told.wait(20)
    over.set()
    starting.join()
    assert sorted(told) == list(range(60))
    assert [process.wait() for process in processes] == [0] * 60
