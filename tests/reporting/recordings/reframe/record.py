"""Makes the recordings of this folder with the real ReFrame: `python record.py REFRAME FOLDER [NIGHTS]`.

REFRAME is the program. FOLDER is made; there lie then results.db with the first sessions,
and the perflogs of all NIGHTS (default: 34). Names of the user, the machine and the folders are replaced.
"""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEUTRAL = Path("/home/user/reframe")
SESSIONS = 8  # that results.db keeps


def run(reframe: str, folder: Path, night: int, *options: str, multiline: bool = False) -> None:
    """One session of ReFrame. It may fail, as its tests do."""
    environment = {
        **os.environ,
        "RECORDING_NIGHT": str(night),
        "PYTHONPATH": str(HERE / "clock"),
        "RECORDING_MULTILINE": str(int(multiline)),
        "TZ": "UTC",
        "RFM_ENABLE_RESULTS_STORAGE": "1",
        "RFM_SQLITE_DB_FILE": str(folder / "results.db"),
    }
    command = [reframe, *options, "-c", str(HERE / "checks.py"), "--prefix", str(folder), "-r"]
    command += ["--report-file", str(folder / "report.json")]
    subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=False)


def neutral(text: str, folder: Path) -> str:
    """The text without the names of this machine."""
    for path in (str(folder), str(HERE), str(Path(sys.argv[1]).resolve().parent.parent)):
        text = text.replace(path, str(NEUTRAL))
    text = re.sub(r"/tmp/rfm-\w+\.log", "/tmp/rfm.log", text)
    text = re.sub(r'"user": "\w+"', '"user": "user"', text)
    return re.sub(rf'(?<=["|]){re.escape(os.uname().nodename)}(?=["|])', "nid001", text)


def main() -> None:
    reframe, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    nights = int(sys.argv[3]) if len(sys.argv) > 3 else 34
    folder.mkdir(parents=True)
    for night in range(nights):
        run(reframe, folder, night, "--max-retries", "1" if night == 4 else "0")
        if night == 5:
            two_partitions = ("-C", str(HERE / "settings.py"), "--system", "twopart")
            run(reframe, folder, night, *two_partitions)
            multiline_logs = ("--perflogdir", str(folder / "multiline"))
            run(reframe, folder, night, *two_partitions, *multiline_logs, multiline=True)
    with sqlite3.connect(folder / "results.db") as database:
        rows = database.execute("SELECT uuid, json_blob FROM sessions ORDER BY session_start_unix").fetchall()
        for number, (key, text) in enumerate(rows):
            if number < SESSIONS:
                database.execute(
                    "UPDATE sessions SET json_blob = ?, report_file = NULL WHERE uuid = ?", (neutral(text, folder), key)
                )
            else:
                database.execute("DELETE FROM sessions WHERE uuid = ?", (key,))
                database.execute("DELETE FROM testcases WHERE session_uuid = ?", (key,))
    database.execute("VACUUM")
    database.close()
    for log in folder.glob("**/*.log"):
        log.write_text(neutral(log.read_text(), folder))
    for name in ("output", "stage"):
        shutil.rmtree(folder / name)
    for name in ("report.json", ".db.lock"):
        (folder / name).unlink()


if __name__ == "__main__":
    main()
