"""The blocks of code in the pages, and the commands in them."""

from __future__ import annotations

import difflib
import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
PROGRAMS = (
    "pytest", "pytest-benchmark", "python", "make", "git", "ssh", "mkdir", "cp", "mv", "cat", "rm", "export", "kubectl",
    "kind", "touch", "taskset", "jq", "promtool", "reframe", "curl", "srun", "sbatch", "scontrol", "sinfo", "pip",
    "apptainer", "docker", "unzip", "diff", "crontab", "cd", "module", "chmod", "ln", "tar", "gitlab-runner", "squeue",
)  # fmt: skip
SHELLS = ("sh", "bash", "console")
OPERATORS = {"&&", "||", "|", ";", "&"}
ASSIGNMENT = re.compile(r"[A-Z_]+=.*")


@dataclass(frozen=True)
class Block:
    """A block of code; `line` is that of its first line in the page. `language` is "" if the page does not say it."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One program with its arguments, without what a shell does before and after it."""

    place: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place}: {shlex.join(self.words)}"


def blocks_of(page: Path) -> list[Block]:
    """The fenced and the indented blocks of a page."""
    name = page.relative_to(ROOT).as_posix()
    lines = page.read_text(encoding="utf-8").splitlines()
    found = []
    number = 0
    while number < len(lines):
        fence = re.match(r"\s*```(\w*)", lines[number])
        first = number
        if fence:
            number += 1
            while not lines[number].lstrip().startswith("```"):
                number += 1
            found.append(_block(name, first + 1, fence[1], lines[first + 1 : number]))
            number += 1
        elif lines[number].startswith("    ") and (number == 0 or not lines[number - 1].strip()):
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number].strip()):
                number += 1
            found.append(_block(name, first, "", lines[first:number]))
        else:
            number += 1
    return found


def _block(page: str, first: int, language: str, lines: Sequence[str]) -> Block:
    return Block(page, first + 1, language, textwrap.dedent("\n".join(lines)).rstrip("\n") + "\n")


def is_shell(block: Block) -> bool:
    """Whether a block is to be typed: its language says so, or its first line begins with a program or a prompt.

    A word that is almost a program's name is taken for a misspelt one.
    """
    if block.language:
        return block.language in SHELLS
    first = next((line for line in block.text.splitlines() if not line.startswith("#") and line.strip()), "")
    if first.startswith("$ "):
        return True
    word = first.partition(" ")[0].removeprefix(".venv/bin/")
    return word in PROGRAMS or bool(ASSIGNMENT.fullmatch(word)) or _is_misspelt(word)


def _is_misspelt(word: str) -> bool:
    return len(word) > 4 and bool(difflib.get_close_matches(word, [name for name in PROGRAMS if len(name) > 4], 1, 0.8))


def script_of(block: Block) -> list[tuple[int, str]]:
    """The lines of a block that are typed, each with its number in the page. Lines that end in a backslash are joined.

    Where a block has prompts, the other lines are what the commands print.
    """
    has_prompts = any(line.startswith("$ ") for line in block.text.splitlines())
    typed: list[tuple[int, str]] = []
    goes_on = False
    for number, line in enumerate(block.text.splitlines(), block.line):
        if goes_on:
            place, before = typed[-1]
            typed[-1] = (place, before + "\n" + line)
        elif line.startswith("$ "):
            typed.append((number, line[2:]))
        elif not has_prompts and line.strip():
            if typed and _is_in_quotes(typed[-1][1]):
                place, before = typed[-1]
                typed[-1] = (place, before + "\n" + line)
            else:
                typed.append((number, line))
        goes_on = bool(typed) and typed[-1][1].endswith("\\") and (goes_on or not has_prompts or line.startswith("$ "))
    return typed


def printed_commands_of(block: Block) -> Iterator[Command]:
    """The commands of ours that a program prints to be typed, or that a line of another kind has at its end."""
    for number, line in enumerate(block.text.splitlines(), block.line):
        found = re.match(r"\s*(?:[^#]* && )?(?:\.venv/bin/)?((?:python -m (?:platforms|reporting)|pytest) .*)", line)
        if found and "…" not in found[1]:
            yield from commands_of(Block(block.page, number, "sh", found[1]))


def _is_in_quotes(line: str) -> bool:
    """Whether a text in quotes goes on in the next line."""
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return not line.endswith("\\")
    return False


def commands_of(block: Block) -> Iterator[Command]:
    """The programs that a block starts."""
    for number, line in script_of(block):
        lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars=";&|<>")
        lexer.whitespace_split = True
        words: list[str] = []
        skips_file = False
        for word in [*lexer, ";"]:
            if word in OPERATORS:
                if words:
                    yield Command(f"{block.page}:{number}", tuple(_without_prefix(words)))
                words = []
            elif set(word) <= set("<>"):
                skips_file = True
            elif skips_file:
                skips_file = False
            else:
                words.append(word)


def _without_prefix(words: Sequence[str]) -> list[str]:
    """A command without assignments before it, without the programs that only start it, and with optional words."""
    rest = list(words)
    while len(rest) > 1 and ASSIGNMENT.fullmatch(rest[0]):
        rest = rest[1:]
    if rest[0] in ("taskset", "nice") and "python" in rest:
        rest = rest[rest.index("python") :]
    rest[0] = rest[0].removeprefix(".venv/bin/")
    if "[" not in "".join(word[0] for word in rest):
        return rest
    return [
        word.strip("[]") if word.startswith("[") or (word.endswith("]") and "[" not in word) else word for word in rest
    ]
