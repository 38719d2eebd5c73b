"""Measure how readable a project's source is: sizes, density, words, names and rooms. One column for each project.

    python benchmarks/house.py [FOLDER ...] [--places]

FOLDER is a checkout of this or of any other Python project (default: this checkout). Prints a Markdown table, then the
weight of each top-level package, then each name that several classes or modules share. `--places` also prints where
everything else stands that the table counts.

What is measured
- Source: the `.py` files of all top-level folders except NOT_SOURCE, without tests. A FOLDER that is itself a package
  is measured alone.
- Lines are physical lines. "/1000" means for each 1,000 lines of source. p95 is the value that 95 % do not exceed.
- Lines of code are those that hold code: no blank line, no comment, no docstring. Words of docs are what `wc -w` counts
  in the pages at the top and in `docs`, without CHANGELOG.md.
- A function's length runs from `def` to its last line, with its docstring and nested functions, without decorators.
- Complexity is cyclomatic. It counts what radon counts, nested functions included; B ends at 10.
- A parallel assignment assigns a tuple to a tuple of the same length, two or more: `a, b = x(), y()`.
- Comprehensions include generator expressions.
- A fragment is the docstring of a class or function that opens with one of FRAGMENT_OPENINGS instead of a subject or a
  verb. The rule is coarse: "After N seconds the job is lost." is a sentence and counts, too.
- Private words (PRIVATE_WORDS) count in code, comments and strings; `told_so` contains `told`.
- Arguments: all parameters of functions except `self`, `cls`, `*args` and `**kwargs`.
- Homonyms are top-level classes defined in several modules, and modules or packages with the same last name.

Rooms are those of the largest package. Each of its flat modules is a room; each of its packages is a room down to two
levels below it (`platforms/schedulers/slurm`), and deeper packages belong to the room around them. An arrow leads from
one room to another whose module it imports, anywhere in its code. A cycle is a group of rooms that import one another.
Floors are the rooms of the longest chain of arrows; a cycle is one floor.
"""

from __future__ import annotations

import argparse
import ast
import configparser
import io
import math
import re
import statistics
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

LONG_FUNCTION = 40  # lines
LONG_INIT = 40  # lines
LONG_CODE_LINE = 100  # characters
HIGHEST_B = 10  # of cyclomatic complexity
LONG_DOC_LINE = 120  # characters

NOT_SOURCE = "benchmarks build dev doc docs examples integration site test testing tests tools"
PRIVATE_WORDS = "anew anybody everybody nobody somebody told whoever whomever"
# question words, then prepositions and conjunctions
FRAGMENT_OPENINGS = (
    "how that what whatever when where wherever whether which who whoever whom whose why "
    "after as at before between by for from if in of on since than through to under unless until while with without"
)

NO_CODE = frozenset(
    [
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    ]
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file. `name` is dotted, `path` is relative to the folder that holds the top-level packages."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def place(self, line: int, label: str) -> str:
        return f"{self.path.as_posix()}:{line}: {label}"

    def functions(self) -> list[Function]:
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))

    def comments(self) -> int:
        return sum(token.type == tokenize.COMMENT for token in self.tokens)

    def code_lines(self) -> int:
        lines: set[int] = set()
        for token in self.tokens:
            if token.type not in NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in self.nodes:
            if (
                isinstance(node, Function | ast.ClassDef | ast.Module)
                and ast.get_docstring(node, clean=False) is not None
            ):
                docstring = node.body[0]
                assert docstring.end_lineno is not None
                lines.difference_update(range(docstring.lineno, docstring.end_lineno + 1))
        return len(lines)


@dataclass(frozen=True)
class Project:
    folder: Path
    modules: Sequence[Module]

    @property
    def lines(self) -> int:
        return sum(module.lines for module in self.modules)

    def count(self, *kinds: type[ast.AST]) -> int:
        return sum(isinstance(node, kinds) for module in self.modules for node in module.nodes)

    def per_1000(self, count: int) -> str:
        if self.lines == 0:
            return "-"
        return f"{1000 * count / self.lines:.1f}"


