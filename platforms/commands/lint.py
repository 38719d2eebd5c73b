"""`python -m platforms lint NAME FILE`: a manifest of somebody's own against a platform's rules, as it is, offline."""

from __future__ import annotations

import argparse
from pathlib import Path

from platforms import checkout
from platforms.job import RefusedError


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("file", type=Path, metavar="FILE", help="YAML, of one or more objects")


def main(options: argparse.Namespace) -> int:
    """Print what is wrong with the file, a line each; 1 when anything is. Raises BenchError for what cannot be read."""
    from platforms.schedulers.kubernetes.manifest import policy, sources

    _site, platforms = checkout.load(checkout.site_folder(options.site))
    platform = checkout.find(options.name, platforms)
    if platform.scheduler != "kubernetes":
        raise RefusedError(f"{platform.name} has no manifests: its scheduler is {platform.scheduler}")
    written = sources.from_file(options.file)
    found = [
        (written[one.number].where(one.path), one.message)
        for one in policy.violations([dict(source.tree) for source in written], platform)
    ]
    for place, what in sorted(found, key=lambda one: int(one[0].rpartition(":")[2])):
        print(f"{place}: {what}")
    if not found:
        print(f"{options.file}: nothing against it on {platform.name}")
    return 1 if found else 0
