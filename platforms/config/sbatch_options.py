"""Options of sbatch as people write them in #SBATCH lines: several in a line, short, abbreviated, as sbatch reads them.

The options and what they take are those of sbatch's manual, Slurm 20.11 to 24.11.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Without the two dashes; `=` takes a value, `?` may have one, and only behind an equals sign.
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

# What a site's own options may not say, and the key that does.
_LAYOUT = "it follows from `layouts:`"
_SUITES = "the suite writes it itself"
_NOT_THE_SITES = {
    **dict.fromkeys(("--nodes", "--ntasks", "--ntasks-per-node"), _LAYOUT),
    **dict.fromkeys(
        ("--gpus", "--gpus-per-node", "--gpus-per-socket", "--gpus-per-task"), f"{_LAYOUT} and `slurm.gpus:`"
    ),
    "--time": "it follows from `time_limit:`",
    "--deadline": "it follows from `start_limit:` and `time_limit:`",
    **dict.fromkeys(("--job-name", "--output", "--error", "--open-mode", "--chdir", "--wrap"), _SUITES),
    **dict.fromkeys(("--array", "--requeue"), "a job is submitted once and starts once"),
    **dict.fromkeys(("--test-only", "--help", "--usage", "--version"), "with it sbatch submits nothing"),
}


@dataclass(frozen=True)
class SbatchOption:
    """An option in its long form, and its value; None where there is none."""

    name: str
    value: str | None = None


def parse_options(line: str) -> list[SbatchOption]:
    """The options of one line, without #SBATCH."""
    words = iter(_words(line))
    found: list[SbatchOption] = []
    for word in words:
        if word.startswith("--"):
            found.append(_long(word, words))
        elif word.startswith("-"):
            found += _short(word, words)
    return found


def last_value(name: str, lines: Iterable[str]) -> str | None:
    """The value of an option in lines of options, of which the last one counts; None where there is none."""
    value = None
    for line in lines:
        for option in parse_options(line):
            if option.name == name:
                value = option.value
    return value


def directives_of_script(script: str) -> dict[int, str]:
    """What stands behind #SBATCH at the head of a script, by the number of the line; below its first command nothing
    counts."""
    found = {}
    for number, line in enumerate(script.splitlines(), 1):
        if match := re.match(r"#SBATCH\s+(.*)", line):
            found[number] = match[1]
        elif line.strip() and not line.startswith("#"):
            break
    return found


def check_site_directive(line: str) -> str:
    """A line of `slurm.directives:`, as it is. Raises ValueError where it is none, or says what another key says."""
    if not line.isprintable():
        raise ValueError(f"{line!r} cannot stand in a #SBATCH line (write one line, and a list for several)")
    for option in parse_options(line):
        if option.name in _NOT_THE_SITES:
            raise ValueError(f"{option.name} cannot be set here: {_NOT_THE_SITES[option.name]} (remove it)")
    return line


def _long(word: str, following: Iterator[str]) -> SbatchOption:
    name, equals, value = word.partition("=")
    names = [name] if name in _TAKES else [known for known in _TAKES if known.startswith(name)]
    name = names[0] if len(names) == 1 else name  # else one of a plugin's, or one that sbatch refuses
    if equals:
        return SbatchOption(name, value)
    return SbatchOption(name, next(following, "") if _TAKES.get(name) == "=" else None)


def _short(word: str, following: Iterator[str]) -> list[SbatchOption]:
    """`-n3`, `-n 3`, and `-Hn3` for `-H -n 3`."""
    found: list[SbatchOption] = []
    rest = word[1:]
    while rest:
        letter, rest = rest[0], rest[1:]
        name = _SHORT.get(letter, f"-{letter}")
        if _TAKES.get(name) == "=":
            return [*found, SbatchOption(name, rest or next(following, ""))]
        if _TAKES.get(name) == "?":
            return [*found, SbatchOption(name, rest or None)]
        found.append(SbatchOption(name))
    return found


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quote that is not closed; sbatch says what it thinks of that
        return line.split()
