"""The figures of benchmarks/house.py on small made-up projects: each test pins the definition of one figure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import house


def project(folder: Path, **modules: str) -> house.Project:
    """A project of one package, `app`: `rooms_api="…"` is its module `app/rooms/api.py`."""
    return projects(folder, {f"app/{name.replace('_', '/')}.py": text for name, text in modules.items()})


def projects(folder: Path, sources: dict[str, str]) -> house.Project:
    """Write these files, with an `__init__.py` in each of their folders that lacks one, and read the project."""
    for name, text in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for parent in Path(name).parents[:-1]:
            (folder / parent / "__init__.py").touch()
    return house.read_project(folder)


def test_source_is_every_python_folder_at_the_top_without_tests(tmp_path):
    sources = ["app/core.py", "tool/x.py", "tool/test_x.py", "tool/tests/y.py", "tests/test_y.py", "benchmarks/z.py"]
    read = projects(tmp_path, dict.fromkeys(sources, "\n"))
    names = ["app", "app.core", "tool", "tool.x"]
    assert [module.name for module in read.modules] == names
    assert [module.name for module in house.read_project(tmp_path / "tool").modules] == names[2:]


def test_a_function_is_as_long_as_its_lines_from_def_to_the_last(tmp_path):
    function = '@decorated\ndef f(\n    a,\n):\n    """Text."""\n    def g():\n        pass\n'
    figures = house.figures(project(tmp_path, core=function))
    assert figures["source files / lines"] == "2 / 7"
    assert figures["lines of a module: median / p95 / max"] == "3.5 / 7 / 7"
    assert figures["lines of a function: median / p95 / max"] == "4 / 6 / 6"


def test_a_line_of_code_is_neither_blank_nor_comment_nor_docstring(tmp_path):
    text = '"""Module.\n\nMore."""\n\n# why\nX = """\ntext\n"""\n\n\ndef f():\n    """Text."""\n    return X  # why\n'
    read = project(tmp_path, core=text)
    assert house.figures(read)["lines of code"] == "5"
    assert house.package_weight(read)[:2] == ["13", "5"]


@pytest.mark.parametrize(
    ("body", "complexity"),
    [
        ("pass", 1),
        ("if a: pass\n elif b: pass\n else: pass", 3),
        ("x = a if b else c", 2),
        ("x = a and b and c", 3),
        ("for x in a: pass\n else: pass", 3),
        ("while a: pass", 2),
        ("try: pass\n except A: pass\n except B: pass\n else: pass", 4),
        ("x = [y for y in a if b if c]", 4),
        ("match a:\n  case 1: pass\n  case _: pass", 2),
        ("assert a", 2),
        ("with a: pass", 1),
        ("def g():\n  if a: pass", 2),
    ],
)
def test_complexity_is_one_and_one_for_each_decision(tmp_path, body, complexity):
    function = project(tmp_path, core=f"def f():\n {body}\n").modules[-1].functions()[0]
    assert house.complexity(function) == complexity


def test_a_fragment_opens_with_a_question_word_or_a_preposition(tmp_path):
    openings = ["Of a run.", "What is left", "whether it ends", "Without it.", "Read it.", "The one.", "Offer.", "`of`"]
    text = '"""How it works."""\n' + "".join(f'def f():\n    """{opening}"""\n' for opening in openings)
    read = project(tmp_path, core=text)
    assert house.fragments(read) == [
        "app/core.py:3: Of a run.",
        "app/core.py:5: What is left",
        "app/core.py:7: whether it ends",
        "app/core.py:9: Without it.",
    ]
    assert house.figures(read)["docstrings of classes and functions"] == "8"


def test_homonyms_are_names_in_several_places(tmp_path):
    read = projects(
        tmp_path,
        {
            "app/core.py": "class Job: ...\nclass Run: ...\nclass Run: ...\n",
            "app/__main__.py": "class Main:\n    class Job: ...\n",
            "tool/__main__.py": "\nclass Job: ...\n",
            "tool/core/text.py": "",
        },
    )
    assert house.class_homonyms(read) == {"Job": ["app/core.py:1", "tool/__main__.py:2"]}
    assert house.module_homonyms(read) == {"core": ["app/core.py", "tool/core"]}
    assert house.figures(read)["class names in several modules / these classes"] == "1 / 2"


def test_rooms_are_flat_modules_and_packages_of_two_levels(tmp_path):
    read = project(
        tmp_path,
        job="import os\nimport other.job\n",
        config="from app import job\n",
        schedulers_local="from app.job import Job\ndef f():\n    import app.config\n",
        schedulers_slurm_render="from .. import local\nfrom ..local import g\n",
        schedulers_slurm_deep_judge="from app.schedulers.slurm import render\nfrom ....job import Job\n",
    )
    rooms = house.read_rooms(read)
    assert rooms.package == "app"
    assert rooms.targets == {
        "app": set(),
        "app.job": set(),
        "app.config": {"app.job"},
        "app.schedulers": {"app.job", "app.config"},
        "app.schedulers.slurm": {"app.schedulers", "app.job"},
    }
    assert rooms.arrows == 5
    assert rooms.cycles == []
    assert rooms.floors == 4


def test_the_command_prints_a_table_the_homonyms_and_on_request_every_place(tmp_path, monkeypatch, capsys):
    first = tmp_path / "first"
    project(first, a="import app.b\nclass Job: ...\n", b="import app.a\nclass Job: ...\ndef told(): ...\n")
    second = tmp_path / "second"
    project(second, a="")
    monkeypatch.setattr(sys, "argv", ["house.py", str(first), str(second), "--places"])
    house.main()
    output = capsys.readouterr().out
    table, _, lists = output.partition("\n\n")
    assert [line.count("|") for line in table.splitlines()] == [4] * len(table.splitlines())
    assert table.splitlines()[0].split() == ["|", "|", "first", "|", "second", "|"]
    assert "Classes of first that share a name: 1\n- Job: app/a.py:2, app/b.py:2\n" in lists
    assert "Modules of second that share a name: none\n" in lists
    assert "Rooms that import one another: app.a, app.b\n" in lists
    assert "first, private words: 1\n- app/b.py:3: def told(): ...\n" in lists
