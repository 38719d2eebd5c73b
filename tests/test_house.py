"""The rules of the house that import-linter cannot see: which file imports what, and what the docs promise."""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from pathlib import Path

import pytest

from platforms.commands import prepare

ROOT = Path(__file__).resolve().parents[1]
OURS = ("harness", "platforms", "models", "pipeline", "reporting")


def imports(path: Path) -> set[str]:
    """Dotted names that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def tops(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)}


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_fixtures_are_three_and_nothing_else_is_beside_them():
    tree = ast.parse((ROOT / "harness/fixtures.py").read_text())
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] == ["platform", "run", "record"]
    assert not [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert tops(ROOT / "harness/fixtures.py") <= {"__future__", "pytest", "harness", "platforms"}


def test_conftest_holds_the_three_fixtures_and_nothing_else():
    tree = ast.parse((ROOT / "conftest.py").read_text())
    imported = [name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names]
    assert sorted(imported) == ["platform", "record", "run"]
    assert tops(ROOT / "conftest.py") == {"harness"}
    assert not [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


@pytest.mark.parametrize("path", sorted(ROOT.glob("test_*.py")), ids=lambda path: path.name)
def test_benchmarks_import_nothing_of_ours_and_stay_short(path):
    assert tops(path) <= {"__future__", "pytest", "math"}
    assert len(path.read_text().splitlines()) <= 40
    assert not re.search(r"\bif .*platform", path.read_text())


@pytest.mark.slow
def test_only_the_harness_imports_pytest():
    assert [
        path
        for path in python_files("platforms", "models", "pipeline", "reporting")
        if "pytest" in path.read_text() and tops(path) & {"pytest", "_pytest", "pytest_benchmark"}
    ] == []


def test_the_two_sides_meet_in_one_test_only():
    of_each = [rf"^\s*(from|import) {side}\b" for side in ("models", "platforms")]  # to parse few files only
    both = [
        path.relative_to(ROOT).as_posix()
        for path in python_files(*OURS, "tests")
        if all(re.search(pattern, path.read_text(), re.MULTILINE) for pattern in of_each)
        and {"models", "platforms"} <= tops(path)
    ]
    assert both == ["tests/test_wire.py"]


def test_the_files_that_travel_need_the_standard_library_only():
    travelling = ("models/meter.py", "platforms/schedulers/supervisor.py", "platforms/commands/doctor/node_report.py")
    for name in travelling:
        foreign = tops(ROOT / name) - set(sys.stdlib_module_names)
        assert not foreign, f"{name} imports {foreign}"


def test_no_modules_import_each_other_in_a_circle():
    """Late imports count, too; a module may use the package that it is in."""
    grimp = pytest.importorskip("grimp")
    packages = ("harness", "platforms", "reporting", "models", "pipeline")
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
    imported = {
        module: {one for one in graph.find_modules_directly_imported_by(module) if not module.startswith(f"{one}.")}
        for module in graph.modules
    }
    graphlib.TopologicalSorter(imported).prepare()  # CycleError names the circle


def test_job_py_imports_nothing_of_ours():
    assert tops(ROOT / "platforms/job.py") <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("folder", ["schedulers", "transports", "rundir", "results", "runner"])
def test_a_program_that_a_thread_may_start_is_given_an_environment(folder: str) -> None:
    """Pytest changes ours meanwhile (platforms/environ.py). The supervisor is a process of its own."""
    for path in (ROOT / "platforms" / folder).rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("subprocess.run", "subprocess.Popen"):
                assert "env" in [keyword.arg for keyword in call.keywords], f"{path}:{call.lineno}"


READMES = [
    *(ROOT / "tests").rglob("README.md"),
    ROOT / "environments" / "README.md",
    ROOT / "benchmarks" / "measured.md",
    ROOT / "catalogue" / "README.md",
]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *READMES])


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_files_that_run_first_exist():
    tree = ast.parse((ROOT / "tests/conftest.py").read_text())
    (names,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "LONGEST"]
    assert [name for name in ast.literal_eval(names) if not (ROOT / "tests" / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_in_the_docs_exist(page):
    missing = []
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        if "://" in target:
            continue
        linked = page.parent / target if target else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            missing.append(f"{target}#{anchor}")
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_named_in_the_docs_exist(page):
    folders = "platforms|models|harness|pipeline|reporting|tests|benchmarks|slurm_templates|k8s_templates"
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_the_docs_outside_of_tables_and_code_are_at_most_120_characters(page):
    prose = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), page.read_text(), flags=re.DOTALL | re.M)
    long = [
        f"{page.relative_to(ROOT)}:{number}: {len(line)} characters"
        for number, line in enumerate(prose.splitlines(), 1)
        if len(line) > 120 and not line.startswith(("|", "    "))
    ]
    assert long == []


def test_rooms_and_files_named_in_the_house_exist():
    text = (ROOT / "docs/house.md").read_text()
    rooms = text.partition("```")[2].partition("```")[0]
    names = re.findall(r"^([\w./*]+)", rooms, re.MULTILINE)
    names += [name for name in re.findall(r"`([\w./]+)`", text) if "/" in name and "<" not in name]
    missing = [name for name in names if not list(ROOT.glob(name.rstrip("/")))]
    assert set(missing) <= {"site/"}  # a clone has none


def test_every_platform_has_exactly_one_environment():
    """The first line of a list of environments/ names its platforms: a new one is added there."""
    lists = [ROOT / "environments" / "constraints.txt", *(ROOT / "environments").glob("*/requirements.txt")]
    named = [name for path in lists for name in prepare.platforms_of(path)]
    assert sorted(named) == sorted(path.stem for path in (ROOT / "platforms").glob("*.yaml"))


def unguarded(source: str) -> list[int]:
    """The lines that read a key, or unpack what was found, without a sentence for the case that it is not there."""

    def unpacked(target: ast.expr, value: ast.expr | None) -> bool:
        if not isinstance(target, ast.Tuple):
            return False
        if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
            return any(map(unpacked, target.elts, value.elts))
        return not (isinstance(value, ast.Call) and ast.unparse(value.func).startswith("tools."))

    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            key, of = node.slice, node.value
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and not ast.unparse(of).isupper():
                lines.append(node.lineno)
        elif isinstance(node, ast.Assign) and any(unpacked(target, node.value) for target in node.targets):
            lines.append(node.lineno)
    return sorted(lines)


@pytest.mark.parametrize("path", sorted((ROOT / "catalogue").glob("*.py")), ids=lambda path: path.name)
def test_values_of_others_are_read_by_a_helper_that_says_what_is_missing(path):
    lines = unguarded(path.read_text())
    assert not lines, f"{path.name}: lines {lines}: use field, one_number or numbers of platforms.results"


def test_only_what_may_be_missing_counts_as_unguarded():
    seen = 'of["key"]\n(one,) = numbers(log, x)\n((a, b),) = found\n(a,), (b,) = numbers(x), numbers(y)\nx, y = of()\n'
    assert unguarded(seen) == [1, 2, 3, 4, 5]
    assert unguarded('a, b = 1, 2\nname, size = tools.size_of()\nd["key"] = 3\nUNITS["s"]\nrows[0]\n') == []
