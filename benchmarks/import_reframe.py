"""What it costs to import a long-used results database of ReFrame, and to judge its tests.

    python benchmarks/import_reframe.py [--sessions 1000] [--tests 50] [--folder DIR] [--reframe PATH/TO/reframe]

The database is made of a test case that ReFrame 4.10.4 recorded, repeated under other names with other numbers: a
session each night, three metrics a test with 2 % of noise, and in the last 14 nights every tenth test is 6 % slower.
Three commands are measured, each a process of its own: the import, the same import again, and `judge`. With `--reframe`
also the table of one test's history that ReFrame prints of the same database. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests" / "reporting" / "recordings" / "reframe" / "results.db"
NOISE = 0.02
SLOWER = 0.94
SLOW_NIGHTS = 14
DAY_S = 86400
SEED = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000, metavar="N")
    parser.add_argument("--tests", type=int, default=50, metavar="N")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="a new folder that is kept (default: a temporary one)"
    )
    parser.add_argument("--reframe", metavar="PATH", help="the program of ReFrame 4.10")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "centre"
        (folder / "site").mkdir(parents=True)
        database = folder / "results.db"
        make_database(database, options.sessions, options.tests)
        size_mb = database.stat().st_size / 1e6
        print(f"{options.sessions} sessions x {options.tests} tests, a database of {size_mb:.0f} MB\n")
        print("| command | wall s | CPU s | memory MB | exit code | red | it says |")
        print("|---|---|---|---|---|---|---|")
        reporting = [sys.executable, "-m", "reporting"]
        site = [f"--site={folder / 'site'}"]
        measure("import", [*reporting, "import", "reframe", str(database), *site], folder)
        measure("import again", [*reporting, "import", "reframe", str(database), *site], folder)
        measure("judge", [*reporting, "judge", *site], folder)
        if options.reframe:
            os.environ.update(RFM_ENABLE_RESULTS_STORAGE="1", RFM_SQLITE_DB_FILE=str(database))
            period = "20200101T0000+0000:20400101T0000+0000/mean:job_completion_time/"
            command = [options.reframe, f"--list-stored-testcases={period}", "-n", "^test_0$"]
            measure("one test in ReFrame", command, folder)


def make_database(path: Path, sessions: int, tests: int) -> None:
    """Write a database of one session a night, the last one today."""
    chance = random.Random(SEED)
    with sqlite3.connect(f"{RECORDED.as_uri()}?mode=ro", uri=True) as recorded:
        tables = [row[0] for row in recorded.execute("SELECT sql FROM sqlite_master WHERE type = 'table'").fetchall()]
        report = json.loads(
            recorded.execute("SELECT json_blob FROM sessions ORDER BY session_start_unix").fetchone()[0]
        )
    recorded.close()
    like = next(case for case in report["runs"][0]["testcases"] if case["perfvalues"] and case["result"] == "pass")
    with sqlite3.connect(path) as database:
        for table in tables:
            database.execute(table)
        database.execute("INSERT INTO metadata VALUES('1.0')")
        for night in range(sessions):
            is_slow = sessions - night <= SLOW_NIGHTS
            begin_s = time.time() - (sessions - night) * DAY_S
            uuid = f"{night:08d}-0000-4000-8000-000000000000"
            cases = list(_cases(like, uuid, begin_s, tests, is_slow, chance))
            information = {**report["session_info"], "uuid": uuid, "time_start_unix": begin_s}
            content = {**report, "session_info": information, "runs": [{**report["runs"][0], "testcases": cases}]}
            database.execute(
                "INSERT INTO sessions VALUES(?, ?, ?, ?, NULL)", (uuid, begin_s, begin_s + 3600, json.dumps(content))
            )
            for case in cases:
                names = ("name", "system", "partition", "environ", "job_completion_time_unix", "session_uuid", "uuid")
                database.execute("INSERT INTO testcases VALUES(?, ?, ?, ?, ?, ?, ?)", [case[name] for name in names])
    database.close()


def _cases(
    like: dict[str, Any], uuid: str, begin_s: float, tests: int, is_slow: bool, chance: random.Random
) -> Iterator[dict[str, Any]]:
    for number in range(tests):
        speed = chance.gauss(1, NOISE)
        if is_slow and number % 10 == 0:
            speed *= SLOWER
        values = {}
        for name, (value, *rest) in like["perfvalues"].items():
            is_time = rest[-2] in ("s", "us")
            values[name] = [value / speed if is_time else value * speed, *rest]
        yield {
            **like,
            "name": f"test_{number}",
            "display_name": f"test_{number}",
            "unique_name": f"test_{number}",
            "jobid": str(100000 + number),
            "job_submit_time": begin_s + number,
            "job_completion_time_unix": begin_s + number + 300,
            "session_uuid": uuid,
            "uuid": f"{uuid}:0:{number}",
            "perfvalues": values,
        }


def measure(name: str, command: Sequence[str], folder: Path) -> None:
    """Run a command and print a row: its times, its largest memory, how many metrics are red, and what it says."""
    output = folder / "output"
    with output.open("wb") as file:
        begin_s = time.monotonic()
        child = os.fork()
        if child == 0:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            os.chdir(ROOT)
            os.execvp(command[0], command)
        _, status, usage = os.wait4(child, 0)
        wall_s = time.monotonic() - begin_s
    lines = output.read_text(errors="replace").splitlines() or [""]
    said = next((line for line in lines if line.startswith("lines: ")), lines[-1])
    red = sum(line.startswith("test_") and "slower since" in line and " pin of " not in line for line in lines)
    cpu_s = usage.ru_utime + usage.ru_stime
    code = os.waitstatus_to_exitcode(status)
    print(
        f"| {name} | {wall_s:.1f} | {cpu_s:.1f} | {usage.ru_maxrss / 1024:.0f} | {code} | {red} | {said[:60]} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
