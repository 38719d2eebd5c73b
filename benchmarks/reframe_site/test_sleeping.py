"""JOBS jobs as a test of ours; each notes when its job ended, was known to have ended well, and was checked."""

import os
import re
import time
from pathlib import Path

import pytest


@pytest.mark.workload(command=[os.environ["JOB"], os.environ["JOB_S"]])
@pytest.mark.parametrize("number", range(int(os.environ["JOBS"])))
def test_sleeping(run, record, number):
    words = dict(re.findall(r"^(throughput|ended): (\S+)", run.log.read_text(), re.MULTILINE))
    assert float(words["throughput"]) == pytest.approx(123.4, rel=0.1)
    record(run, seconds_per_sample=[1 / float(words["throughput"])])
    known = (run.folder / "run.json").stat().st_mtime
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{words['ended']} {known} {time.time()}\n")
