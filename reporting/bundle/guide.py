"""The files of a bundle that people read first: README.md, and REPLACED.md on what aliases stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reporting.bundle.records import RunRecord

README, REPLACED, METHODS = "README.md", "REPLACED.md", "METHODS.md"
SCHEMA = 1


@dataclass(frozen=True)
class Contents:
    """What contents.json says of a bundle.

    Attributes:
        commit: of the suite that made it; None outside of a clone.
        identified: names were left as they are.
        with_logs: the whole logs are in it.
        runs: of each run its folder in the bundle, and what is missing of it.
        left_out: why other jobs of the chosen runs are not in it, each a sentence.
        replaced: how many names of each kind have aliases, and in how many places.
        unfinished: a sentence on each run that was not finished when the bundle was made.
    """

    commit: str | None
    identified: bool
    with_logs: bool
    runs: Mapping[str, Sequence[str]]
    left_out: Sequence[str] = ()
    replaced: Mapping[str, Sequence[int]] | None = None
    unfinished: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        content = {"schema": SCHEMA, **vars(self)}
        if not self.unfinished:  # suites that do not know the key read the bundles of finished runs
            del content["unfinished"]
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Contents:
        """Raises KeyError, TypeError and ValueError for what `as_json` did not write."""
        values = {**content}
        if values.pop("schema") != SCHEMA:
            raise ValueError(f"its schema is {content['schema']}, and this suite reads {SCHEMA}")
        return cls(**values)


NO_SPLIT = (
    "   A run with `no_split` in its summary has neither stall_s nor compute_s, for that reason: its rows have the",
    "   whole step in the column `whole`, and the two numbers that need them are missing.",
)


def readme_text(contents: Contents, records: Sequence[RunRecord]) -> str:
    count = "1 run" if len(records) == 1 else f"{len(records)} runs"
    lines = [
        f"# {count} of hpc-ml-bench, to be checked by anybody",
        "",
        "This file says what each file is, and how to compute the numbers of the tables again.",
        "",
        "## Files",
        "",
        "| file | content |",
        "|---|---|",
        "| `tables/tables.txt`, `.md`, `.csv` | the tables, for people and for programs; times are in UTC |",
        "| `METHODS.md` | how, when and on what was measured, and what is not known |",
        f"| `REPLACED.md` | {_on_replaced(contents)} |",
        "| `contents.json` | the runs, and what is missing |",
        "| `jobs/<run>/<test>/run.json` | the record of a run: what was asked, what it ran on, what it measured |",
        "| `jobs/<run>/<test>/history.json` | the line of the history that follows from it |",
        "| `jobs/<run>/<test>/job.sh` or `manifest.yaml` | what was submitted |",
        "| `jobs/<run>/<test>/wire.log` | what the job reported, line by line |",
        "| `jobs/<run>/<test>/steps-rank<N>.csv` | each step of rank N, in seconds: wait, h2d, busy |",
        *(["| `jobs/<run>/<test>/log` | everything that the job printed |"] if contents.with_logs else []),
        "| `code/models-<hash>.pyz` | the code that ran, a zip file that Python runs; its name is its content's hash |",
        "| `MANIFEST` | size and sha256 of every other file |",
        "",
        "## How to check it",
        "",
        "The digest of this bundle is the sha256 of `MANIFEST`. A paper that uses it prints it. With the suite:",
        "",
        "    python -m reporting verify FILE.zip --digest sha256:…",
        "",
        "Without the suite:",
        "",
        "    unzip FILE.zip -d bundle && cd bundle",
        "    sha256sum MANIFEST          # is it the printed digest?",
        "    sha256sum -c MANIFEST       # is each file the one that was bundled?",
        "",
        "Then, for each run:",
        "",
        "1. Take the rows of one window from `steps-rank<N>.csv` of all ranks. In each step the rank with the",
        "   largest wait + h2d sets the pace. The sum of these stalls is `stall_s` of that `hpcml_window` in",
        "   `wire.log`, and the sum of `busy` of these ranks is `compute_s`. Rows have nine digits behind the point,",
        "   so a sum may differ by 1e-9 s a step.",
        "2. The windows of `wire.log` are those of `run.json`. N is the sum of `samples`, T the sum of `wall_s`:",
        "   effective throughput = N / T, compute fraction = 1 - sum(stall_s) / T, compute throughput = N /",
        "   sum(compute_s), spread = standard deviation over mean of wall_s / samples.",
        *(NO_SPLIT if any(record.run.no_split for record in records) else []),
        "3. The tables show these numbers with three to four digits. `tables.csv` has all digits; its",
        "   `effective_throughput` is that of the fastest stretch of windows that lasts at least four seconds.",
        "",
        "`samples` and `wall_s` of a window are counted and timed by the job. They stand in `wire.log`, and no other",
        "value of the bundle gives them.",
        "",
        "## Runs",
        "",
    ]
    for record in records:
        said = f"- `{record.folder}`: {_evidence_in(record)}"
        lines += [said, *(f"  - missing: {sentence}" for sentence in record.missing)]
    if contents.unfinished:
        lines += ["", "Not finished:", "", *(f"- {sentence}" for sentence in contents.unfinished)]
    if contents.left_out:
        lines += ["", "Other jobs of these runs are not in the tables:", ""]
        lines += [f"- {sentence}" for sentence in contents.left_out]
    lines += ["", f"The bundle was made by hpc-ml-bench at commit {contents.commit or '(not known)'}."]
    return "\n".join([*lines, ""])


def _evidence_in(record: RunRecord) -> str:
    if not record.content:
        return "the line of the history alone"
    if record.ranks:
        ranks = "1 rank" if record.ranks == 1 else f"{record.ranks} ranks"
        return f"from the raw values of {ranks} to the tables"
    if record.has_wire:
        return "from what the job reported to the tables"
    return "from the record of the run to the tables"


def _on_replaced(contents: Contents) -> str:
    return "that no name was replaced" if contents.identified else "how many names have aliases, by kind"


def replaced_text(contents: Contents) -> str:
    """The file REPLACED.md. It never has an original name."""
    lines = ["# What was replaced", ""]
    replaced = dict(contents.replaced or {})
    if contents.identified:
        lines.append("Names are as they were (`--identify`). Values of secrets were replaced by `(hidden)`.")
    else:
        lines += [
            "Names of people, accounts, machines and places have aliases. The same name has the same alias everywhere.",
            "Platforms, sites, tests, devices and versions have their own names, and no number was changed.",
        ]
    if replaced:
        lines += ["", "| kind | names | places |", "|---|---:|---:|"]
        lines += [f"| {kind} | {names} | {places} |" for kind, (names, places) in replaced.items()]
    if not contents.identified:
        lines += [
            "",
            "Free text, such as messages of other programs, was searched for the names that the records know, and for",
            "what looks like an address, a URL or a path. Another name in it stays.",
        ]
        if not contents.with_logs:
            lines += ["Of the logs, only the lines of the wire are in the bundle."]
    return "\n".join([*lines, ""])
