"""A centre's GitLab project, whose pipelines gitlab-ci-local runs with the shell executor.

Each pipeline runs in a clone of its own, so that nothing comes from one to the next but what the templates carry. One
job runs at a time, since the jobs of a pipeline share that clone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.programs import missing, require

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".ci/node"
NODE = TOOLS / "bin/node"
PROGRAM = TOOLS / "node_modules/gitlab-ci-local/dist/index.js"
SERVER = "https://gitlab.example.org/hpc"
PROTECTED = {"CI_COMMIT_REF_PROTECTED": "true"}
PATIENCE_S = 300


def require_gitlab_ci_local() -> None:
    """Skip the test, or fail it, where gitlab-ci-local or rsync, which it uses, is not installed."""
    if not (NODE.exists() and PROGRAM.exists()):
        missing("gitlab-ci-local", f".ci/run installs it into {TOOLS.relative_to(ROOT)}")
    require("git", "rsync", install="apt-get install git rsync")


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that has ended."""

    code: int
    text: str
    folder: Path

    def artifacts(self, job: str) -> Path:
        """The folder with the artifacts of a job, which is named as in `bench-fetch`."""
        (folder,) = (self.folder / ".gitlab-ci-local/artifacts").glob(f"{job}*")
        return folder / "bench-out"

    def ended(self, job: str) -> str:
        """How a job ended: PASS, WARN or FAIL."""
        (word,) = set(re.findall(rf"^ (PASS|WARN|FAIL) +{job}\b", self.text, re.MULTILINE))
        return word


class CentreProject:
    """The project `centre` of a group `hpc`, which includes the component of the project `hpc-ml-bench` beside it."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        require_gitlab_ci_local()
        self.folder = folder / "centre"
        self.clone = folder / "clone"
        (folder / "home").mkdir(parents=True)
        ours = ("SLURM", "PYTEST_", "GCL_", "GIT_", "CI_", "BENCH_")
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self._environ |= {**environ, "HOME": str(folder / "home"), "GCL_IGNORE_PREDEFINED_VARS": ",".join(PREDEFINED)}
        self.folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str, folder: Path | None = None) -> str:
        person = ("-c", "user.name=A Person", "-c", "user.email=person@example.org")
        done = subprocess.run(
            ["git", *person, *words],
            cwd=folder or self.folder,
            env=self._environ,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self) -> None:
        self.write(".gitignore", ".gitlab-ci-local\n")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "a change")

    def checkout(self) -> Path:
        """A clone in which gitlab-ci-local believes to be in the project of a GitLab server."""
        shutil.rmtree(self.clone, ignore_errors=True)
        self.git("clone", "-q", str(self.folder), str(self.clone))
        self.git("remote", "add", "gcl-origin", f"{SERVER}/centre.git", folder=self.clone)
        self.git("config", "user.name", "A Person", folder=self.clone)
        self.git("config", "user.email", "person@example.org", folder=self.clone)
        included = self.clone / ".gitlab-ci-local/includes/gitlab.example.org/hpc/hpc-ml-bench/main/templates"
        included.mkdir(parents=True)
        shutil.copy(ROOT / "templates/bench.yml", included)
        return self.clone

    def command(self, *words: str, **variables: str) -> list[str]:
        typed = [f"--variable={name}={value}" for name, value in variables.items()]
        fixed = ("--force-shell-executor", "--no-color", "--concurrency", "1")
        return [str(NODE), str(PROGRAM), *fixed, *typed, *words]

    def begin(self, number: int, source: str = "schedule", **variables: str) -> subprocess.Popen[str]:
        """Begin a pipeline of the main branch, which is protected."""
        self.checkout()
        variables = {"CI_PIPELINE_ID": str(number), "CI_PIPELINE_SOURCE": source, **PROTECTED, **variables}
        return subprocess.Popen(
            self.command(**variables),
            cwd=self.clone,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self, process: subprocess.Popen[str]) -> Pipeline:
        text, _ = process.communicate(timeout=PATIENCE_S)
        return Pipeline(process.returncode, text, self.clone)

    def pipeline(self, number: int, source: str = "schedule", **variables: str) -> Pipeline:
        return self.end(self.begin(number, source, **variables))

    def jobs(self, source: str, **variables: str) -> dict[str, str]:
        """When each job of a pipeline begins (on_success, always, manual), by its name. Nothing runs."""
        self.checkout()
        done = subprocess.run(
            self.command("--list-csv", CI_PIPELINE_SOURCE=source, **{**PROTECTED, **variables}),
            cwd=self.clone,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        if done.returncode:
            raise ValueError(done.stderr)
        rows = [line.split(";") for line in done.stdout.splitlines() if line.count(";") >= 4]
        return {row[0]: row[2] for row in rows[1:]}


PREDEFINED = ("CI_PIPELINE_ID", "CI_PIPELINE_SOURCE", "CI_COMMIT_REF_PROTECTED", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID")
