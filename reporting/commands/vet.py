"""`python -m reporting vet NAME`: what the nodes of a platform are by the history; --sign writes that for a prolog."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from platforms import atomic_file, checkout
from platforms.job import RefusedError
from platforms.printable import printable
from platforms.results.gates import part
from platforms.rundir import code_archive
from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.fleet.limits import LOOKS, Facts, limits_of, told
from reporting.history import reader

ROOT = Path(__file__).resolve().parents[2]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("platform", metavar="NAME", help="a platform, as its file or the history names it")
    parser.add_argument("--sign", metavar="DIR", help="write limits.json, prolog.sh and models.pyz into DIR")


def main(options: argparse.Namespace) -> int:
    """Print what the nodes are, and write it where --sign says."""
    site = open_site(options)
    answering.refuse_unknown_platform(site, options.platform)
    problems: list[str] = []
    looks = _looks(options.platform, site, problems)
    answering.warn(problems)
    if not looks:
        raise RefusedError(
            f"{site.history}: no run of {options.platform} says what its nodes are; `pytest -m {options.platform} "
            "--each-node=stale` visits all of them"
        )
    platform = checkout.load(site.folder)[1].get(options.platform)  # None: it is in the history alone
    work_dir = None if platform is None or platform.missing else platform.work_dir
    limits = {node: limits_of(looks[node], work_dir) for node in sorted(looks)}
    for line in told(limits):
        print(printable(line))
    if options.sign is not None:
        signed = {"by": answering.login_name(), "at": answering.now().isoformat(), "platform": options.platform}
        _write(Path(options.sign), {"schema": 1, "signed": signed, "nodes": limits})
        print(f"Written: {options.sign}. An administrator reads and installs it (docs/vetting.md).")
    return 0


def _looks(platform: str, site: OpenedSite, problems: list[str]) -> dict[str, list[Facts]]:
    """The facts of each node in its last runs. Which of several pods was on which node is not known."""
    looks: dict[str, list[Facts]] = {}
    for envelope in reversed(site.read(problems=problems)):
        is_known = all(len(looks.get(node, ())) >= LOOKS for node in envelope.nodes)
        if envelope.platform != platform or envelope.run is None or is_known:
            continue
        try:
            facts = part(reader.run_of(site.history, envelope), "node_facts")
        except RefusedError as error:
            problems.append(str(error))
            continue
        if envelope.sane and len(facts) == len(envelope.nodes) == 1:  # in a pod they have the pod's name
            facts = dict(zip(envelope.nodes, facts.values(), strict=True))
        for node in envelope.nodes:
            if part(part(facts, node), "host") and len(looks.setdefault(node, [])) < LOOKS:
                looks[node].append(part(facts, node))
    return looks


def _write(folder: Path, limits: dict[str, object]) -> None:
    """Write the three files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_file.write_text(folder / "limits.json", json.dumps(limits, indent=1) + "\n")
    script = (ROOT / "slurm_templates" / "prolog.sh").read_bytes()
    atomic_file.write_bytes(folder / "prolog.sh", script, mode=0o755)
    code_archive.build(ROOT / "models", folder).path.replace(folder / "models.pyz")
