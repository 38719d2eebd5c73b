"""Change the product in 300 places, one at a time, and run the tests that execute each place: does one of them fail?

    python benchmarks/mutants.py map [FILE ...]    which tests execute which mutant: runs the tests of `make test` once
    python benchmarks/mutants.py run [MUTANT ...]  runs the tests of each mutant (of those that contain MUTANT)
    python benchmarks/mutants.py compare A B       prints the mutants whose outcome differs between two results of `run`

`--results DIR` (default build/mutants) gets map.jsonl, a line for each test file, and mutants.jsonl, a line for each
mutant. Both are continued: what stands there is not run again. Each worker changes a clone of HEAD of its own.

A mutant is drawn by its own text and the seed alone, so the same product code has the same mutants, whatever its tests
are. It is "killed" if a test fails, hangs or crashes, "survived", or "uncovered": no test executes it. The tests begin
with the cheapest file, those named like the module before others, and end when one fails or BUDGET_S is used up. Tests
that need a real Slurm or sshd, or that do not pass without a mutant, are left out.
"""

import argparse
import ast
import collections
import copy
import contextlib
import ctypes
import hashlib
import importlib
import json
import math
import os
import queue
import re
import resource
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("harness", "platforms", "reporting", "models", "pipeline")
MARKS = "not nightly and not real_slurm and not real_ssh"
SEED, SAMPLE, WORKERS, BUDGET_S = 26, 300, 2, 60
LIBRARIES = ("torch", "numpy", "h5py", "kubernetes.client", "paramiko", "jinja2", "pydantic", "yaml", "requests")
PAIRS = ("Lt LtE", "Gt GtE", "Eq NotEq", "In NotIn", "Is IsNot", "And Or", "Add Sub", "Mult Div")
SWAPS = dict(item for pair in map(str.split, PAIRS) for item in (pair, pair[::-1]))
# no test can see these: annotations, decorators, and texts
UNSEEN = {"annotation", "returns", "decorator_list", "pattern", "ctx"}
UNSEEN_BLOCKS = ("TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'", "__all__")
# in any interpreter of a clone, `hit` notes which mutants a test executes; `context` is that test
HITS = """import builtins, os, sys, time
folder, seen, context = sys.prefix + "/hits/", set(), ["", 0]
def hit(number, now=time.monotonic, open=os.open, write=os.write, close=os.close, read=os.read):
    try:
        if now() > context[1]:
            file = open(folder + "context", os.O_RDONLY)
            context[:] = read(file, 9999).decode(), now() + 0.05
            close(file)
        if (context[0], number) not in seen:
            seen.add((context[0], number))
            file = open(folder + "hits", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            write(file, f"{number}\\t{context[0]}\\n".encode())
            close(file)
    except OSError:
        pass
builtins.hit = hit
"""


def changes(node):
    """The mutants of one node, as kind and new node."""
    operands = [getattr(node, name, None) for name in ("left", "right", "value")]
    of_texts = any(isinstance(each, ast.JoinedStr | ast.List | ast.Constant) and not is_number(each) for each in operands)
    for place, op in enumerate(getattr(node, "ops", [getattr(node, "op", None)])):
        kind = type(op).__name__
        if kind in SWAPS and not (of_texts and isinstance(node, ast.BinOp | ast.AugAssign)):
            new, other = copy.deepcopy(node), getattr(ast, SWAPS[kind])()
            if isinstance(node, ast.Compare):
                new.ops[place] = other
            else:
                new.op = other
            yield f"{kind} to {SWAPS[kind]}", new
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "Not removed", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} to {not node.value}", ast.Constant(not node.value)
    elif is_number(node):
        new = type(node.value)(node.value * 1.5) if abs(node.value) >= 10 or node.value % 1 else node.value + 1
        yield f"{node.value} to {new}", ast.Constant(new)
    elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) not in ("None", "False"):
        yield "Return of None", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Raise | ast.Continue) or isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield f"{type(getattr(node, 'value', node)).__name__} removed", ast.Pass()


def is_number(node):
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def seen_nodes(node, in_function=False):
    """The nodes that a test can see, and whether they lie in a function."""
    opening = node.test if isinstance(node, ast.If) else node.targets[0] if isinstance(node, ast.Assign) else node
    if isinstance(node, ast.JoinedStr) or (opening is not node and ast.unparse(opening) in UNSEEN_BLOCKS):
        return
    yield node, in_function
    for name, value in ast.iter_fields(node):
        inside = in_function or (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and name == "body")
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in UNSEEN:
                yield from seen_nodes(child, inside)


