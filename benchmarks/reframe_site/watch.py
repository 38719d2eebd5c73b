"""Runs a command and says what it cost: `python watch.py RESULT COMMAND …` writes wall, CPU and peak memory as JSON.

A small process, since a child's peak counts what it was forked from.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def main(result: str, *command: str) -> None:
    # what it leaves running, such as a job's supervisor, is handed to us and counts once it has ended
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    # either side then cancels its jobs
    signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    wall_s = time.perf_counter() - begin
    own_s = own_cpu_s(process.pid)
    _, status, usage = os.wait4(process.pid, 0)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    all_ = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {
        "exit_code": os.waitstatus_to_exitcode(status),
        "wall_s": wall_s,
        "own_cpu_s": own_s,
        "children_cpu_s": max(0.0, all_.ru_utime + all_.ru_stime - own_s),
        "peak_mib": usage.ru_maxrss / 1024,
    }
    Path(result).write_text(json.dumps(figures))


def own_cpu_s(pid: int) -> float:
    """Of a process that has ended and was not waited for; wait4 would add its children's. In steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(*sys.argv[1:])
