"""The commands of the pages work: each is run over a made history, or read by the parser that a reader meets."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.docs import exempt
from tests.docs.blocks import PAGES, ROOT, Block, blocks_of, commands_of, is_shell, printed_commands_of
from tests.docs.checks import OURS, is_run, known_marks, run, run_block, wrong_with, wrong_with_block
from tests.docs.made_site import made_site
from tests.docs.page_outputs import CAPTURE, renewed

ALL = [block for page in PAGES for block in blocks_of(page)]
COMMANDS = [command for block in ALL if is_shell(block) for command in commands_of(block)]
WITH_CAPTURES = [page for page in PAGES if CAPTURE.search(page.read_text(encoding="utf-8"))]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@pytest.fixture(scope="module")
def centre(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `site` has a history."""
    folder = tmp_path_factory.mktemp("centre")
    made_site(folder / "site")
    return folder


def _of(page: Path) -> list[Block]:
    name = page.relative_to(ROOT).as_posix()
    return [block for block in ALL if block.page == name]


@by_page
@pytest.mark.slow
def test_programs_understand_the_commands_of_a_page(page: Path) -> None:
    commands = []
    for block in _of(page):
        commands += commands_of(block) if is_shell(block) else printed_commands_of(block)
    assert [f"{command}: {why}" for command in commands if (why := wrong_with(command))] == []


@by_page
def test_blocks_of_a_page_can_be_read(page: Path) -> None:
    assert [f"{block.place}: {why}" for block in _of(page) if (why := wrong_with_block(block))] == []


@by_page
@pytest.mark.slow
def test_commands_that_read_the_history_run(page: Path, centre: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(centre)
    wrong = []
    for block in _of(page):
        if is_shell(block):
            for command in commands_of(block):
                if is_run(command) and (why := run(command, centre / "site")):
                    wrong.append(f"{command}: {why}")
        if why := run_block(block, centre):
            wrong.append(f"{block.place}: {why}")
    assert wrong == []


@by_page
@pytest.mark.slow
def test_the_pandas_snippets_of_a_page_run(page: Path, centre: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippets = [block for block in _of(page) if block.language == "python" and "pandas" in block.text]
    if not snippets:
        return
    if importlib.util.find_spec("pandas") is None:
        pytest.skip("pandas is not installed (pip install pandas)")
    monkeypatch.chdir(centre)
    for words in re.findall(r"^    (python -m reporting .+ -o runs\.csv)", page.read_text(encoding="utf-8"), re.M):
        (command,) = commands_of(Block(page.name, 1, "sh", words))
        assert run(command, centre / "site") == ""
    namespace: dict[str, object] = {"pandas": importlib.import_module("pandas")}
    for snippet in snippets:
        exec(compile(snippet.text, snippet.place, "exec"), namespace)


@pytest.mark.parametrize("page", WITH_CAPTURES, ids=lambda page: page.name)
def test_captures_are_what_the_commands_print(page: Path, centre: Path) -> None:
    """`python -m tests.docs.page_outputs` writes them again."""
    assert renewed(page, centre / "site") == page.read_text(encoding="utf-8")


@by_page
def test_commands_that_are_named_in_prose_exist(page: Path) -> None:
    named = re.findall(r"python -m (platforms|reporting) ([a-z][a-z-]+)", page.read_text(encoding="utf-8"))
    assert [f"{program} {name}" for program, name in named if name not in OURS[program].commands] == []


def test_exceptions_are_still_needed() -> None:
    """What is in no page any more is removed from tests/docs/exempt.py."""
    programs = {command.words[0] for command in COMMANDS}
    assert exempt.EXTERNAL.keys() - programs == set()
    typed = [" ".join(command.words) for command in COMMANDS]
    assert exempt.NOT_RUN.keys() - set(typed) == set()
    assert exempt.NAMES.keys() & known_marks() == set()
    assert [name for name in exempt.NAMES if not any(name in line for line in typed)] == []
    assert [name for name in exempt.FILES if not any(name in line for line in typed)] == []
    assert exempt.LANGUAGES.keys() - {block.language for block in ALL} == set()


def test_each_language_is_checked_or_exempt() -> None:
    checked = {"", "python", "json", "yaml", "sh", "bash", "console"}
    assert {block.language for block in ALL} - checked - exempt.LANGUAGES.keys() == set()


def test_a_wrong_command_is_found() -> None:
    """With its page and its line."""
    block = Block("a.md", 7, "", "pytest -m local --wiat 5m\npython -m reporting tabel\nmake bnch\nsh x\n")
    wrong = [f"{command.place}: {wrong_with(command)}" for command in commands_of(block)]
    assert re.match(r"a\.md:7: .*unrecognized arguments: --wiat", wrong[0])
    assert re.match(r"a\.md:8: .*invalid choice: 'tabel'", wrong[1])
    assert re.match(r"a\.md:9: .*No rule to make target", wrong[2])
    assert re.match(r"a\.md:10: 'sh' is no program that the test knows", wrong[3])


@pytest.mark.parametrize(
    ("language", "text", "why"),
    [
        ("python", "def f(:\n", "line 7: "),
        ("yaml", "a: [\n", "expected"),
        ("yaml", "layouts: {default: [1x1]}\nlayuot: 3\n", ""),
        ("yaml", "time_limit: 90\n", "90 of what?"),
        ("yaml", "scheduler: slurm\nslurm: {acount: a}\n", "did you mean 'account'"),
        ("yaml", "max_device_hours: lots\n", "max_device_hours"),
        ("json", "{", "Expecting"),
        ("", "pyhton -m platforms doctor mine\n", ""),
    ],
)
def test_a_wrong_block_is_found(language: str, text: str, why: str) -> None:
    block = Block("a.md", 7, language, text)
    if language:
        assert why in wrong_with_block(block)
    else:
        (command,) = commands_of(block)
        assert is_shell(block)
        assert "no program that the test knows" in wrong_with(command)
