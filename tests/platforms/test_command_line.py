"""Words and options of `python -m platforms` and `python -m reporting`: they may stand in every order."""

from __future__ import annotations

import itertools
import re

import pytest

from platforms import command_line
from platforms.__main__ import PROGRAM as PLATFORMS
from reporting.__main__ import PROGRAM as REPORTING

OF_A_PLATFORM = ["table", "show", "trend", "judge", "data", "power", "ack", "carry", "pause", "answers"]
WORDS = {
    "reporting": {
        **{command: ["a100"] for command in OF_A_PLATFORM},
        "nodes": ["a100", "--job=17"],
        "html": ["a100", "-o=x.html"],
        "export": ["prometheus", "a100"],
        "compare": ["before", "after", "a100"],
        "import": ["reframe", "file.json", "--since=2026-01-01"],
        "accept": ["a100", "--since=2026-11-01", "--reason=x"],
        "note": ["--platform=a100", "--at=2026-11-01", "text"],
        "comment": ["a100", "--print"],
        "vet": ["a100", "--sign=folder"],
        "pull": [],
        "push": [],
    },
    "platforms": {
        **{command: ["a100"] for command in ("init", "doctor", "prepare", "prune")},
        "enable": ["a100", "h100"],
        "disable": ["a100", "h100"],
        "lint": ["a100", "file.yaml"],
        "jobs": ["latest"],
        "logs": ["resnet50"],
        "cancel": ["latest"],
    },
}
PROGRAMS = {"reporting": REPORTING, "platforms": PLATFORMS}
EACH = [(program, command) for program, commands in WORDS.items() for command in commands]


@pytest.mark.parametrize(("typed", "instead"), command_line.GONE.items(), ids=str)
def test_what_is_gone_answers_with_what_is_typed_in_its_place(
    typed: tuple[str, ...], instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *words = typed
    assert command_line.run(PROGRAMS[program.split()[-1]], [*words, "a100"]) == 2
    assert f"error: `{' '.join(typed)}` is gone; {instead}" in capsys.readouterr().err
    for name, command in re.findall(r"python -m (\w+) (\w+)", instead):
        assert command in PROGRAMS[name].commands


def test_every_command_is_tried() -> None:
    assert {name: set(program.commands) for name, program in PROGRAMS.items()} == {
        name: set(commands) for name, commands in WORDS.items()
    }


@pytest.mark.parametrize(("program", "command"), EACH)
def test_words_and_options_stand_in_every_order(program: str, command: str) -> None:
    words = WORDS[program][command]
    parsed = command_line.parsed(PROGRAMS[program], [command, *words, "--site", "centre"])
    assert (parsed.command, parsed.site) == (command, "centre")
    typed = [["--site", "centre"], *([word] for word in words)]
    names = [word for word in words if not word.startswith("-")]
    for order in itertools.permutations(typed):
        flat = [word for part in order for word in part]
        if [word for word in flat if word in names] == names:
            assert vars(command_line.parsed(PROGRAMS[program], [command, *flat])) == vars(parsed), flat


def test_what_stands_behind_two_hyphens_is_no_option() -> None:
    words = ["note", "--platform=a100", "--at=2026-11-01", "--", "--site is full"]
    assert command_line.parsed(REPORTING, words).text == "--site is full"


def test_an_unknown_option_shows_the_usage_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.parsed(REPORTING, ["trend", "--sit", "--nope", "a100"])
    err = capsys.readouterr().err
    assert "usage: python -m reporting trend" in err


@pytest.mark.parametrize("program", [PLATFORMS, REPORTING])
def test_help_lists_each_command_once_below_the_heading_of_its_group(
    program: command_line.Program, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command_line.parsed(program, ["--help"])
    lines = capsys.readouterr().out.splitlines()
    for name, command in program.commands.items():
        assert command.group
        (place,) = [number for number, line in enumerate(lines) if line.startswith(f"  {name} ")]
        assert command.summary in lines[place]
        heading = next(line for line in reversed(lines[:place]) if not line.startswith("  "))
        assert heading == f"{command.group}:"
