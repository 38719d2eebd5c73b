"""Change the product in 300 places, one at a time, and run the tests that execute each place: does one of them fail?

    python benchmarks/mutants.py map [FILE ...]    which tests execute which mutant: runs the tests of `make test` once
    python benchmarks/mutants.py run [MUTANT ...]  runs the tests of each mutant, or of those that contain MUTANT
    python benchmarks/mutants.py compare A B       prints the mutants whose outcome differs between two results of `run`

`--results DIR` (default build/mutants) gets map.jsonl, a line for each test file, and mutants.jsonl, a line for each
mutant. Both are continued: what stands there is not run again. Each worker changes a clone of HEAD of its own, so
commit first; a clone is repaired before it is used.

A mutant is drawn by its own text and the seed alone, so the same product code has the same mutants, whatever its tests
are. It is "killed" if a test fails, hangs or crashes, "survived", or "uncovered": no test executes it. The tests begin
with the cheapest file, those named like the module before others, and end when one fails or they have had BUDGET_S of
CPU time. Tests that need a real Slurm or sshd, or that do not pass without a mutant, are left out.
"""

import argparse
import ast
import collections
import contextlib
import copy
import ctypes
import hashlib
import importlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("harness", "platforms", "reporting", "models", "pipeline")
MARKS = "not nightly and not real_slurm and not real_ssh"
SEED, SAMPLE, WORKERS, BUDGET_S, PATIENCE_S = 26, 300, 2, 60, 120
LIBRARIES = ("torch", "numpy", "h5py", "kubernetes.client", "paramiko", "jinja2", "pydantic", "yaml", "requests")
PAIRS = ("Lt LtE", "Gt GtE", "Eq NotEq", "In NotIn", "Is IsNot", "And Or", "Add Sub", "Mult Div")
SWAPS = dict(item for pair in map(str.split, PAIRS) for item in (pair, pair[::-1]))
TEXTS = ast.JoinedStr | ast.List | ast.Constant
# no test can see these: annotations, decorators, and what only a type checker reads
UNSEEN = {"annotation", "returns", "decorator_list", "pattern", "ctx"}
UNSEEN_BLOCKS = ("TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'", "__all__")
# in any interpreter of a clone, `hit` notes which mutants a test executes
HITS = """import builtins, os, sys
def hit(mutant, getenv=os.getenv, open=open, path=sys.prefix + "/hits", seen=set()):
    test = getenv("MUTANT_TEST", "")
    if (test, mutant) not in seen:
        seen.add((test, mutant))
        with open(path, "a") as file:
            file.write(f"{mutant}\\t{test}\\n")
builtins.hit = hit
"""


def is_number(node):
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def swapped(node, place, sign):
    new = copy.deepcopy(node)
    if isinstance(node, ast.Compare):
        new.ops[place] = sign()
    else:
        new.op = sign()
    return new


def changes(node):
    """The mutants of one node, as kind and new node."""
    operands = [getattr(node, name, None) for name in ("left", "right", "value")]
    of_texts = any(isinstance(each, TEXTS) and not is_number(each) for each in operands)
    for place, op in enumerate(getattr(node, "ops", [getattr(node, "op", None)])):
        kind = type(op).__name__
        if kind in SWAPS and not (of_texts and isinstance(node, ast.BinOp | ast.AugAssign)):
            yield f"{kind} to {SWAPS[kind]}", swapped(node, place, getattr(ast, SWAPS[kind]))
    match node:
        case ast.UnaryOp(op=ast.Not()):
            yield "Not removed", node.operand
        case ast.Constant(value=bool()):
            yield f"{node.value} to {not node.value}", ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            new = type(node.value)(node.value * 1.5) if abs(node.value) >= 10 or node.value % 1 else node.value + 1
            yield f"{node.value} to {new}", ast.Constant(new)
        case ast.Return(value=ast.expr()) if ast.unparse(node.value) not in ("None", "False"):
            yield "Return of None", ast.Return(ast.Constant(None))
        case ast.Raise() | ast.Continue() | ast.Expr(value=ast.Call()):
            yield f"{type(getattr(node, 'value', node)).__name__} removed", ast.Pass()


def seen_nodes(node):
    """The nodes that a test can see: no annotations and decorators, and not what only a type checker reads."""
    match node:
        case ast.JoinedStr():
            return
        case ast.If(test=opening) | ast.Assign(targets=[opening]) if ast.unparse(opening) in UNSEEN_BLOCKS:
            return
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in UNSEEN:
                yield from seen_nodes(child)