def sample():
    """The mutants: name -> its file, its place there in bytes, its text, and whether it is a statement, or at import."""
    drawn = []
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        source, name, times = path.read_bytes(), path.relative_to(ROOT).as_posix(), collections.Counter()
        starts = [0, *(match.end() for match in re.finditer(rb"\n", source))]
        for node, in_function in seen_nodes(ast.parse(source)):
            for kind, new in changes(node):
                begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
                text, statement = source[begin:end], isinstance(node, ast.stmt)
                times[kind, text] += 1
                order = hashlib.sha256(f"{SEED} {name} {kind} {text!r} {times[kind, text]}".encode()).hexdigest()
                mutant = {"path": name, "begin": begin, "end": end, "statement": statement, "at_import": not in_function}
                drawn.append((order, f"{name}:{node.lineno}:{node.col_offset + 1} {kind}", new, text, mutant))
    mutants = {}
    for number, (_, name, new, text, mutant) in enumerate(sorted(drawn, key=lambda each: each[0])[:SAMPLE]):
        code = ast.unparse(new) + "\n" * text.count(b"\n")  # the lines below keep their numbers
        new_text = code if mutant["statement"] else f"({code})"
        mutants[name] = mutant | {"number": number, "was": text.decode(), "code": new_text}
    return mutants


# --- in a worker: a process of a clone's own environment ---


def with_hits(source, mutants):
    """The source of a file in which every mutant's place calls `hit` and does what it did."""
    hit = "getattr(__import__('builtins'), 'hit', {{}}.get)({})".format
    texts = []
    for each in mutants:
        opening, closing = ("{}; ", "") if each["statement"] else ("({} or (", "))")
        texts.append((each["begin"], 1, -each["end"], opening.format(hit(each["number"]))))
        texts.append((each["end"], 0, -each["begin"], closing))
    for place, _, _, text in sorted(texts, reverse=True):
        source = source[:place] + text.encode() + source[place:]
    return source


class Noting:
    """A plugin of pytest that runs the wanted tests, and notes which test runs, what it costs and how it ends."""

    def __init__(self, folder, wanted):
        self.folder, self.wanted, self.passed, self.failed = folder, wanted, {}, []

    def now(self, test):
        (self.folder / "hits/context").write_text(test)
        if "mutant_hits" in sys.modules:
            sys.modules["mutant_hits"].context[:] = test, math.inf

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        if self.wanted:
            places = {name: place for place, name in enumerate(self.wanted)}
            items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.now(item.nodeid)
        cpu, wall = sum(os.times()[:4]), time.monotonic()
        yield
        if item.nodeid in self.passed:
            self.passed[item.nodeid] = round(sum(os.times()[:4]) - cpu, 3), round(time.monotonic() - wall, 3)
        self.now("")
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """What a fixture of several tests executes counts for each test of the file."""
        if fixturedef.scope != "function":
            self.now("")
        value = yield
        self.now(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])
        return value

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)
            self.passed.pop(report.nodeid, None)
        elif report.passed and report.when == "call":
            self.passed[report.nodeid] = 0, 0

    def pytest_collectreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_unconfigure(self):
        (self.folder / "answer").write_text(json.dumps({"passed": self.passed, "failed": self.failed}))


def work(clone):
    """Answer each line of stdin, a task: what its tests did in a fork of this process, which has the libraries."""
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: processes that lose their parent become ours
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.path.remove(str(Path(__file__).parent))
    os.chdir(clone)
    folder = clone / ".venv"
    for task in map(json.loads, sys.stdin):
        for name in ("answer", "hits/hits"):
            (folder / name).unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="m", ignore_cleanup_errors=True) as temporary:
            options = ["-q", "-pno:cacheprovider", f"--basetemp={temporary}/t", "-m", MARKS, *task["options"]]
            child = os.fork()
            if child == 0:
                os.setpgid(0, 0)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
                os.dup2(1, 2)
                resource.setrlimit(resource.RLIMIT_CPU, (task["cpu_s"], task["cpu_s"]))
                os._exit(pytest.main([*options, *task["files"]], plugins=[Noting(folder, task["tests"])]))
            end, code = time.monotonic() + task["wall_s"], None
            while code is None and time.monotonic() < end:
                time.sleep(0.02)
                ended, status = os.waitpid(child, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status) if ended else None
            while left := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                for pid in map(int, left):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        answer = {"passed": {}, "failed": []}
        if (folder / "answer").exists():
            answer = json.loads((folder / "answer").read_text())
        if code not in (0, 5) and not answer["failed"]:
            answer["failed"] = [f"exit {code} in {(folder / 'hits/context').read_text() or 'collection'}"]
        lines = (folder / "hits/hits").read_text().splitlines() if (folder / "hits/hits").exists() else []
        print(json.dumps(answer | {"hits": lines}), flush=True)


# --- outside: clones, their workers, and what these are asked ---


def cloned(clone, sources):
    """A clone of HEAD with an environment of its own, in which some files are others."""
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
    (clone / ".venv/hits").mkdir(exist_ok=True)
    for name, source in sources.items():
        (clone / name).write_bytes(source)


