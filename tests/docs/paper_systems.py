"""The table of docs/profiles.md: the paper's six systems beside what the suite renders for them.

`python -m tests.docs.paper_systems` writes the table again. What it says of the suite is read from a real dry run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "profiles.md"
PLACE = re.compile(r"(<!-- python -m tests\.docs\.paper_systems -->\n\n)(.*?)(<!-- /paper_systems -->)", re.DOTALL)
DRY_RUN = ("--preset", "hpdc24", "--dry-run")
SECTION = re.compile(r"^=+ test_(\w+)\.py::\S+\[(\w+?)-(\d+)x(\d+)(\w+?)-\S* \((\w+)\) =+$", re.MULTILINE)


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's Table 1, with what sections 2.3, 4 and 4.2 and Tables 2 to 4 say of its runs."""

    system: str
    scheduler: str
    launcher: str
    backend: str
    ran: Mapping[str, str]  # what ran of each benchmark; a benchmark that is missing did not run


BENCHMARKS = ("resnet50", "cosmoflow", "deepcam")
GPUS = dict.fromkeys(BENCHMARKS, "4 GPUs")
CPUS = "2 nodes, 4 sockets, 16 MPI ranks a node"
PAPER: Mapping[str, PaperRow] = {
    "archer2_cpu": PaperRow(
        "ARCHER2, AMD EPYC 7742",
        *("Slurm", "srun", "MPI"),
        {"resnet50": CPUS, "cosmoflow": CPUS, "deepcam": "4 nodes, 8 sockets, 8 MPI ranks a node"},
    ),
    "archer2_mi210": PaperRow("ARCHER2, AMD MI210", "Slurm", "torchrun", "RCCL", GPUS),
    "cirrus_v100": PaperRow("Cirrus, NVIDIA V100", "Slurm", "srun", "MPI", GPUS),
    "eidf_a100": PaperRow("EIDF, NVIDIA A100", "Kubernetes", "torchrun", "NCCL", GPUS),
    "graphcore": PaperRow(
        "EIDF, Graphcore Bow Pod64",
        *("Kubernetes", "PopRun", "IPU-Fabric"),
        {"resnet50": "8 IPUs", "cosmoflow": "8 IPUs, half precision"},
    ),
    "cerebras_cs2": PaperRow("EIDF, Cerebras CS-2", "Slurm", "none", "SwarmX", {"resnet50": "1 wafer"}),
}


@dataclass(frozen=True)
class Shown:
    """What the dry run shows of one test: the facts of its script, or why there is none."""

    benchmark: str
    platform: str
    facts: str
    reasons: tuple[str, ...]  # why it cannot run there


def dry_run() -> str:
    """The text of a dry run of the six platforms, on a site that sets no values."""
    named = [word for name in PAPER for word in ("--platform", name)]
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("HPC_ML_BENCH_", "PYTEST_"))}
    with tempfile.TemporaryDirectory() as site:
        command = [sys.executable, "-m", "pytest", *named, *DRY_RUN, f"--site={site}", "-p", "no:cacheprovider"]
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    if "none submitted" not in done.stdout:
        raise RuntimeError(f"the dry run failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def shown(text: str) -> Iterator[Shown]:
    """Read the sections of a dry run."""
    places = list(SECTION.finditer(text))
    ends = [place.start() for place in places[1:]] + [len(text)]
    for place, end in zip(places, ends, strict=True):
        section = text[place.end() : end].replace("\\\n", " ")
        reasons = re.findall(r"^(?:it could not run there|would be refused): (.*)$", section, re.MULTILINE)
        has_script = re.search(r"^(apiVersion:|#!/)", section, re.MULTILINE)
        facts = facts_of(section, place[6], int(place[3]), int(place[4]), place[5]) if has_script else ""
        yield Shown(place[1], place[2], facts, tuple(reasons))


def facts_of(script: str, scheduler: str, nodes: int, devices: int, unit: str) -> str:
    """What a script asks for. Raises AssertionError where it asks for other nodes or devices than its test's id has."""
    words = re.sub(r"^\s*- ", "", script, flags=re.MULTILINE).replace("'", "").split()
    job = "sbatch" if scheduler == "slurm" else re.findall(r"^kind: (\w+)", script, re.MULTILINE)[-1]
    if scheduler == "slurm":
        assert f"--nodes={nodes}" in words
    asked = re.search(r"(?:--gpus=|--gres=\w+:|nvidia\.com/gpu: |graphcore\.ai/ipu: |--num-ipus[= ])'?(\d+)", script)
    assert asked is None or int(asked[1]) == devices
    batch = _after(words, "--configuration").removeprefix("gbs")
    ranks = _count(int(_after(words, "--expect-world-size")), "rank")
    if "--replicas" in words:
        each = _count(int(_after(words, "--devices-per-replica")), unit.upper())
        copies = _count(int(_after(words, "--replicas")), "copy", "copies")
        ranks += f", {copies} of the model on {each} each"
    launcher = "no launcher"
    for name, sign in (("srun", "srun --"), ("torchrun", "torch.distributed.run"), ("poprun", "poprun")):
        if sign in " ".join(words) or name in words:
            launcher = name
    backend = f" with {_after(words, '--backend').upper()}" if "--backend" in words else ""
    where = f"{_count(nodes, 'node')} x {_count(devices, unit.upper())}"
    return f"{job}, {where}, {launcher}{backend}, {ranks}, batch {batch}, {_after(words, '--dtype')}"


def _after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def table(text: str) -> str:
    """The Markdown table for the text of a dry run."""
    tests = {(one.platform, one.benchmark): one for one in shown(text)}
    lines = [
        "| system (the paper's Table 1) | benchmark | in the paper | in the suite's dry run |",
        "|---|---|---|---|",
    ]
    for name, row in PAPER.items():
        for benchmarks, ran, cell in _grouped(name, row, tests):
            system = f"{row.system}: `{name}`"
            paper = f"{row.scheduler}, {row.launcher}, {row.backend}: {ran}"
            lines.append(f"| {system} | {', '.join(benchmarks)} | {paper} | {cell} |")
    return "\n".join(lines) + "\n"


def _grouped(name: str, row: PaperRow, tests: Mapping[tuple[str, str], Shown]) -> list[tuple[list[str], str, str]]:
    """The rows of a platform: benchmarks of which the paper and the dry run say the same, with both texts."""
    rows: dict[tuple[str, str], list[str]] = {}
    said: dict[str, str] = {}  # reason: the first benchmark for which it stands in the table
    for benchmark in BENCHMARKS:
        test = tests[name, benchmark]
        ran = row.ran.get(benchmark, "did not run")
        new = [reason for reason in test.reasons if reason not in said]
        old = dict.fromkeys(f"as {said[reason]}" for reason in test.reasons if reason in said)
        said.update(dict.fromkeys(new, benchmark))
        cell = test.facts
        if test.reasons:
            its_script = f"; its script: {test.facts}" if test.facts else ""
            cell = f"**skipped**: {'; '.join([*old, *new])}{its_script}"
        rows.setdefault((ran, cell.replace("|", "\\|")), []).append(benchmark)
    return [(benchmarks, ran, cell) for (ran, cell), benchmarks in rows.items()]


def renewed(page: str, text: str) -> str:
    """The text of the page with the table made again."""
    return PLACE.sub(lambda found: f"{found[1]}{table(text)}\n{found[3]}", page)


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    new = renewed(page, dry_run())
    if new != page:
        PAGE.write_text(new, encoding="utf-8")
        print(f"{PAGE.relative_to(ROOT)}: written again")


if __name__ == "__main__":
    main()
