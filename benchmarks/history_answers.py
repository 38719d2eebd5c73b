"""Whether two checkouts say the same of five histories: each read-only command of `python -m reporting`, byte by byte.

python benchmarks/history_answers.py --against CHECKOUT [--keep DIR] [--only HISTORY] [--commands NAME …] [--nights 365]

| history | what it is |
|---|---|
| demo | the centre of `make demo` |
| year | a simulated year of ten platforms |
| reframe | what `import reframe` makes of the tests' recordings |
| merged | two sites in one folder, and a recorded session with run.json's |
| damaged | the demo with torn, cut and doubled lines, other schemas, later revisions, and a job in the future |

Each checkout has its own copy of a history. The copy first lacks each tenth file, and half of the last one; `table`
reads it so. Then the rest arrives, as sessions and `pull` write it, and all commands are run: what a checkout derived
from the history is older than what it is asked. Compared are stdout, stderr, the exit code and the files that are
written; of a bundle, whose bytes hold the time, the files in it but their sums. Masked are: the folder of the copy,
times between the start of this script and now, and the names of files of the history that a bundle makes now. The
history itself must stay as it is, too.

Exit code 1: something differs.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mode
from typing import IO, NamedTuple, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reporting.bundle import SUMS
from reporting.history.reader import read
from tests.reporting import bundled_session, demo
from tests.reporting.report_year import DAY, make_year

ROOT = Path(__file__).resolve().parents[1]
LAST = datetime.date(2026, 11, 22)
RECORDINGS = ROOT / "tests" / "reporting" / "recordings" / "reframe"
BEGAN = datetime.datetime.now(datetime.UTC)
ISO_TIME = re.compile(rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)")
SESSION_FILE = re.compile(rb"(\d{8}T\d{6}Z)-[0-9a-f]{8}")
UNIX_TIME = re.compile(rb"\b\d{10}(\.\d+)?\b")
SIDES = ("this", "that")  # of one length, since texts are wrapped
OUT = "out"
SHOWN_LINES, SHOWN_WIDTH = 8, 200
ENVIRON = {**os.environ, "TZ": "UTC", "COLUMNS": "120", "PYTHONHASHSEED": "0"}


# --- the histories ---------------------------------------------------------------------------------------------------


def make_demo(site: Path) -> None:
    make_year(site, LAST, nights=75, platforms=demo.MACHINES, site="simulated")
    (site / "platforms").mkdir()
    (site / "platforms" / f"{demo.NODES_OF}.yaml").write_text(demo.PLATFORM)


def make_simulated_year(site: Path, nights: int) -> None:
    make_year(site, LAST, nights=nights, processes=os.cpu_count() or 1)


def make_reframe(site: Path) -> None:
    site.mkdir(parents=True)
    (site / "site.yaml").write_text("name: centre\n")
    files = [RECORDINGS / "results.db", RECORDINGS / "perflogs", *sorted(RECORDINGS.glob("versions/*/report.json"))]
    command = [sys.executable, "-m", "reporting", "import", "reframe", *map(str, files), f"--site={site}"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRON, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)


def make_merged(site: Path) -> None:
    make_year(site, LAST, nights=75, platforms=2, seed=2, site="centre")
    with tempfile.TemporaryDirectory() as name:
        other = Path(name)
        make_demo(other / "demo")
        session = bundled_session.session(other / "session").folder
        for history in (other / "demo" / "history", session / "history"):
            shutil.copytree(history, site / "history", dirs_exist_ok=True)
        shutil.copytree(session / "runs", site / "runs")


def make_damaged(site: Path) -> None:
    make_demo(site)
    files = sorted((site / "history").rglob("*.jsonl"))
    lines = {path: path.read_bytes().splitlines(keepends=True) for path in files[-5:]}
    oldest, statistic, schema, cut, torn = (lines[path] for path in files[-5:])
    future = oldest[-1].replace(b'"run_id":"', b'"run_id":"future-').replace(b'"started_s":1', b'"started_s":3')
    oldest.insert(0, future)
    # each job again in an older month, of which some have only ended here
    later = [line.replace(b'"passed"', b'"error"').replace(b'"written_s":1', b'"written_s":3') for line in statistic]
    (files[0].parent / "00000000T000000Z-later.jsonl").write_bytes(b"".join(later))
    statistic[:] = [line.replace(b'"statistic":"all windows",', b"") for line in statistic[:-1]]
    schema[1] = schema[1].replace(b'"schema":1', b'"schema":9')
    schema += [b"\n", b"\x00\xff{}\n", b"[]\n"]
    cut[len(cut) // 2] = cut[len(cut) // 2][:200] + b"\n"
    # of two lines of one job that were written in the same moment the later one counts
    cut += [*cut[-2:], cut[-1].replace(b'"sane":true', b'"sane":false')]
    torn += [*torn[:-1], torn[-1][:-100]]
    for path, changed in lines.items():
        path.write_bytes(b"".join(changed))


HISTORIES: dict[str, Callable[[Path, int], None]] = {
    "demo": lambda site, _nights: make_demo(site),
    "year": make_simulated_year,
    "reframe": lambda site, _nights: make_reframe(site),
    "merged": lambda site, _nights: make_merged(site),
    "damaged": lambda site, _nights: make_damaged(site),
}


# --- the commands ----------------------------------------------------------------------------------------------------


def commands(site: Path) -> Iterator[list[str]]:
    """What is typed after `python -m reporting`, chosen by what the history has."""
    name = (site / "site.yaml").read_text().partition("name: ")[2].split()[0]
    end_s = datetime.datetime.combine(LAST + DAY, datetime.time(12), datetime.UTC).timestamp()
    runs = [run for run in read(site / "history") if run.key.site == name and run.time_s < end_s]
    nights = sorted({datetime.datetime.fromtimestamp(run.time_s, datetime.UTC).date() for run in runs})
    tests = list(dict.fromkeys(run.key.test for run in reversed(runs)))
    platforms = list(dict.fromkeys(run.platform for run in reversed(runs)))
    usual = mode(run.platform for run in runs)
    run = next(run for run in reversed(runs) if run.platform == usual and run.has_numbers and run.nodes)
    last, middle, early = f"--tonight={nights[-1]}", nights[len(nights) // 2], nights[len(nights) // 3]
    words = [run.platform, *([run.benchmark] if run.benchmark else [])]
    for tonight in ([last], [f"--tonight={nights[-8]}"], [f"--tonight={middle}"], []):
        for command in ("table", "trend", "judge", "data"):
            yield [command, *tonight]
        yield ["html", *tonight, "-o", f"{OUT}/page.html"]
    for form in ("text", "markdown", "csv"):
        yield ["table", "--all", f"--format={form}", last]
    yield ["table", f"--since={middle}", "--anchors", last, *words]
    yield ["table", "--committed", last, "-o", f"{OUT}/table.txt"]
    yield from (["show", test, last] for test in tests[:2])
    yield ["show", tests[-1], "--all"]
    yield ["show", run.key.test, "--runs=7", f"--metric={next(iter(run.metrics))}", last]
    yield from ([command, last, *words] for command in ("trend", "judge", "power", "data"))
    yield from ([command, last, run.key.test] for command in ("trend", "judge", "power"))
    yield ["judge", "-v", "--require", last]
    yield ["power", last]
    for platform in platforms[:4]:
        yield ["nodes", platform, last]
        yield ["nodes", platform, f"--tonight={middle}"]
    for platform in dict.fromkeys([run.platform, *(one.platform for one in runs if one.run is not None)]):
        yield ["vet", platform]
        yield ["vet", platform, f"--sign={OUT}/signed"]
    yield ["nodes", run.platform, f"--nodes={','.join(run.nodes)}", last]
    spans = [f"date={nights[0]}..{early}", f"date={middle}..{nights[-1]}"]
    yield ["compare", *spans]
    yield ["compare", "--format=json", *spans, *words]
    first = next(one for one in runs if one.key.test == run.key.test and one.has_numbers)
    yield ["compare", f"run={first.key.run_id}", f"run={run.key.run_id}"]
    yield ["compare", f"node={run.nodes[0]},date={nights[0]}..{early}", f"date={nights[-1]}", run.key.test]
    nodes = sorted({node for one in runs if one.platform == run.platform for node in one.nodes})
    yield ["compare", *spans, f"--treated={','.join(nodes[::2])}", f"--control={','.join(nodes[1::2])}"]
    yield from (["answers", *rest] for rest in ([], [run.platform], [run.key.test]))
    yield ["comment", "--print", last]
    yield ["comment", last, "-o", f"{OUT}/comment.md", "--page=https://example.org", *words]
    yield ["html", last, f"--month={middle:%Y-%m}"]
    yield ["html", last, f"--month={early:%Y-%m}", "-o", f"{OUT}/month.html", *words]
    yield ["data", last, f"--month={nights[-1]:%Y-%m}", "-o", f"{OUT}/data.json"]
    yield ["data", "--schema"]
    for kind in ("prometheus", "openmetrics", "grafana", "gitlab"):
        yield ["export", kind, last] if kind != "grafana" else ["export", kind]
    yield ["export", "prometheus", last, *words, "-o", f"{OUT}/bench.prom"]
    runs_dir = f"--runs-dir={'site/runs' if (site / 'runs').is_dir() else OUT}"  # there must be one; it may be empty
    yield ["export", "bundle", runs_dir, "-o", f"{OUT}/latest.tar.gz"]
    yield ["export", "bundle", runs_dir, f"date={nights[-3]}..{nights[-1]}", "-o", f"{OUT}/nights.tar.gz"]


# --- the comparison --------------------------------------------------------------------------------------------------


class Side(NamedTuple):
    """A checkout, and the folder that holds its copy of the history in `site/`."""

    checkout: Path
    folder: Path

    def answer(self, command: Sequence[str]) -> dict[str, bytes]:
        """What a command says and writes, by name, with masks."""
        shutil.rmtree(self.folder / OUT, ignore_errors=True)
        (self.folder / OUT).mkdir()
        typed = [sys.executable, "-m", "reporting", command[0], f"--site={self.folder / 'site'}", *command[1:]]
        environ = {**ENVIRON, "PYTHONPATH": str(self.checkout)}
        done = subprocess.run(typed, cwd=self.folder, env=environ, capture_output=True, check=False)
        found = {"exit code": b"%d" % done.returncode, "stdout": done.stdout, "stderr": done.stderr}
        for path in sorted((self.folder / OUT).rglob("*")):
            name = str(path.relative_to(self.folder))
            if path.name.endswith(".tar.gz"):
                with tarfile.open(path) as bundle:
                    for member in bundle:
                        if member.isfile() and member.name != SUMS:
                            content = cast(IO[bytes], bundle.extractfile(member)).read()
                            found[self.masked(f"{name}: {member.name}".encode()).decode()] = content
            elif path.is_file():
                found[name] = path.read_bytes()
        return {name: self.masked(content) for name, content in found.items()}

    def masked(self, content: bytes) -> bytes:
        folder = os.fsencode(self.folder)
        for typed in (folder, folder.replace(b"_", rb"\_")):  # the latter in Markdown
            content = content.replace(typed, b"<folder>")
        for pattern in (ISO_TIME, SESSION_FILE):
            content = pattern.sub(_masked_iso, content)
        return UNIX_TIME.sub(_masked_unix, content)


def _masked_iso(found: re.Match[bytes]) -> bytes:
    at = datetime.datetime.fromisoformat(found[1].decode())
    return b"<now>" if _is_now(at if at.tzinfo else at.replace(tzinfo=datetime.UTC)) else found[0]


def _masked_unix(found: re.Match[bytes]) -> bytes:
    return b"<now>" if _is_now(datetime.datetime.fromtimestamp(float(found[0]), datetime.UTC)) else found[0]


def _is_now(at: datetime.datetime) -> bool:
    """Whether a time is one since this script was started; some are printed without their seconds."""
    return BEGAN.replace(second=0, microsecond=0) <= at <= datetime.datetime.now(datetime.UTC)


def arrive(source: Path, site: Path, *, whole: bool) -> None:
    """Copy a site; without `whole` its history lacks each tenth file, and half of the last one."""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    lines = [path for path in files if path.suffix == ".jsonl" and not path.name.endswith(".runs.jsonl")]
    late, torn = ([], None) if whole else (lines[:-1:10], lines[-1])
    for path in files:
        copy = site / path.relative_to(source)
        content = path.read_bytes()
        if path == torn:
            content = content[: len(content) // 2]
        if path in late or (copy.exists() and copy.stat().st_size == len(content)):
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        with copy.open("r+b" if copy.exists() else "wb") as file:  # a session appends to its file
            file.write(content)


def compared(name: str, source: Path, sides: Sequence[Side], only: Sequence[str] | None) -> bool:
    """Run commands on both sides, and print what differs. Returns whether all are equal."""
    typed = [command for command in commands(source) if only is None or command[0] in only]
    refused = 0
    differing = []
    with ThreadPoolExecutor(len(sides)) as pool:
        for whole, some in ((False, typed[:1]), (True, typed)):
            for side in sides:
                arrive(source, side.folder / "site", whole=whole)
            for command in some:
                this, that = pool.map(Side.answer, sides, [command] * len(sides))
                refused += this["exit code"] == b"2"
                if this != that:
                    differing.append((command, this, that))
    count = len(typed) + 1
    print(f"{name}: {count} commands, {count - len(differing)} equal; {refused} of them refuse", flush=True)
    for command, this, that in differing:
        for what in sorted(this.keys() | that.keys()):
            if this.get(what) != that.get(what):
                print(f"    {' '.join(command)}: {what}")
                print("\n".join(short_diff(this.get(what, b""), that.get(what, b""))), flush=True)
    changed = [side.folder for side in sides if not same_history(source / "history", side.folder / "site" / "history")]
    for folder in changed:
        print(f"    a command has changed the history in {folder}")
    return not differing and not changed


def short_diff(this: bytes, that: bytes) -> list[str]:
    """The first lines that differ."""
    before, after = (text.decode(errors="replace").splitlines() for text in (that, this))
    diff = list(difflib.unified_diff(before, after, "against", "this checkout", lineterm="", n=0))
    return [f"        {line[:SHOWN_WIDTH]}" for line in diff[:SHOWN_LINES]]


def same_history(source: Path, copy: Path) -> bool:
    """Whether a copy has the same files with the same bytes. Hidden ones are derived."""
    found = []
    for folder in (source, copy):
        paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
        found.append({path.relative_to(folder): path.read_bytes() for path in paths})
    return found[0] == found[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, required=True, metavar="CHECKOUT", help="the other checkout")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the histories there, and take those that it has")
    parser.add_argument("--nights", type=int, default=365, help="of the simulated year (fewer are quicker)")
    parser.add_argument("--only", choices=HISTORIES, action="append", help="only this history (more than once: these)")
    parser.add_argument("--commands", nargs="+", metavar="NAME", help="only these, as in: table judge (default: all)")
    options = parser.parse_args()
    equal = True
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.only or HISTORIES:
            source = (options.keep or Path(scratch) / "made").absolute() / name
            if not source.exists():
                HISTORIES[name](source, options.nights)
            checkouts = (ROOT, options.against.absolute())
            sides = [
                Side(checkout, Path(scratch) / side / name) for checkout, side in zip(checkouts, SIDES, strict=True)
            ]
            equal = compared(name, source, sides, options.commands) and equal
            for side in sides:
                shutil.rmtree(side.folder)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
