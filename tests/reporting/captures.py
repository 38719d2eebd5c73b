"""Renews the pictures and the terminal texts that the pages show: docs/images/*.png and docs/captures/*.txt.

    python -m tests.reporting.captures [--texts-only]

- The pictures are of the page of a simulated year (tests/reporting/report_year.py, seed 1, until 2026-11-22) in a real
  Chromium: on a telephone, on a desk, on a wall, on paper, light and dark, and one test with its trend.
- `judge.txt`, `trend.txt` and `month.txt` are what these commands print of that year.
- `session.txt` is a real session of pytest: a job on this machine that has become 9 % slower than its last 26 nights.
- `demo.txt` is what `make demo` prints (tests/reporting/demo.py), and page-demo.png the page that it writes.

`tests/reporting/test_captures.py` makes the texts anew and compares them.
"""

from __future__ import annotations

import argparse
import datetime
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from reporting.history import reader
from reporting.history.envelope import Envelope
from reporting.history.writer import HistoryWriter
from tests import browser
from tests.harness.conftest import PROGRAM
from tests.reporting.report_year import make_year

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
TEXTS = ROOT / "docs" / "captures"
LAST = datetime.date(2026, 11, 22)
DEMO_SITE = "demo"
COLOURS = 256
APART = (4, 6, 8, 11, 15, 20)  # how far two colours of a palette are from each other at least: the first that fits
LARGEST_BYTES = 150_000
COMMANDS = {
    "judge.txt": ("judge", "isambard_ai", "deepcam", "tuned"),
    "trend.txt": ("trend", "eidf_a100", "resnet50"),
    "month.txt": ("html", "--month", "2026-11"),
}
"""By file, what is typed after `python -m reporting`."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts-only", action="store_true", help="leave the pictures as they are")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        TEXTS.mkdir(exist_ok=True)
        for file, text in texts(folder).items():
            (TEXTS / file).write_text(text, encoding="utf-8")
            print((TEXTS / file).relative_to(ROOT))
        if not options.texts_only:
            take_demo_picture(folder / DEMO_SITE / "report.html")
            make_year(folder / "year", LAST, processes=os.cpu_count() or 1)
            take_pictures(folder / "year", folder / "page.html")
    return 0


# --- texts ------------------------------------------------------------------------------------------------------------


def texts(folder: Path) -> dict[str, str]:
    """All texts, by their files. `folder` is for what they are made of."""
    two_platforms = folder / "two"
    make_year(two_platforms, LAST, platforms=2)  # the others would not change these texts
    found = {file: command_text(two_platforms, words) for file, words in COMMANDS.items()}
    return {**found, "session.txt": session_text(folder / "session"), "demo.txt": demo_text(folder / DEMO_SITE)}


def command_text(year: Path, words: Sequence[str]) -> str:
    """What a command of `python -m reporting` prints of the year, below the line that is typed."""
    command = [sys.executable, "-m", "reporting", *words, f"--site={year}", "--tonight", str(LAST)]
    done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # 1: something is red
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    typed = f"$ python -m reporting {' '.join(words)}\n"
    return typed + done.stdout.replace(f" --site={year}", "")


def session_text(folder: Path) -> str:
    """A session whose only test has become slower: what pytest prints in a terminal of 100 columns."""
    history = folder / "site" / "history"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "test_stencil.py").write_text(TEST)
    ini = (ROOT / "pytest.ini").read_text().replace("pythonpath = .", f"pythonpath = {ROOT}")
    (folder / "pytest.ini").write_text(ini)
    _pytest(folder)
    (first,) = reader.read(history)
    shutil.rmtree(history)
    HistoryWriter(history).write_all([_nights_ago(first, ago) for ago in range(26, 0, -1)])
    return f"$ {' '.join(TYPED)}\n{_tidy(_pytest(folder, SLOWER='1.09'), folder)}"


def demo_text(folder: Path) -> str:
    """What `make demo` prints in a terminal of 80 columns. `folder` is made, with the page in it."""
    command = [sys.executable, "-m", "tests.reporting.demo", str(folder)]
    environment = {**_environment(), "COLUMNS": "80", "TZ": "UTC"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}")
    text = re.sub(r"^    \. .*/bin/activate\n", "    . .venv/bin/activate\n", done.stdout, flags=re.MULTILINE)
    shown = [line.rstrip() for line in text.splitlines()]
    return "\n".join(["$ make demo", *shown, ""]).replace(str(folder), "/tmp/hpc-ml-bench-demo")


TYPED = ("pytest", "--platform", "local")
TEST = """
import pytest

