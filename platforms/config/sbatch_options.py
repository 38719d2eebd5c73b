"""Reads the options of #SBATCH lines: several in a line, in long or in short form.

An abbreviation such as `--part` stays as it is: the list of sbatch's options grows with its versions. The short
options are those of sbatch's manual, Slurm 20.11 to 24.11.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

_SHORT = {
    "A": "--account", "a": "--array", "b": "--begin", "B": "--extra-node-info", "C": "--constraint",
    "c": "--cpus-per-task", "D": "--chdir", "d": "--dependency", "e": "--error", "F": "--nodefile", "G": "--gpus",
    "H": "--hold", "h": "--help", "i": "--input", "J": "--job-name", "k": "--no-kill", "L": "--licenses",
    "M": "--clusters", "m": "--distribution", "N": "--nodes", "n": "--ntasks", "O": "--overcommit", "o": "--output",
    "p": "--partition", "Q": "--quiet", "q": "--qos", "S": "--core-spec", "s": "--oversubscribe", "t": "--time",
    "V": "--version", "v": "--verbose", "W": "--wait", "w": "--nodelist", "x": "--exclude",
}  # fmt: skip
_SHORT_FLAGS = "HhkOQsVvW"  # those without a value

# Options that `slurm.directives:` may not have, and why.
_LAYOUT = "it follows from `layouts:`"
_SUITE = "the suite writes it itself"
_FORBIDDEN_TO_SITES = {
    **dict.fromkeys(("--nodes", "--ntasks", "--ntasks-per-node"), _LAYOUT),
    **dict.fromkeys(
        ("--gpus", "--gpus-per-node", "--gpus-per-socket", "--gpus-per-task"), f"{_LAYOUT} and `slurm.gpus:`"
    ),
    "--time": "it follows from `time_limit:`",
    "--deadline": "it follows from `start_limit:` and `time_limit:`",
    **dict.fromkeys(("--job-name", "--output", "--error", "--open-mode", "--chdir", "--wrap"), _SUITE),
    **dict.fromkeys(("--array", "--requeue"), "a job is submitted once and starts once"),
    **dict.fromkeys(("--test-only", "--help", "--usage", "--version"), "with it sbatch submits nothing"),
}


@dataclass(frozen=True)
class SbatchOption:
    """An option in its long form, and its value if it has one."""

    name: str
    value: str | None = None


def parse_options(line: str) -> list[SbatchOption]:
    """Read the options of one line, without `#SBATCH`.

    What stands behind an option and begins with no dash is its value.
    """
    options: list[SbatchOption] = []
    for word in _words(line):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            options.append(SbatchOption(name, value if equals else None))
        elif word.startswith("-"):
            options += _parse_short(word[1:])
        elif options and options[-1].value is None:
            options[-1] = SbatchOption(options[-1].name, word)
    return options


def last_value(name: str, lines: Iterable[str]) -> str | None:
    """Return the value of an option in lines of options, also abbreviated. The last one counts; None: there is none."""
    value = None
    for line in lines:
        for option in parse_options(line):
            if name.startswith(option.name):  # sbatch refuses an abbreviation that fits several options
                value = option.value
    return value


def directives_of_script(script: str) -> dict[int, str]:
    """Return what stands behind `#SBATCH`, by line number. sbatch reads none below the script's first command."""
    directives = {}
    for number, line in enumerate(script.splitlines(), 1):
        directive = re.match(r"#SBATCH\s+(.*)", line)
        if directive:
            directives[number] = directive[1]
        elif line.strip() and not line.startswith("#"):
            break
    return directives


def check_site_directive(line: str) -> str:
    """Return a line of `slurm.directives:` unchanged.

    Raises ValueError if it sets what another key sets.
    """
    if not line.isprintable():
        raise ValueError(f"{line!r} cannot stand in a #SBATCH line (write one line, and a list for several)")
    for option in parse_options(line):
        if option.name in _FORBIDDEN_TO_SITES:
            raise ValueError(f"{option.name} cannot be set here: {_FORBIDDEN_TO_SITES[option.name]} (remove it)")
    return line


def _parse_short(letters: str) -> list[SbatchOption]:
    """Read the letters of `-n3` or `-n`, and of `-Hn3` for `-H -n 3`."""
    options: list[SbatchOption] = []
    while letters and letters[0] in _SHORT_FLAGS:
        options.append(SbatchOption(_SHORT[letters[0]]))
        letters = letters[1:]
    if letters:
        options.append(SbatchOption(_SHORT.get(letters[0], f"-{letters[0]}"), letters[1:] or None))
    return options


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quote is not closed; sbatch reports that
        return line.split()