def sample():
    """The mutants by name: file, place in bytes, whether it is a statement, text and new text, in the order drawn."""
    drawn = []
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        source, name, times = path.read_bytes(), path.relative_to(ROOT).as_posix(), collections.Counter()
        starts = [0, *(match.end() for match in re.finditer(rb"\n", source))]
        for node in seen_nodes(ast.parse(source)):
            for kind, new in changes(node):
                begin = starts[node.lineno - 1] + node.col_offset
                end = starts[node.end_lineno - 1] + node.end_col_offset
                text = source[begin:end]
                times[kind, text] += 1
                order = hashlib.sha256(f"{SEED} {name} {kind} {text!r} {times[kind, text]}".encode()).hexdigest()
                mutant = {"mutant": f"{name}:{node.lineno}:{node.col_offset + 1} {kind}", "order": order, "path": name}
                drawn.append(mutant | {"begin": begin, "end": end, "was": text, "new": new})
    drawn = sorted(drawn, key=lambda mutant: mutant["order"])[:SAMPLE]
    return {mutant["mutant"]: mutant for mutant in drawn}


def code_of(mutant):
    code = ast.unparse(mutant["new"]) + "\n" * mutant["was"].count(b"\n")  # the lines below keep their numbers
    return (code if isinstance(mutant["new"], ast.stmt) else f"({code})").encode()


def with_hits(source, mutants):
    """The source of a file in which the place of each mutant calls `hit` and does what it did."""
    texts = []
    for each in mutants:
        hit = f"getattr(__import__('builtins'), 'hit', {{}}.get)({each['mutant']!r})"
        opening, closing = (f"{hit}; ", "") if isinstance(each["new"], ast.stmt) else (f"({hit} or (", "))")
        texts.append((each["begin"], 1, -each["end"], opening))
        texts.append((each["end"], 0, -each["begin"], closing))
    for place, _, _, text in sorted(texts, reverse=True):  # of what begins at one place the longest is outside
        source = source[:place] + text.encode() + source[place:]
    return source


class Noting:
    """A plugin of pytest that runs the wanted tests, and notes which test runs, what it costs and how it ends."""

    def __init__(self, folder, wanted):
        self.folder, self.wanted, self.passed, self.failed = folder, wanted, {}, []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        for item in items:
            item.add_marker("slow")  # it may start interpreters
        if self.wanted:
            places = {name: place for place, name in enumerate(self.wanted)}
            items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        os.environ["MUTANT_TEST"] = item.nodeid
        before = sum(os.times()[:4])
        yield
        if item.nodeid in self.passed:
            self.passed[item.nodeid] = round(sum(os.times()[:4]) - before, 3)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """What a fixture of several tests executes counts for each test of the file."""
        test = os.environ["MUTANT_TEST"]
        os.environ["MUTANT_TEST"] = test if fixturedef.scope == "function" else ""
        value = yield
        os.environ["MUTANT_TEST"] = test
        return value

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)
            self.passed.pop(report.nodeid, None)
        elif report.passed and report.when == "call":
            self.passed[report.nodeid] = 0

    def pytest_collectreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_unconfigure(self):
        (self.folder / "answer").write_text(json.dumps([self.passed, self.failed]))


def run_tests(folder, files, wanted, *options):
    """The CPU seconds of the tests that passed, those that failed, and what was hit, after a run in a fork."""
    for name in ("answer", "hits"):
        (folder / name).write_text("")
    with tempfile.TemporaryDirectory(prefix="m", ignore_cleanup_errors=True) as temporary:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
            os.dup2(1, 2)
            fixed = ["-q", "-pno:cacheprovider", f"--basetemp={temporary}/t", "--timeout-method=signal", "-m", MARKS]
            os._exit(pytest.main([*fixed, *options, *files], plugins=[Noting(folder, wanted)]))
        end, code = time.monotonic() + (20 * BUDGET_S if wanted else 3600), None
        while code is None and time.monotonic() < end:
            time.sleep(0.02)
            ended, status = os.waitpid(child, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if ended else None
        while left := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            for pid in map(int, left):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    passed, failed = json.loads((folder / "answer").read_text() or "[{}, []]")
    if code not in (0, 5) and not failed:
        failed = ["no answer in time" if code is None else f"exit code {code}"]
    return passed, failed, [line.split("\t") for line in (folder / "hits").read_text().splitlines()]


def cloned(clone):
    """Make a clone of HEAD with an environment of its own, or repair it."""
    if not clone.exists():
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        subprocess.run(["cp", "-al", sys.prefix, clone / ".venv"], check=True)
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    for command in (["fetch", "-q"], ["reset", "-q", "--hard", head.strip()], ["clean", "-fdq"]):
        subprocess.run(["git", "-C", clone, *command], check=True)
    packages = Path(sysconfig.get_path("purelib").replace(sys.prefix, f"{clone}/.venv"))
    for path in packages.glob("*.pth"):
        text = path.read_text()
        path.unlink()  # it is a link to that of our own environment
        path.write_text(text.replace(f"{ROOT}\n", f"{clone}\n"))
    (packages / "mutant_hits.py").write_text(HITS)
    (packages / "mutant_hits.pth").write_text("import mutant_hits\n")
    return clone / ".venv/bin/python"


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path, line):
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def make_map(results, clone, words, number):
    """Run the test files one by one, with `hit` in all mutants' places."""
    mutants = sample()
    for name in {mutant["path"] for mutant in mutants.values()}:
        own = [mutant for mutant in mutants.values() if mutant["path"] == name]
        (clone / name).write_bytes(with_hits((ROOT / name).read_bytes(), own))
    known = [line["file"] for line in lines_of(results / "map.jsonl")]
    files = words or sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    for file in (file for file in files[number::WORKERS] if file not in known):
        passed, failed, noted = run_tests(clone / ".venv", [file], None, "--timeout=300")
        hits = collections.defaultdict(list)
        for mutant, test in noted:
            hits[mutant] += [test] if test in passed or not test else []
        append(results / "map.jsonl", {"file": file, "passed": passed, "failed": failed, "hits": hits})
        print(file, len(passed), "passed;", *failed, flush=True)