@pytest.mark.workload(command=["{python}", "{root}/program.py", "seconds=2,2.01,1.99"])
def test_stencil(run, record):
    record(run)
"""


def _pytest(folder: Path, **changes: str) -> str:
    environment = {**_environment(), **changes, "COLUMNS": "100", "HPC_ML_BENCH_LOCK": str(folder / "lock")}
    command = [sys.executable, "-m", *TYPED, "-p", "no:cacheprovider", "--benchmark-disable"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


def _environment() -> dict[str, str]:
    """Without what would change a text: a site of the user's, options of pytest's, a pipeline.

    Where CI or BUILD_NUMBER is set, pytest prints its summary's lines whole; elsewhere it cuts them to the terminal.
    """
    pipeline = ("CI", "BUILD_NUMBER", "CI_PIPELINE_ID")
    left_out = (*pipeline, "HPC_ML_BENCH_SITE", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST")
    return {name: value for name, value in os.environ.items() if name not in left_out} | {"PYTHONPATH": str(ROOT)}


def _nights_ago(run: Envelope, ago: int) -> Envelope:
    """The same run in an earlier night, up to 1 % faster or slower."""
    shift_s = ago * 86400.0
    wobble = 1 + (0, 1, -1, 0.5, -0.5)[ago % 5] / 100
    metrics = {name: replace(metric, value=metric.value * wobble) for name, metric in run.metrics.items()}
    assert run.started_s is not None
    return replace(
        run,
        key=run.key._replace(run_id=f"nightly-{ago:02}", submitted_s=run.started_s - shift_s),
        started_s=run.started_s - shift_s,
        ended_s=None,
        metrics=metrics,
        verdicts={name: {"kind": "ok", "red": False} for name in metrics},
    )


def _tidy(text: str, folder: Path) -> str:
    """Without what is of this machine alone: its folders, the suite's other platforms, versions."""
    text = text.replace(f" --site={folder}/site", "").replace(str(folder), "/home/ada/bench")
    text = re.sub(rf"(?<= on ){re.escape(platform.node())}\b", "login1", text)
    lines = [line for line in text.splitlines() if not line.startswith(("platform ", "plugins:", "benchmark:"))]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def stable(text: str) -> str:
    """A text without what differs from session to session: dates, times, ids, which states a job was seen in, and what
    this machine tells of itself."""
    text = "\n".join(line for line in text.splitlines() if not re.match(r"\d\d:\d\d:\d\d ", line))
    text = re.sub(r"\d{4}-\d\d-\d\d", "DATE", text)
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "RUN", text)
    text = re.sub(r"-k[a-z2-7]{7}", "-JOB", text)
    text = re.sub(r"[\d.]+(e-\d+)?( ms| s|s\b)", "SECONDS", text)
    text = re.sub(r"\((recorded: )?commit, [^)]*\)", "(FACTS)", text)
    text = re.sub(r"[\d.]+e-\d\d|0\.000\d+", "SMALL", text)  # device-hours of jobs of seconds
    text = text.replace(" \\\n    ", " ")  # a long command has two lines
    text = re.sub(r"\b\d\d-\d\d\b", "DATE", text)  # of the lines of a trend
    text = re.sub(r"(?<=DATE-ack-)[0-9a-f]+", "HASH", text)
    return re.sub(r"[ =─┄▁▂▃▄▅▆▇█-]+", " ", text)  # a trend ends in the present night, which may be empty yet


