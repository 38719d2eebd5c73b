"""Options of sbatch as people write them in #SBATCH lines, read as sbatch reads them: the last one of a kind counts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """One that takes a value; `shortest` is as much of its name as no other option begins with."""

    name: str
    shortest: str
    letter: str = ""

    def of(self, lines: Iterable[str]) -> str | None:
        """Its value in lines of options, or None: `--exclude=a`, `--exclude a`, `--exclud=a`, `-x a`, `-xa`."""
        value = None
        for line in lines:
            for value in self._values(_words(line)):  # noqa: B007 (the last one is wanted)
                pass
        return value

    def _values(self, words: list[str]) -> Iterator[str]:
        for word, following in zip(words, [*words[1:], ""], strict=True):
            name, equals, value = word.partition("=")
            if name.startswith(self.shortest) and self.name.startswith(name):
                yield value if equals else following
            elif self.letter and word.startswith(self.letter):
                yield word.removeprefix(self.letter) or following


ACCOUNT = Option("--account", "--acco", "-A")
EXCLUDE = Option("--exclude", "--exclud", "-x")
WCKEY = Option("--wckey", "--wc")


def of_script(script: str) -> list[str]:
    """What stands behind #SBATCH at the head of a script; below its first command nothing counts."""
    found = []
    for line in script.splitlines():
        if line.startswith("#SBATCH "):
            found.append(line.removeprefix("#SBATCH "))
        elif line and not line.startswith("#"):
            break
    return found


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quote that nobody closes; sbatch says what it thinks of that
        return line.split()
