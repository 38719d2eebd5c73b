"""Run the fake cluster by hand: `python -m tests.fake_kubernetes FOLDER`, until Ctrl-C or SIGTERM.

At its end it leaves the list of all requests in `FOLDER/requests`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from tests.fake_kubernetes import Kube


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fake_kubernetes", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    folder = options.folder.resolve()
    with Kube(folder, port=options.port) as kube:
        try:
            print(f"export KUBECONFIG={kube.kubeconfig}", flush=True)
            while True:
                time.sleep(0.5)  # not pause(): it would miss a signal that comes just before it
        finally:
            lines = [f"{request.method} {request.target}\n" for request in list(kube.requests)]
            (folder / "requests").write_text("".join(lines))


if __name__ == "__main__":
    main()