# --- pictures ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """A picture of the page.

    Attributes:
        size: of the window.
        test: the id of a test that is opened and shown.
        shrink: the picture is that many times smaller than the window.
        place: what follows the page's name in the address.
        month: what the page tells of a month, and nothing else of it.
    """

    name: str
    size: tuple[int, int]
    dark: bool = False
    paper: bool = False
    test: str = ""
    shrink: int = 1
    place: str = ""
    month: str = ""


SLOWER = "test_resnet50.py::test_resnet50[eidf_a100-1x4gpu-tuned]"
PICTURES = (
    Picture("page-phone", (360, 780)),
    Picture("page-phone-dark", (360, 780), dark=True),
    Picture("page-desk", (1440, 900)),
    Picture("page-desk-dark", (1440, 900), dark=True),
    Picture("page-wall", (2560, 1440), dark=True, shrink=2, place="#wall"),
    Picture("page-print", (794, 1123), paper=True),
    Picture("page-test", (1100, 1000), test=SLOWER),
    Picture("page-month", (1280, 900), month="2026-11"),
)
DEMO = Picture("page-demo", (1280, 1000))


def take_pictures(year: Path, page: Path) -> None:
    """Make the page, and write each picture as a small PNG."""
    command = [sys.executable, "-m", "reporting", "html", f"--site={year}", "--tonight", str(LAST), "-o", str(page)]
    IMAGES.mkdir(exist_ok=True)
    with browser.chromium() as chromium:
        for picture in PICTURES:
            of_month = [f"--month={picture.month}"] if picture.month else []
            if of_month or not page.exists():
                subprocess.run([*command, *of_month], cwd=ROOT, env=_environment(), check=True, stdout=sys.stderr)
            with browser.opened(chromium, page, *picture.size, dark=picture.dark) as shown:
                if picture.place:
                    shown.goto(page.as_uri() + picture.place)
                if picture.paper:
                    shown.emulate_media(media="print")
                if picture.test:
                    test = shown.locator(f'details[data-words*="{picture.test}"]')
                    test.evaluate("details => { details.open = true; details.scrollIntoView() }")
                png = shown.locator("#month").screenshot() if picture.month else shown.screenshot()
            write_small(png, IMAGES / f"{picture.name}.png", picture.shrink)


def take_demo_picture(page: Path) -> None:
    """The page of `make demo`, with its incidents first."""
    with browser.chromium() as chromium, browser.opened(chromium, page, *DEMO.size) as shown:
        write_small(shown.screenshot(), IMAGES / f"{DEMO.name}.png", DEMO.shrink)


def write_small(png: bytes, path: Path, shrink: int) -> None:
    """Write a picture with few colours. Raises SystemExit if it is still too large for a repository."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    if shrink > 1:
        image = image.resize((image.width // shrink, image.height // shrink), Image.Resampling.LANCZOS)
    few = image.quantize(palette=palette_of(image), dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size / 1000:.0f} kB")
    if size > LARGEST_BYTES:
        raise SystemExit(f"{path} has {size} bytes, and {LARGEST_BYTES} are allowed")


def palette_of(image: Image.Image) -> Image.Image:
    """The most frequent colours as they are, without those that are like another one: a rare colour has a meaning."""
    counted = sorted(image.getcolors(image.width * image.height) or [], reverse=True)
    found = np.array([colour for _count, colour in counted], dtype=float)
    for apart in APART:
        chosen = []
        colours = found
        while len(colours) and len(chosen) <= COLOURS:
            chosen.append(colours[0])
            colours = colours[np.linalg.norm(colours - colours[0], axis=1) > apart]
        if len(chosen) <= COLOURS:
            break
    palette = Image.new("P", (1, 1))
    palette.putpalette([int(value) for colour in chosen[:COLOURS] for value in colour])
    return palette


if __name__ == "__main__":
    sys.exit(main())
