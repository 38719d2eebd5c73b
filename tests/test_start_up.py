"""What a session loads: no more than what was typed needs. Modules are counted, as times differ between machines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"harness", "platforms", "reporting", "models", "pipeline"}
GATE = {"reporting.gate", "reporting.compare", "reporting.history.reader", "sqlite3"}
REMOTE = {"kubernetes", "paramiko", "jinja2", "requests", "urllib3"}
FOR_JOBS = {"platforms.runner", "platforms.rundir", "platforms.results.log_reader", "reporting", "numpy", "torch"}

TEST = """
import pytest

@pytest.mark.workload(command=["true"], launcher="none")
def test_true(run):
    pass
"""
FAR = "scheduler: slurm\nhost: far\ntransport: openssh\nwork_dir: /work\ndevice: cpu\nlayouts: {default: [1x1]}\n"


# `most` are the suite's own modules. A few more may be right, and then the number here grows with them.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "most", "never"),
    [
        (["--version"], 0, REMOTE | GATE | {"pydantic", "yaml"}),
        (["--collect-only", "-m", "local"], 59, REMOTE | GATE | FOR_JOBS),
        (["-m", "local"], 115, REMOTE | GATE),
        (["-m", "far", "--dry-run"], 111, (REMOTE - {"jinja2"}) | GATE),
    ],
    ids=["version", "list", "local_job", "slurm_script"],
)
def test_a_session_loads_no_more_than_it_needs(tmp_path, words, most, never):
    (tmp_path / "test_true.py").write_text(TEST)
    (tmp_path / "platforms").mkdir()
    (tmp_path / "platforms/far.yaml").write_text(FAR)
    command = [
        "-q",
        f"--config-file={ROOT / 'pytest.ini'}",
        f"--site={tmp_path}",
        *words,
        str(tmp_path / "test_true.py"),
    ]
    code = f"import sys, pytest; ended = pytest.main({command}); print('loaded', *sys.modules); sys.exit(ended)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    ours = sorted(name for name in loaded if name.partition(".")[0] in OURS)
    assert not never & loaded
    assert len(ours) <= most, ours
