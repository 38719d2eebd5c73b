"""`python -m platforms lint NAME FILE`: checks a user's manifest against a platform's rules, without its cluster."""

from __future__ import annotations

import argparse
from pathlib import Path

from platforms import checkout
from platforms.schedulers import backend_of


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("file", type=Path, metavar="FILE", help="YAML, of one or more objects")


def main(options: argparse.Namespace) -> int:
    """Print one line for each mistake in the file. Returns 1 when there is one. Raises BenchError for a bad file."""
    _site, platforms = checkout.load(checkout.site_folder(options.site))
    platform = checkout.find(options.name, platforms)
    mistakes = backend_of(platform).lint_file(platform, options.file)
    for mistake in mistakes:
        print(mistake)
    if not mistakes:
        print(f"{options.file}: nothing against it on {platform.name}")
    return 1 if mistakes else 0