def read_project(folder: Path) -> Project:
    """Read all source files of a checkout, or of one package. Raises SystemExit if there are none."""
    folder = folder.resolve()
    modules = []
    for top in source_folders(folder):
        for path in sorted(top.rglob("*.py")):
            if is_source(path.relative_to(top.parent)):
                modules.append(read_module(path, top.parent))
    if not modules:
        raise SystemExit(
            f"{folder}: it holds no package and no folder with Python source; name a checkout or a package"
        )
    return Project(folder, modules)


def source_folders(folder: Path) -> list[Path]:
    """The folder itself if it is a package, else the folders in it, or in its `src`, that hold Python files."""
    if (folder / "__init__.py").exists():
        return [folder]
    if (folder / "src").is_dir():
        folder = folder / "src"
    tops = []
    for top in sorted(folder.glob("[!.]*/")):
        if top.name not in NOT_SOURCE.split() and any(top.glob("*.py")):
            tops.append(top)
    return tops


def is_source(path: Path) -> bool:
    name = path.name
    if name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py":
        return False
    return not {"tests", "test", "__pycache__"} & set(path.parts)


def read_module(path: Path, base: Path) -> Module:
    relative = path.relative_to(base)
    parts = relative.with_suffix("").parts
    if path.name == "__init__.py":
        parts = parts[:-1]
    return Module(".".join(parts), relative, path.read_text(encoding="utf-8"))


# --- sizes and density -----------------------------------------------------------------------------------------------


def distribution(values: Iterable[int]) -> str:
    """Median, 95th percentile and maximum."""
    ordered = sorted(values)
    if not ordered:
        return "-"
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return f"{statistics.median(ordered):g} / {p95} / {ordered[-1]}"


def length(function: Function) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def parallel_assignments(project: Project) -> int:
    count = 0
    for module in project.modules:
        for node in module.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                width = len(node.value.elts)
                same_width = [len(target.elts) == width for target in node.targets if isinstance(target, ast.Tuple)]
                count += width > 1 and any(same_width)
    return count


def annotated_arguments(project: Project) -> str:
    arguments = []
    for module in project.modules:
        for function in module.functions():
            signature = function.args
            named = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
            arguments += [argument for argument in named if argument.arg not in ("self", "cls")]
    if not arguments:
        return "-"
    annotated = sum(argument.annotation is not None for argument in arguments)
    return f"{100 * annotated / len(arguments):.4g} %"


def complexity(function: Function) -> int:
    return 1 + sum(decisions(node) for node in ast.walk(function))


def decisions(node: ast.AST) -> int:
    match node:
        case ast.If() | ast.IfExp() | ast.Assert():
            return 1
        case ast.For() | ast.AsyncFor() | ast.While():
            return 1 + bool(node.orelse)
        case ast.Try() | ast.TryStar():
            return len(node.handlers) + bool(node.orelse)
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.comprehension():
            return 1 + len(node.ifs)
        case ast.Match():
            return sum(ast.unparse(case.pattern) != "_" for case in node.cases)
        case _:
            return 0


# --- counted things, each with its place -----------------------------------------------------------------------------


def long_functions(project: Project) -> list[str]:
    return [
        module.place(function.lineno, f"{function.name}, {length(function)} lines")
        for module in project.modules
        for function in module.functions()
        if length(function) > LONG_FUNCTION
    ]


def complex_functions(project: Project) -> list[str]:
    return [
        module.place(function.lineno, f"{function.name}, complexity {complexity(function)}")
        for module in project.modules
        for function in module.functions()
        if complexity(function) > HIGHEST_B
    ]


def docstrings(project: Project) -> list[tuple[Module, int, str]]:
    """The docstrings of classes and functions: module, line and text of each."""
    docs = []
    for module in project.modules:
        for node in module.nodes:
            if isinstance(node, Function | ast.ClassDef):
                text = ast.get_docstring(node)
                if text:
                    docs.append((module, node.body[0].lineno, text))
    return docs


