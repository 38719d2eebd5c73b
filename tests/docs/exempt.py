"""What of the pages' commands is not run, and why: the one place for exceptions.

Every command of our own programs is parsed by its own parser, whether it is run or not.
"""

from __future__ import annotations

from collections.abc import Mapping

EXTERNAL: Mapping[str, str] = {
    ".": "activates a reader's environment",
    "python3": "makes a reader's environment",
    "pip": "installs into a reader's environment; `make` does the same and is tested",
    "git": "works on a reader's own repository",
    "ssh": "needs a login node",
    "kubectl": "needs a cluster",
    "srun": "needs a Slurm",
    "kind": "starts a cluster",
    "cd": "goes to a reader's folder",
    "mkdir": "makes a reader's folders",
    "cp": "copies a reader's files",
    "cat": "reads a reader's files",
    "chgrp": "needs a reader's group",
    "chmod": "needs a reader's folder",
    "printf": "writes a reader's file",
    "touch": "needs a reader's run",
    "export": "sets a reader's environment",
    "jq": "is run with the whole block, where it is installed",
    "curl": "needs a server",
    "promtool": "needs a reader's Prometheus; tests/reporting runs it where it is installed",
    "reframe": "is another program",
    "pytest-benchmark": "is another program",
}
"""Programs that are not ours: bash reads their lines, and no more. By name, with the reason."""

PARSED_ONLY: Mapping[str, str] = {
    "accept": "writes an answer; tests/reporting/test_answers_commands.py runs it",
    "ack": "writes an answer that ends on a day; tests/reporting/test_answers_commands.py runs it",
    "carry": "writes an answer; tests/reporting/test_answers_commands.py runs it",
    "note": "writes an answer; tests/reporting/test_answers_commands.py runs it",
    "pause": "writes an answer that ends on a day; tests/reporting/test_answers_commands.py runs it",
    "import": "reads another program's results; tests/reporting/test_import_commands.py runs it",
    "pull": "needs a repository that others share",
    "push": "needs a repository that others share",
    "comment": "writes to a merge request",
    "vet": "needs the facts of nodes; tests/reporting/test_vet.py runs it",
}
"""Commands of `python -m reporting` that are not run over the made history, with the reason."""

NOT_RUN: Mapping[str, str] = {
    "python -m reporting export bundle latest -o runs.tar.gz": "needs a run's folder; test_bundle.py runs it",
    "python -m reporting export bundle before after -o upgrade.tar.gz": "needs runs with these labels",
    "python -m reporting table --site=vendor": "reads what `import runs` makes",
    "python -m reporting nodes cluster --job 16 --site=/centre/bench/site": "names a centre's own folder",
    "python -m reporting nodes cluster --job 4711 --site=/centre/bench/site": "names a centre's own folder",
}
"""Single commands that are parsed and not run, with the reason."""

NAMES: Mapping[str, str] = {
    "mine": "the platform that a reader makes",
    "cluster": "a Slurm of the examples",
    "nightly": "the tests of catalogue/ for every night",
}
"""Marks of the examples that no platform of the suite has, with what they stand for."""

FILES: Mapping[str, str] = {
    "site/test_mine.py": "the test that a reader writes",
    "~/bench/test_mine.py": "the same test in a folder of its own",
}
"""Files of the examples that the checkout does not have, with what they stand for."""

PLACEHOLDERS: Mapping[str, str] = {"N": "3"}
"""What stands for a number."""

LANGUAGES: Mapping[str, str] = {
    "r": "is only shown; the same lines stand there for pandas",
}
"""Languages of blocks that are only shown, with the reason."""
