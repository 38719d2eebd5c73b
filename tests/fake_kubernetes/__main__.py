"""Start the fake cluster by hand: `python -m tests.fake_kubernetes up FOLDER` and, when done, `down FOLDER`.

`down` leaves the list of all requests in `FOLDER/requests`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.fake_kubernetes import Kube

PATIENCE_S = 60.0


def _up(folder: Path, port: int) -> int:
    """Start a cluster in the background; it runs until `down`. Returns the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "kubeconfig"
    if _running(folder):
        print(
            f"a cluster runs in {folder} already; python -m tests.fake_kubernetes down {folder} ends it",
            file=sys.stderr,
        )
        return 1
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.fake_kubernetes", "serve", str(folder), "--port", str(port)]
    with (folder / "cluster.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=Path.cwd()
        )
    (folder / "pid").write_text(str(process.pid))
    end = time.monotonic() + PATIENCE_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            print(f"the cluster does not start: see {folder / 'cluster.log'}", file=sys.stderr)
            return 1
        time.sleep(0.05)
    print(f"export KUBECONFIG={ready}")
    return 0


def _running(folder: Path) -> int:
    """Return the process id of the cluster in this folder, or 0."""
    try:
        pid = int((folder / "pid").read_text())
        if b"tests.fake_kubernetes" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    except (OSError, ValueError):
        pass
    return 0


def _serve(folder: Path, port: int) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    with Kube(folder, port=port) as kube:
        try:
            while True:
                time.sleep(0.5)  # not pause(): it would miss a signal that comes just before it
        finally:
            lines = [f"{request.method} {request.target}\n" for request in list(kube.requests)]
            (folder / "requests").write_text("".join(lines))


def _down(folder: Path) -> int:
    pid = _running(folder)
    if not pid:
        print(f"no cluster runs in {folder}", file=sys.stderr)
        return 1
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + PATIENCE_S
    while _running(folder) and time.monotonic() < end:
        time.sleep(0.05)
    still_running = bool(_running(folder))
    (folder / "pid").unlink(missing_ok=True)
    (folder / "kubeconfig").unlink(missing_ok=True)
    return int(still_running)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fake_kubernetes", description=__doc__)
    parser.add_argument("action", choices=["up", "down", "serve"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.action == "down":
        return _down(folder)
    if options.action == "up":
        return _up(folder, options.port)
    return _serve(folder, options.port)


if __name__ == "__main__":
    sys.exit(main())