def fragments(project: Project) -> list[str]:
    places = []
    for module, line, text in docstrings(project):
        opening = re.match(r"[A-Za-z]+", text)
        if opening and opening[0].lower() in FRAGMENT_OPENINGS.split():
            places.append(module.place(line, text.splitlines()[0]))
    return places


def private_words(project: Project) -> list[str]:
    """Each occurrence: a line with two of the words is there twice."""
    pattern = re.compile(rf"(?<![a-z])({PRIVATE_WORDS.replace(' ', '|')})(?![a-z])", re.IGNORECASE)
    return [
        module.place(number, line.strip())
        for module in project.modules
        for number, line in enumerate(module.text.splitlines(), 1)
        for _ in pattern.findall(line)
    ]


def code_in_inits(project: Project) -> list[str]:
    """Every `__init__.py` that defines functions or classes and is long; a long list of imports is none."""
    places = []
    for module in project.modules:
        defines = any(isinstance(node, Function | ast.ClassDef) for node in module.tree.body)
        if module.is_package and defines and module.lines > LONG_INIT:
            places.append(module.place(1, f"{module.lines} lines"))
    return places


def class_homonyms(project: Project) -> dict[str, list[str]]:
    """Places of each class name that several modules define."""
    places_by_module: dict[str, dict[str, str]] = defaultdict(dict)
    for module in project.modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places_by_module[node.name][module.name] = f"{module.path.as_posix()}:{node.lineno}"
    places = {name: list(by_module.values()) for name, by_module in sorted(places_by_module.items())}
    return {name: several for name, several in places.items() if len(several) > 1}


def module_homonyms(project: Project) -> dict[str, list[str]]:
    """Paths of each name that several modules or packages have; `__main__` is not counted."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in project.modules:
        name = module.name.rpartition(".")[2]
        path = module.path.parent if module.is_package else module.path
        if name != "__main__":
            places[name].append(path.as_posix())
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


# --- rooms -----------------------------------------------------------------------------------------------------------


class Rooms(NamedTuple):
    """The rooms of one package. `targets` holds for each room those that it imports."""

    package: str
    targets: Mapping[str, set[str]]
    cycles: Sequence[tuple[str, ...]]
    floors: int

    @property
    def arrows(self) -> int:
        return sum(len(imported) for imported in self.targets.values())


def read_rooms(project: Project) -> Rooms:
    """The rooms of the largest package."""
    package = largest_package(project)
    modules = {module.name: module for module in project.modules if module.package == package}
    targets: dict[str, set[str]] = {room_of(module): set() for module in modules.values()}
    for module in modules.values():
        for imported in imported_modules(module, modules):
            if room_of(imported) != room_of(module):
                targets[room_of(module)].add(room_of(imported))
    groups = import_groups(targets)
    cycles = sorted({tuple(sorted(group)) for group in groups.values() if len(group) > 1})
    return Rooms(package, targets, cycles, floors(targets, groups))


def largest_package(project: Project) -> str:
    lines: dict[str, int] = defaultdict(int)
    for module in project.modules:
        lines[module.package] += module.lines
    return max(lines, key=lambda package: lines[package])


def room_of(module: Module) -> str:
    """The package that a module belongs to, two levels below the top at most, or a flat module itself."""
    parts = module.name.split(".")
    is_flat = len(parts) == 2
    if not module.is_package and not is_flat:
        parts.pop()
    return ".".join(parts[:3])


def imported_modules(module: Module, modules: Mapping[str, Module]) -> Iterator[Module]:
    """Those of `modules` that a module imports, or whose functions and classes it imports."""
    for name in imported_names(module):
        while name and name not in modules:
            name = name.rpartition(".")[0]
        if name:
            yield modules[name]


def imported_names(module: Module) -> Iterator[str]:
    """Absolute dotted names that a module imports, of modules or of what they define."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            source = anchor(module, node.level)
            if node.module:
                source.append(node.module)
            for alias in node.names:
                yield ".".join([*source, alias.name])


