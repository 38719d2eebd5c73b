"""`python -m reporting vet NAME`: what the nodes of a platform are by the history; --sign writes that for a prolog."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from platforms import atomic_file, checkout
from platforms.job import BenchError, RefusedError
from platforms.printable import printable
from platforms.results.gates import part
from platforms.rundir import code_archive
from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.fleet.limits import LOOKS, Facts, Limits, limits_of, told
from reporting.history import reader

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = "/etc/hpc-ml-bench"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("platform", metavar="NAME", help="a platform, as its file or the history names it")
    parser.add_argument("--sign", metavar="DIR", help="write limits.json, prolog.sh and models.pyz into DIR")
    parser.add_argument(
        "--also",
        choices=("clock_cap_mhz", "kernel"),
        action="append",
        default=[],
        help="sign this, too: each change of it then takes the node out of service",
    )


def main(options: argparse.Namespace) -> int:
    """Print what the nodes are, and write it where --sign says."""
    site = open_site(options)
    answering.refuse_unknown_platform(site, options.platform)
    problems: list[str] = []
    looks = _looks(options.platform, site, problems)
    if not looks:
        raise RefusedError(
            f"{site.history}: no run of {options.platform} says what its nodes are; `pytest --each-node=stale` visits "
            "all of them"
        )
    work_dir = _work_dir(options.platform, site)
    limits = {node: limits_of(looks[node], work_dir, options.also) for node in sorted(looks)}
    for line in told(limits):
        print(printable(line))
    if options.sign is not None:
        _sign(Path(options.sign), options.platform, limits)
    answering.warn(problems)
    return 0


def _looks(platform: str, site: OpenedSite, problems: list[str]) -> dict[str, list[Facts]]:
    """The facts of each node in its last runs, the last one first."""
    looks: dict[str, list[Facts]] = {}
    for envelope in reversed(site.read(problems=problems)):
        is_known = envelope.nodes and all(len(looks.get(node, ())) >= LOOKS for node in envelope.nodes)
        if envelope.platform != platform or envelope.run is None or is_known:
            continue
        try:
            facts = part(reader.run_of(site.history, envelope), "node_facts")
        except RefusedError as error:
            problems.append(str(error))
            continue
        for node in facts:
            if part(facts, node).get("host") and len(looks.setdefault(node, [])) < LOOKS:
                looks[node].append(part(facts, node))
    return looks


def _work_dir(name: str, site: OpenedSite) -> str | None:
    try:
        work_dir = checkout.find(name, checkout.load(site.folder)[1]).work_dir
    except BenchError:
        return None  # a platform of the history alone
    return None if work_dir is None else str(work_dir)


def _sign(folder: Path, platform: str, limits: dict[str, Limits]) -> None:
    """Write the three files, and print what an administrator does with them. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    signed = {"by": answering.login_name(), "at": answering.now().isoformat(), "platform": platform}
    content = {"schema": 1, "signed": signed, "nodes": limits}
    atomic_file.write_text(folder / "limits.json", json.dumps(content, indent=1) + "\n")
    script = (ROOT / "slurm_templates" / "prolog.sh").read_bytes()
    atomic_file.write_bytes(folder / "prolog.sh", script, mode=0o755)
    code_archive.build(ROOT / "models", folder).path.replace(folder / "models.pyz")
    for line in _steps(folder):
        print(printable(line))


def _steps(folder: Path) -> Sequence[str]:
    return (
        f"Written: {folder}. On each node, an administrator reads limits.json and types:",
        f"  install -d -o root -m 755 {INSTALLED} && install -o root -m 644 {folder}/*.json {folder}/*.pyz {INSTALLED}",
        f"  install -o root -m 755 {folder}/prolog.sh {INSTALLED}",
        f"and in slurm.conf writes: Prolog={INSTALLED}/prolog.sh",
    )