def tests_of(mutant, mapped, budget_s):
    """The tests of a mutant, file by file in their order: those that execute it, then those whose files do."""
    words, found = set(re.split(r"[/_.]", mutant["path"])), []
    for line in mapped:
        hits = line["hits"].get(mutant["mutant"], [])
        executing, of_file = [test for test in hits if test], list(line["passed"]) if "" in hits else []
        for whole, tests in ((False, executing), (True, of_file)):
            cost = sum(line["passed"][test] for test in tests)
            alike = len(words & set(re.split(r"[/_.]", line["file"])))
            found += [(whole, (cost + 0.5) / 3**alike, cost, line["file"], tests)] if tests else []
    found.sort()
    spent = itertools.accumulate(each[2] for each in found)
    return [(file, tests) for (*_, file, tests), until in zip(found, spent, strict=True) if until <= budget_s]


def run(results, clone, words, number, budget_s):
    """Run the tests of each mutant: those of three files first, which mostly end it."""
    mapped = lines_of(results / "map.jsonl")
    known = [line["mutant"] for line in lines_of(results / "mutants.jsonl") if line["outcome"] != "uncovered"]
    wanted = [each for name, each in sample().items() if any(word in name for word in words or [""])]
    for mutant in (mutant for mutant in wanted[number::WORKERS] if mutant["mutant"] not in known):
        source, file, failed = (ROOT / mutant["path"]).read_bytes(), clone / mutant["path"], []
        file.write_bytes(source[: mutant["begin"]] + code_of(mutant) + source[mutant["end"] :])
        os.utime(file, (int(mutant["order"][:7], 16),) * 2)  # Python compiles again what has another time
        tests, began = tests_of(mutant, mapped, budget_s), time.monotonic()
        for part in (tests[:3], tests[3:]):
            if part and not failed:
                names = [test for _, each in part for test in each]
                files = dict.fromkeys(file for file, _ in part)
                failed = run_tests(clone / ".venv", files, names, "-x", f"--timeout={PATIENCE_S}")[1]
        file.write_bytes(source)
        outcome = "killed" if failed else "survived" if tests else "uncovered"
        line = {"mutant": mutant["mutant"], "outcome": outcome, "by": failed[:1], "was": mutant["was"].decode()}
        line |= {"code": code_of(mutant).decode(), "seconds": round(time.monotonic() - began)}
        append(results / "mutants.jsonl", line)
        print(mutant["mutant"], outcome, *failed[:1], flush=True)


def compare(before, after):
    old, new = ({line["mutant"]: line["outcome"] for line in lines_of(Path(path))} for path in (before, after))
    for name in sorted(old | new):
        if old.get(name) != new.get(name):
            print(f"{name}: {old.get(name, 'not run')}, now {new.get(name, 'not run')}")
    print(dict(collections.Counter(old.values())), "now", dict(collections.Counter(new.values())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["map", "run", "compare"])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--results", type=Path, default=ROOT / "build/mutants")
    parser.add_argument(
        "--budget", type=int, default=BUDGET_S, help="CPU seconds of tests for each mutant (%(default)s)"
    )
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    results = options.results.absolute()
    clones = [results / f"clone{number}" for number in range(WORKERS)]
    if options.command == "compare":
        compare(*options.words)
    elif options.worker is None:
        results.mkdir(parents=True, exist_ok=True)
        command = [__file__, *sys.argv[1:], "--worker"]
        workers = [subprocess.Popen([cloned(clone), *command, str(number)]) for number, clone in enumerate(clones)]
        sys.exit(max(worker.wait() for worker in workers))
    else:
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: processes that lose their parent become ours
        for name in LIBRARIES:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        sys.path.remove(str(ROOT / "benchmarks"))
        os.chdir(clones[options.worker])
        if options.command == "map":
            make_map(results, Path.cwd(), options.words, options.worker)
        else:
            run(results, Path.cwd(), options.words, options.worker, options.budget)


if __name__ == "__main__":
    main()
