"""Reads the options of #SBATCH lines as sbatch does: several in a line, in short form, abbreviated.

The options, and whether they take a value, are those of sbatch's manual, Slurm 20.11 to 24.11.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# The long options without their two dashes. `=`: takes a value; `?`: may have one, only behind an equals sign.
_LONG = """
account= acctg-freq= array= batch= bb= bbf= begin= chdir= cluster-constraint= clusters= comment= constraint= container=
container-id= contiguous core-spec= cores-per-socket= cpu-freq= cpus-per-gpu= cpus-per-task= deadline= delay-boot=
dependency= distribution= error= exclude= exclusive? export= export-file= extra= extra-node-info= get-user-env? gid=
gpu-bind= gpu-freq= gpus= gpus-per-node= gpus-per-socket= gpus-per-task= gres= gres-flags= help hint= hold ignore-pbs
input= job-name= kill-on-invalid-dep= licenses= mail-type= mail-user= mcs-label= mem= mem-bind= mem-per-cpu=
mem-per-gpu= mincpus= network= nice? no-kill? no-requeue nodefile= nodelist= nodes= ntasks= ntasks-per-core=
ntasks-per-gpu= ntasks-per-node= ntasks-per-socket= oom-kill-step? open-mode= output= overcommit oversubscribe parsable
partition= power= prefer= priority= profile= propagate? qos= quiet reboot requeue reservation= resv-ports? segment=
signal= sockets-per-node= spread-job stepmgr switches= test-only thread-spec= threads-per-core= time= time-min= tmp=
tres-bind= tres-per-task= uid= usage use-min-nodes verbose version wait wait-all-nodes= wckey= wrap=
"""
_TAKES = {f"--{word.rstrip('=?')}": word[-1] if word[-1] in "=?" else "" for word in _LONG.split()}
_SHORT = {
    "A": "--account", "a": "--array", "b": "--begin", "B": "--extra-node-info", "C": "--constraint",
    "c": "--cpus-per-task", "D": "--chdir", "d": "--dependency", "e": "--error", "F": "--nodefile", "G": "--gpus",
    "H": "--hold", "h": "--help", "i": "--input", "J": "--job-name", "k": "--no-kill", "L": "--licenses",
    "M": "--clusters", "m": "--distribution", "N": "--nodes", "n": "--ntasks", "O": "--overcommit", "o": "--output",
    "p": "--partition", "Q": "--quiet", "q": "--qos", "S": "--core-spec", "s": "--oversubscribe", "t": "--time",
    "V": "--version", "v": "--verbose", "W": "--wait", "w": "--nodelist", "x": "--exclude",
}  # fmt: skip

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

MISSPELT = 0.88  # how like an option of sbatch a word is that means it; pyxis' --container-image is less like one


@dataclass(frozen=True)
class SbatchOption:
    """An option in its long form, and its value if it has one."""

    name: str
    value: str | None = None


def parse_options(line: str) -> list[SbatchOption]:
    """Read the options of one line, without `#SBATCH`."""
    words = iter(_words(line))
    options: list[SbatchOption] = []
    for word in words:
        if word.startswith("--"):
            options.append(_parse_long(word, words))
        elif word.startswith("-"):
            options += _parse_short(word, words)
    return options


def last_value(name: str, lines: Iterable[str]) -> str | None:
    """Return the value of an option in lines of options. The last one counts; None if there is none."""
    value = None
    for line in lines:
        for option in parse_options(line):
            if option.name == name:
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

    Raises ValueError if it sets what another key sets, and if an option is almost one of sbatch's. Others that sbatch
    does not have may be a plugin's.
    """
    if not line.isprintable():
        raise ValueError(f"{line!r} cannot stand in a #SBATCH line (write one line, and a list for several)")
    for option in parse_options(line):
        if option.name in _FORBIDDEN_TO_SITES:
            raise ValueError(f"{option.name} cannot be set here: {_FORBIDDEN_TO_SITES[option.name]} (remove it)")
        if not any(known.startswith(option.name) for known in _TAKES):
            for meant in difflib.get_close_matches(option.name, _TAKES, n=1, cutoff=MISSPELT):
                raise ValueError(f"{option.name} is no option of sbatch (did you mean {meant}?)")
    return line


def _parse_long(word: str, following_words: Iterator[str]) -> SbatchOption:
    name, equals, value = word.partition("=")
    if name not in _TAKES:
        candidates = [option for option in _TAKES if option.startswith(name)]
        if len(candidates) == 1:  # otherwise it is a plugin's option, or one that sbatch refuses
            name = candidates[0]
    if equals:
        return SbatchOption(name, value)
    if _TAKES.get(name) == "=":
        return SbatchOption(name, next(following_words, ""))
    return SbatchOption(name)


def _parse_short(word: str, following_words: Iterator[str]) -> list[SbatchOption]:
    """Read `-n3`, `-n 3`, and `-Hn3` for `-H -n 3`."""
    options: list[SbatchOption] = []
    letters = word[1:]
    while letters:
        letter = letters[0]
        letters = letters[1:]
        name = _SHORT.get(letter, f"-{letter}")
        if _TAKES.get(name) == "=":
            return [*options, SbatchOption(name, letters or next(following_words, ""))]
        if _TAKES.get(name) == "?":
            return [*options, SbatchOption(name, letters or None)]
        options.append(SbatchOption(name))
    return options


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quote is not closed; sbatch reports that
        return line.split()