def in_workers(results, sources, jobs, do):
    """Do each job with one of the workers: `do(job, clone, ask)`, where `ask(task)` is the worker's answer."""
    waiting = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)

    def serve(clone):
        cloned(clone, sources)
        command = [clone / ".venv/bin/python", __file__, "work", clone]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:

            def ask(files, tests, *options, cpu_s, wall_s):
                task = {"files": files, "tests": tests, "options": options, "cpu_s": cpu_s, "wall_s": wall_s}
                print(json.dumps(task), file=worker.stdin, flush=True)
                return json.loads(worker.stdout.readline())

            with contextlib.suppress(queue.Empty):
                while True:
                    do(waiting.get_nowait(), clone, ask)
            worker.stdin.close()

    threads = [threading.Thread(target=serve, args=[results / f"clone{number}"]) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path, line):
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(*(line[key] for key in ("file", "seconds", "mutant", "outcome", "by") if key in line), flush=True)


def make_map(results, files):
    mutants, sources = sample(), {}
    for name in {mutant["path"] for mutant in mutants.values()}:
        own = [mutant for mutant in mutants.values() if mutant["path"] == name]
        sources[name] = with_hits((ROOT / name).read_bytes(), own)
    known = {line["file"] for line in lines_of(results / "map.jsonl")}
    files = files or sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))

    def do(file, clone, ask):
        load, began = max(1, os.getloadavg()[0] / os.cpu_count()), time.monotonic()
        answer = ask([file], None, "--timeout=300", "--timeout-method=signal", cpu_s=3600, wall_s=3600)
        hits, names = collections.defaultdict(list), list(mutants)
        for number, test in (line.split("\t") for line in answer["hits"]):
            hits[names[int(number)]] += [test] if test in answer["passed"] or not test else []
        passed = {name: round(max(cpu, wall / load), 3) for name, (cpu, wall) in answer["passed"].items()}
        line = {"file": file, "seconds": round(time.monotonic() - began), "passed": passed, "hits": hits}
        append(results / "map.jsonl", line | {"failed": answer["failed"]})

    in_workers(results, sources, [file for file in files if file not in known], do)


def tests_of(name, mutant, mapped):
    """The tests of a mutant, file by file in their order: those that execute it, then those whose files do."""
    words, found = set(re.split(r"[/_.]", mutant["path"])), []
    for line in mapped:
        for named, tests in ((0, line["hits"].get(name, [])), (1, line["passed"])):
            tests = [test for test in tests if test]
            if tests and (not named or "" in line["hits"].get(name, [])):
                cost = sum(line["passed"][test] for test in tests)
                alike = len(words & set(re.split(r"[/_.]", line["file"])))
                found.append((named, (cost + 0.5) / 3**alike, cost, line["file"], tests))
    spent = 0
    for _, _, cost, file, tests in sorted(found):
        spent += cost
        if spent < BUDGET_S or spent == cost:
            yield file, tests


def run(results, wanted):
    mutants, mapped = sample(), lines_of(results / "map.jsonl")
    known = {line["mutant"] for line in lines_of(results / "mutants.jsonl")}
    chosen = [name for name in mutants if name not in known and (not wanted or any(each in name for each in wanted))]

    def do(name, clone, ask):
        mutant, began = mutants[name], time.monotonic()
        source, file = (ROOT / mutant["path"]).read_bytes(), clone / mutant["path"]
        file.write_bytes(source[: mutant["begin"]] + mutant["code"].encode() + source[mutant["end"] :])
        os.utime(file, (10**9 + mutant["number"],) * 2)  # Python compiles anew what has another time or size
        tests, failed = list(tests_of(name, mutant, mapped)), []
        for part in (tests[:3], tests[3:]):
            if part and not failed:
                limit = ("-x", "--timeout=120", "--timeout-method=signal")
                names = [test for _, each in part for test in each]
                files = list(dict.fromkeys(file for file, _ in part))
                failed = ask(files, names, *limit, cpu_s=2 * BUDGET_S, wall_s=20 * BUDGET_S)["failed"]
        file.write_bytes(source)
        outcome = "killed" if failed else "survived" if tests else "uncovered"
        line = {"mutant": name, "outcome": outcome, "by": failed[0] if failed else None, "tests": sum(len(each) for _, each in tests)}
        seconds = round(time.monotonic() - began)
        append(results / "mutants.jsonl", line | {"seconds": seconds, "was": mutant["was"], "code": mutant["code"]})

    in_workers(results, {}, chosen, do)


def compare(before, after):
    outcomes = [{line["mutant"]: line["outcome"] for line in lines_of(Path(path))} for path in (before, after)]
    for name in sorted(set(outcomes[0]) | set(outcomes[1])):
        old, new = (each.get(name, "not run") for each in outcomes)
        if old != new:
            print(f"{name}: {old}, now {new}")
    print(*(dict(collections.Counter(each.values())) for each in outcomes), sep=", now ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["map", "run", "compare", "work"])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--results", type=Path, default=ROOT / "build/mutants")
    options = parser.parse_args()
    results = options.results.absolute()
    results.mkdir(parents=True, exist_ok=True)
    if options.command == "work":
        work(Path(options.words[0]))
    elif options.command == "compare":
        compare(*options.words)
    else:
        (make_map if options.command == "map" else run)(results, options.words)


if __name__ == "__main__":
    main()