def anchor(module: Module, level: int) -> list[str]:
    """The package that an import with `level` leading dots starts from: none for an absolute import."""
    if level == 0:
        return []
    parts = module.name.split(".")
    steps_up = level - 1 if module.is_package else level
    return parts[: len(parts) - steps_up]


def import_groups(targets: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    """For each room all rooms that it reaches by arrows and that reach it; the room itself is one of them."""
    reached = {room: reachable(room, targets) for room in targets}
    groups = {}
    for room in targets:
        mutual = {other for other in reached[room] if room in reached[other]}
        groups[room] = frozenset({room, *mutual})
    return groups


def reachable(start: str, targets: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(targets[start])
    while waiting:
        room = waiting.pop()
        if room not in reached:
            reached.add(room)
            waiting.extend(targets[room])
    return reached


def floors(targets: Mapping[str, set[str]], groups: Mapping[str, frozenset[str]]) -> int:
    """The number of groups on the longest chain of arrows."""
    heights: dict[frozenset[str], int] = {}

    def height(group: frozenset[str]) -> int:
        if group not in heights:
            groups_below = {groups[target] for room in group for target in targets[room]} - {group}
            heights[group] = 1 + max((height(below) for below in groups_below), default=0)
        return heights[group]

    return max(height(group) for group in groups.values())


# --- contracts and docs ----------------------------------------------------------------------------------------------


def layer_rows(folder: Path) -> str:
    """Rows of the longest layer contract of import-linter, and of all of them; "-" without a contract."""
    contracts = [*ini_contracts(folder / "setup.cfg"), *ini_contracts(folder / ".importlinter")]
    contracts += toml_contracts(folder / "pyproject.toml")
    if not contracts:
        return "-"
    return f"{max(contracts)} / {sum(contracts)}"


def ini_contracts(path: Path) -> list[int]:
    config = configparser.ConfigParser(interpolation=None)
    config.read(path)
    contracts = [config[section] for section in config.sections() if section.startswith("importlinter:contract")]
    return [len(contract["layers"].strip().splitlines()) for contract in contracts if "layers" in contract]


def toml_contracts(path: Path) -> list[int]:
    if not path.exists():
        return []
    contracts = tomllib.loads(path.read_text()).get("tool", {}).get("importlinter", {}).get("contracts", [])
    return [len(contract["layers"]) for contract in contracts if "layers" in contract]


def doc_pages(folder: Path) -> list[Path]:
    return [*folder.glob("*.md"), *(folder / "docs").rglob("*.md")]


def doc_words(folder: Path) -> str:
    pages = [page for page in doc_pages(folder) if page.name != "CHANGELOG.md"]
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    return f"{len(pages)} / {words:,}"


def long_doc_lines(folder: Path) -> str:
    pages = doc_pages(folder)
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    return f"{sum(len(line) > LONG_DOC_LINE for line in lines)} / {len(lines):,}"


# --- the table -------------------------------------------------------------------------------------------------------


def listings(project: Project) -> dict[str, list[str]]:
    """What the table counts and `--places` shows."""
    return {
        f"functions longer than {LONG_FUNCTION} lines": long_functions(project),
        "functions above complexity B": complex_functions(project),
        "docstrings that open as fragments": fragments(project),
        "private words": private_words(project),
        f"`__init__.py` with code and more than {LONG_INIT} lines": code_in_inits(project),
    }


def figures(project: Project) -> dict[str, str]:
    """The rows of the table, in its order."""
    functions = [function for module in project.modules for function in module.functions()]
    comments = sum(module.comments() for module in project.modules)
    comprehensions = project.count(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    rooms = read_rooms(project)
    return {
        "source files / lines": f"{len(project.modules)} / {project.lines:,}",
        "lines of code": f"{sum(module.code_lines() for module in project.modules):,}",
        "lines of a module: median / p95 / max": distribution(module.lines for module in project.modules),
        "lines of a function: median / p95 / max": distribution(length(function) for function in functions),
        "functions above complexity B /1000": project.per_1000(len(complex_functions(project))),
        "comments /1000": project.per_1000(comments),
        "parallel assignments /1000": project.per_1000(parallel_assignments(project)),
        "conditional expressions /1000": project.per_1000(project.count(ast.IfExp)),
        "comprehensions /1000": project.per_1000(comprehensions),
        "arguments annotated": annotated_arguments(project),
        "docstrings of classes and functions": str(len(docstrings(project))),
        **{label: str(len(places)) for label, places in listings(project).items()},
        "class names in several modules / these classes": homonym_counts(class_homonyms(project)),
        "module names that occur more than once / these modules": homonym_counts(module_homonyms(project)),
        "rooms of the largest package": f"{rooms.package}: {len(rooms.targets)}",
        "arrows between rooms": str(rooms.arrows),
        "cycles of rooms": str(len(rooms.cycles)),
        "floors": str(rooms.floors),
        "rows of the longest layer contract / of all": layer_rows(project.folder),
        "pages of docs / their words": doc_words(project.folder),
        f"lines of docs longer than {LONG_DOC_LINE} characters / of all": long_doc_lines(project.folder),
    }


def homonym_counts(homonyms: Mapping[str, Sequence[str]]) -> str:
    return f"{len(homonyms)} / {sum(len(places) for places in homonyms.values())}"


def package_weight(package: Project) -> list[str]:
    code = sum(module.code_lines() for module in package.modules)
    long = sum(len(line) > LONG_CODE_LINE for module in package.modules for line in module.text.splitlines())
    return [
        f"{package.lines:,}",
        f"{code:,}",
        package.per_1000(package.count(ast.IfExp)),
        package.per_1000(package.count(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)),
        package.per_1000(long),
        package.per_1000(sum(module.comments() for module in package.modules)),
    ]


def print_packages(project: Project) -> None:
    modules_by_package: dict[str, list[Module]] = defaultdict(list)
    for module in project.modules:
        modules_by_package[module.package].append(module)
    rows = [
        [
            f"package of {project.folder.name}",
            "lines",
            "of code",
            "conditional expressions /1000",
            "comprehensions /1000",
            f"lines longer than {LONG_CODE_LINE} /1000",
            "comments /1000",
        ]
    ]
    for name, modules in sorted(modules_by_package.items()):
        rows.append([name, *package_weight(Project(project.folder, modules))])
    print()
    print_rows(rows)


def print_table(projects: Sequence[Project]) -> None:
    columns = [figures(project) for project in projects]
    rows = [["", *(project.folder.name for project in projects)]]
    rows += [[label, *(column[label] for column in columns)] for label in columns[0]]
    print_rows(rows)


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def print_homonyms(project: Project) -> None:
    for kind, homonyms in (("Classes", class_homonyms(project)), ("Modules", module_homonyms(project))):
        print(f"\n{kind} of {project.folder.name} that share a name: {len(homonyms) or 'none'}")
        for name, places in homonyms.items():
            print(f"- {name}: {', '.join(places)}")
    for cycle in read_rooms(project).cycles:
        print(f"\nRooms that import one another: {', '.join(cycle)}")


def print_places(project: Project) -> None:
    for label, places in listings(project).items():
        print(f"\n{project.folder.name}, {label}: {len(places)}")
        for place in places:
            print(f"- {place}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER", default=[ROOT])
    parser.add_argument("--places", action="store_true", help="also print where the counted things stand")
    options = parser.parse_args()
    projects = [read_project(folder) for folder in options.folders]
    print_table(projects)
    for project in projects:
        print_packages(project)
        print_homonyms(project)
        if options.places:
            print_places(project)


if __name__ == "__main__":
    main()
