"""What the page of a year costs: time and memory to make it, its size, and how soon a cold Chromium shows it.

    python benchmarks/report_page.py [FOLDER] [--launches 5]

FOLDER is a site that tests/reporting/report_year.py has made; without it one is made in a temporary folder: 365 nights
of ten platforms, six tests each.

- Making it: `python -m reporting html` in a process of its own, all of its imports included.
- Interactive: from the start of the navigation until the page has loaded, its script has run and the next frame is
  drawn, so that a click is answered. Each launch is a new browser without a cache. The median counts.

Exit code 1: the page is larger than 1.5 MB, or is not interactive within 2 s.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import browser
from tests.reporting.report_year import make_year

ROOT = Path(__file__).resolve().parents[1]
LAST = datetime.date(2026, 11, 22)
LARGEST_BYTES = 1_500_000
LATEST_MS = 2000.0
WINDOWS = {"telephone, 360 x 780": (360, 780), "desk, 1440 x 900": (1440, 900), "wall, 2560 x 1440": (2560, 1440)}
DRAWN = """() => new Promise(drawn => {
  const next = () => requestAnimationFrame(() => requestAnimationFrame(() => drawn(performance.now())));
  if (document.readyState === "complete") next(); else addEventListener("load", next);
})"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--launches", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch) / "year"
        if options.folder is None:
            jobs = make_year(folder, LAST, processes=os.cpu_count() or 1)
            print(f"{jobs:,} jobs in 365 nights")
        page = Path(scratch) / "page.html"
        make(folder, page)
        content = page.read_bytes()
        packed = len(gzip.compress(content))
        print(f"size: {len(content) / 1e6:.2f} MB ({packed / 1e6:.2f} MB as a web server packs it)")
        kept = len(content) <= LARGEST_BYTES
        for name, size in WINDOWS.items():
            times_ms = sorted(interactive_ms(page, *size) for _ in range(options.launches))
            middle = median(times_ms)
            print(f"interactive, {name}: {middle / 1000:.2f} s ({times_ms[0] / 1000:.2f} to {times_ms[-1] / 1000:.2f})")
            kept = kept and middle <= LATEST_MS
    print(f"limits {'kept' if kept else 'MISSED'}: {LARGEST_BYTES / 1e6:.1f} MB, {LATEST_MS / 1000:.0f} s")
    return 0 if kept else 1


def make(folder: Path, page: Path) -> None:
    """Make the page as a person does it, and print what that took."""
    last = json.loads((folder / "truth.json").read_text())["last_night"]
    command = [sys.executable, "-m", "reporting", "html", f"--site={folder}", "--tonight", last, "-o", str(page)]
    began = time.monotonic()
    process = os.posix_spawn(sys.executable, command, {**os.environ, "PYTHONPATH": str(ROOT)})
    _pid, status, used = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    wall_s = time.monotonic() - began
    cpu_s = used.ru_utime + used.ru_stime
    print(f"python -m reporting html: {wall_s:.1f} s ({cpu_s:.1f} s of CPU), at most {used.ru_maxrss / 1e3:.0f} MB")


def interactive_ms(page: Path, width: int, height: int) -> float:
    """Open the page in a new browser. Returns the milliseconds until it can be used."""
    with browser.chromium() as chromium, browser.opened(chromium, page, width, height) as shown:
        found: float = shown.evaluate(DRAWN)
        return found


if __name__ == "__main__":
    sys.exit(main())
