"""Training jobs for tests: processes of their own, forked from one that has imported torch already."""

from __future__ import annotations

import csv
import gzip
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clusters.ports import reserved_port

ROOT = Path(__file__).parents[2]
LAUNCHERS = (
    "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "SLURM_", "OMPI_", "PMI", "PALS_", "MPI_", "TORCHELASTIC_", "POPDIST_"
)  # fmt: skip
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
ENVIRON = {**CLEAN, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
PATIENCE_S = 300

# Reads one line of JSON a call: a list of jobs, which it forks, waits for, and answers with their exit codes.
NURSERY = """
import json, os, resource, signal, sys
import torch, torch._dynamo, models.train, models.command_line as main
from models import benchmarks
for name in benchmarks.names():
    benchmarks.load(name)
for line in sys.stdin:
    children = []
    for job in json.loads(line):
        child = os.fork()
        if child == 0:
            os.chdir(job["folder"])
            os.environ.update(job["environ"])
            sys.path[:0] = job["packages"]
            for descriptor, name in ((1, "log"), (2, "errors")):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
            if job["memory"]:
                resource.setrlimit(resource.RLIMIT_AS, (job["memory"], job["memory"]))
            signal.alarm(job["patience"])
            code = 99
            try:
                code = main.main(job["arguments"])
            except SystemExit as ended:
                code = ended.code
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """One rank's job after its end."""

    code: int
    log: str
    errors: str
    folder: Path

    def values(self, key: str) -> list[Any]:
        lines = (json.loads(line.split(":::MLLOG ", 1)[1]) for line in self.log.splitlines() if ":::MLLOG " in line)
        return [line["value"] for line in lines if line["key"] == key]

    def value(self, key: str) -> Any:
        (value,) = self.values(key)
        return value

    @property
    def losses(self) -> list[float]:
        return [json.loads(line)["loss"] for line in (self.folder / "losses").read_text().splitlines()]

    def seconds(self, what: str) -> list[float]:
        """`wait` or `busy` of each optimiser step."""
        (path,) = self.folder.glob("steps-rank*.csv.gz")
        with gzip.open(path, "rt") as file:
            return [float(step[what]) for step in csv.DictReader(file)]


class Nursery:
    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRON, text=True
        )

    def together(self, *jobs: tuple[Sequence[object], Mapping[str, str]], memory: int | None = None) -> list[Ended]:
        """Run jobs, each of (arguments, environment), at the same time.

        A job can import what lies in the folders of its PYTHONPATH, beside the packages that are installed.
        """
        folders = []
        for _ in jobs:
            self.count += 1
            folders.append(self.folder / f"job{self.count}")
            folders[-1].mkdir()
        request = [
            {
                "arguments": [str(word) for word in arguments],
                "environ": dict(environ),
                "packages": environ["PYTHONPATH"].split(os.pathsep) if "PYTHONPATH" in environ else [],
                "folder": str(folder),
                "memory": memory,
                "patience": PATIENCE_S,
            }
            for (arguments, environ), folder in zip(jobs, folders, strict=True)
        ]
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(request), file=self.process.stdin, flush=True)
        codes = json.loads(self.process.stdout.readline())
        return [
            Ended(code, (folder / "log").read_text(), (folder / "errors").read_text(), folder)
            for code, folder in zip(codes, folders, strict=True)
        ]

    def run(self, *arguments: object, memory: int | None = None, **environ: str) -> Ended:
        (ended,) = self.together((arguments, environ), memory=memory)
        return ended


held: list[socket.socket] = []


def free_port() -> str:
    """A port at which only who asks for this one can listen, as long as the tests run: to nobody else it is given."""
    held.append(reserved_port())
    return str(held[-1].getsockname()[1])


def ranks_of(launcher: str) -> list[dict[str, str]]:
    """What the launcher leaves in the environment of each of two ranks on this machine."""
    port = {"MASTER_PORT": free_port()}
    if launcher == "slurm":
        step = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1"}
        return [{**port, **step, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in (0, 1)]
    if launcher == "openmpi":
        world = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
        names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    else:
        world, names = {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, ("PMI_RANK", "MPI_LOCALRANKID")
    return [{**port, **world, **dict.fromkeys(names, str(rank))} for rank in (0, 1)]
