"""What else took the processors while the windows were measured: quotas, neighbours, ranks on one core.

The kernel's files are written as kernels show them; what this machine's own kernel can be made to do is done.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models import cgroups
from models.contention import TICK_S, ContentionWatch, join
from models.host import physical_cores
from tests.models.groups import real_quota, show
from tests.models.jobs import ENVIRON, PATIENCE_S, ROOT
from tests.waiting import until

# --- control groups ---------------------------------------------------------------------------------------------------

HALF, NONE = "50000 100000\n", "max 100000\n"


@pytest.mark.parametrize(
    ("path", "mounted", "files", "quota"),
    [
        ("/job/step", "/", {"job/cpu.max": "150000 100000\n", "job/step/cpu.max": HALF}, 0.5),
        ("/job/step", "/", {"job/cpu.max": HALF, "job/step/cpu.max": "150000 100000\n"}, 0.5),  # the tightest
        ("/job/step", "/", {"job/cpu.max": NONE, "job/step/cpu.max": NONE}, math.inf),
        ("/job/step", "/", {"job/cpu.max": "90000 100000\n", "job/step/cgroup.procs": ""}, 0.9),  # no controller below
        ("/", "/", {"cgroup.procs": ""}, math.inf),  # the root group, which has no quota
        ("/", "/", {"cpu.max": HALF}, 0.5),  # a container with a namespace of its own
        ("/docker/c1", "/docker/c1", {"cpu.max": HALF}, 0.5),  # and one without
        ("/../other", "/", {"cpu.max": HALF}, 0.5),  # moved outside of what the container sees
        ("/", "/../..", {"cpu.max": HALF}, None),  # mounted outside of the namespace
        ("/job", "/", {"job/cpu.max": "nonsense\n"}, None),
    ],
)
def test_the_tightest_quota_on_the_way_up_counts(
    path: str, mounted: str, files: dict[str, str], quota: float | None, tmp_path: Path
) -> None:
    assert cgroups.cpu_quota(show(tmp_path, path, files, mounted=mounted)) == quota


@pytest.mark.parametrize(("quota_us", "quota"), [("-1", math.inf), ("90000", 0.9)])
def test_a_quota_of_version_1(quota_us: str, quota: float, tmp_path: Path) -> None:
    files = {"cpu.cfs_quota_us": f"{quota_us}\n", "cpu.cfs_period_us": "100000\n"}
    own = {f"cpu,cpuacct/slurm/job/{name}": text for name, text in files.items()}
    stat = {"cpu,cpuacct/slurm/job/cpu.stat": "nr_periods 9\nnr_throttled 4\nthrottled_time 2500000000\n"}
    root = show(tmp_path, "/slurm/job", {**own, **stat}, version=1)
    assert cgroups.cpu_quota(root) == quota
    assert list(cgroups.throttling(root).values()) == [cgroups.Throttling(9, 4, 2.5)]


def test_without_control_groups_a_quota_is_not_known(tmp_path: Path) -> None:
    assert cgroups.cpu_quota(str(tmp_path)) is None
    assert cgroups.throttling(str(tmp_path)) == {}
    assert cgroups.memory_limit(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("version", "name", "unlimited"), [(2, "memory.max", "max"), (1, "memory.limit_in_bytes", "9223372036854771712")]
)
def test_the_jobs_memory_limit_stands_above_its_step(version: int, name: str, unlimited: str, tmp_path: Path) -> None:
    top = "memory/" if version == 1 else ""
    limits = {f"{top}job/{name}": "8000000000\n", f"{top}job/step/{name}": f"{unlimited}\n"}
    root = show(tmp_path, "/job/step", limits, version)
    assert cgroups.memory_limit(root) == 8_000_000_000


# --- two looks at one node --------------------------------------------------------------------------------------------


class Kernel:
    """The files of a node with `cores` cores, on which one rank and others compute."""

    def __init__(self, root: Path, cores: int) -> None:
        self.root, self.at_s, self.cores = root, 0.0, cores
        self.busy_s, self.own_s, self.waited_s = [0.0] * cores, 0.0, 0.0
        task = root / f"proc/{os.getpid()}/task/{os.getpid()}"
        task.mkdir(parents=True)
        self.schedstat, self.stat = task / "schedstat", root / f"proc/{os.getpid()}/stat"
        self.watch = ContentionWatch(str(root), now=lambda: self.at_s)
        self.write()

    def write(self) -> None:
        def line(name: str, busy_s: float) -> str:
            ticks = round(busy_s / TICK_S)
            return f"{name} {ticks} 0 0 {round(self.at_s / TICK_S)} 0 0 0 0 0 0\n"

        lines = [line("cpu ", sum(self.busy_s)), *(line(f"cpu{n}", busy_s) for n, busy_s in enumerate(self.busy_s))]
        (self.root / "proc/stat").write_text("".join(lines))
        own = round(self.own_s / TICK_S)
        self.stat.write_text(f"{os.getpid()} (a) b) R {'0 ' * 10}{own} 0 0 0 20 0 1 0 0\n")
        self.schedstat.write_text(f"{int(self.own_s * 1e9)} {int(self.waited_s * 1e9)} 7\n")

    def run(self, seconds: float, own: float, others: float, waited_s: float = 0.0) -> None:
        """Let time pass in which this rank uses so many cores and others so many, spread over all cores."""
        self.at_s += seconds
        self.own_s += own * seconds
        self.waited_s += waited_s
        self.busy_s = [busy_s + (own + others) * seconds / self.cores for busy_s in self.busy_s]
        self.write()

    def between(self, *run: float, **more: float) -> dict[str, Any]:
        self.watch.begin()
        self.run(*run, **more)
        self.watch.end()
        seen = self.watch.counted(threads=1, of_node=True)
        assert seen is not None
        return {**seen, "cores": [frozenset(range(self.cores))] * 2, "host": "n07", "node": "kernel"}


def test_others_are_what_the_node_did_without_the_ranks_of_this_job(tmp_path: Path) -> None:
    """Two ranks used .6 cores each; the first one's look at the node has both, and 1.3 cores of others."""
    first = Kernel(tmp_path / "first", cores=4).between(10.0, 0.6, 1.9, waited_s=4.0)
    second = {**Kernel(tmp_path / "second", cores=4).between(10.0, 0.6, 0.0, waited_s=3.0), "busy_s": {}}
    value, warnings = join([first, second], on_cpu=True)
    assert value is not None
    assert (value["neighbours_cores"], value["elsewhere_cores"]) == (pytest.approx(1.3), 0)
    assert value["used_cores"] == pytest.approx([0.6, 0.6, 0.6])
    assert value["waited_cores"] == pytest.approx([0.3, 0.35, 0.4])
    expected = "not alone: others used 1.3 of the 4 core(s) of this job on n07 while it was measured"
    assert warnings == [f"{expected}, and its threads waited 7.0 s for a core"]


def test_a_job_that_is_alone_is_not_warned_of(tmp_path: Path) -> None:
    value, warnings = join([Kernel(tmp_path, cores=4).between(10.0, 3.9, 0.05)], on_cpu=True)
    assert value is not None
    assert value["neighbours_cores"] == pytest.approx(0.05, abs=0.01)
    assert warnings == []


def test_others_on_cores_that_are_not_the_jobs_are_told_apart(tmp_path: Path) -> None:
    seen = {**Kernel(tmp_path, cores=4).between(10.0, 0.0, 4.0), "cores": [frozenset({2})] * 2, "used_s": 9.9}
    value, warnings = join([seen], on_cpu=True)
    assert value is not None
    assert (value["neighbours_cores"], value["elsewhere_cores"]) == (pytest.approx(0.01), pytest.approx(3.0))
    assert warnings == [
        "not alone: others used 3.0 of the 3 other core(s) of n07 while this job was measured: they share its memory "
        "and clock"
    ]
    assert join([seen], on_cpu=False).warnings == []  # a GPU does not mind


def test_where_the_kernel_does_not_tell_nothing_is_known_or_said(tmp_path: Path) -> None:
    watch = ContentionWatch(str(tmp_path), now=iter((0.0, 1.0)).__next__)
    watch.begin()
    watch.end()
    value, warnings = join([watch.counted(threads=1, of_node=True)], on_cpu=True)
    assert value is not None
    assert {key for key, known in value.items() if known is not None} == {"host", "pressure"}
    assert set(value["pressure"].values()) == {None}
    assert warnings == []
    unmeasured = ContentionWatch().counted(threads=1, of_node=True)
    assert join([unmeasured], on_cpu=True) == (None, [])


def test_time_for_which_processes_were_held_up_is_a_share(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, cores=2)
    file = tmp_path / "proc/pressure/memory"
    file.parent.mkdir()
    file.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 total=900000\n")
    kernel.watch.begin()
    kernel.run(10.0, 1.0, 0.0)
    file.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=6000000\nfull avg10=0.00 total=900000\n")
    kernel.watch.end()
    value, _ = join([kernel.watch.counted(threads=1, of_node=True)], on_cpu=True)
    assert value is not None
    assert value["pressure"] == {"cpu": None, "memory": 0.5, "io": None}


# --- ranks on one core, quotas ----------------------------------------------------------------------------------------


def rank(cores: set[int], threads: int = 1, later: set[int] | None = None, **more: Any) -> dict[str, Any]:
    """What a rank has seen on a node where nothing else happened."""
    seen = {"host": "n07", "node": "kernel", "elapsed_s": 10.0, "used_s": 1.0, "waited_s": None, "threads": threads}
    looks = {"cores": [frozenset(cores), frozenset(cores if later is None else later)], "quotas": [math.inf, math.inf]}
    return {**seen, **looks, "busy_s": {}, "stolen_s": None, "pressure_s": {}, "throttling": None, **more}


@pytest.mark.parametrize(
    ("ranks", "on_cpu", "said"),
    [
        ([{"cores": {0, 1}, "physical_cores": 2}], True, "1 thread(s) compute on n07, and the job may use 2 core(s)"),
        ([{"cores": {0, 1}, "physical_cores": 2}], False, None),  # a GPU computes
        ([{"cores": {0, 1}, "physical_cores": 1}], True, None),  # two threads of one core
        ([{"cores": {0, 1}, "physical_cores": None}], True, None),
        ([{"cores": {0, 1}, "physical_cores": 2, "quotas": [1.0, 1.0]}], True, None),
        ([{"cores": {0, 1, 2, 3}, "physical_cores": 4}] * 2, True, "2 thread(s) compute on n07"),
        ([{"cores": {0, 1}, "physical_cores": 2, "threads": 2}, {"cores": {2}, "physical_cores": 1}], True, None),
    ],
)
def test_cores_without_a_thread_are_named(ranks: list[dict[str, Any]], on_cpu: bool, said: str | None) -> None:
    warnings = join([rank(**of_rank) for of_rank in ranks], on_cpu=on_cpu).warnings
    idle = [text for text in warnings if text.startswith("idle cores: ")]
    assert len(idle) == (said is not None)
    if said:
        assert said in idle[0]


def test_logical_cores_are_counted_as_physical_ones(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    blocks = [f"processor : {n}\nphysical id : {n // 4}\ncore id : {n % 2}\n" for n in range(8)]
    (tmp_path / "proc/cpuinfo").write_text("\n".join(blocks))
    assert physical_cores(frozenset({0, 2}), str(tmp_path)) == 1
    assert physical_cores(frozenset(range(8)), str(tmp_path)) == 4
    assert physical_cores(frozenset({0}), str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([rank({0}), rank({1})], None),
        ([rank({0, 1}), rank({0, 1})], None),
        ([rank({0}), rank({0})], "ranks 0, 1 on n07: 2 thread(s) on 1 core(s) (0)"),
        ([rank({0, 1}, later={1}), rank({0, 1}, later={1})], "ranks 0, 1 on n07: 2 thread(s) on 1 core(s) (1)"),
        ([rank({0, 1}), rank({0, 1}), rank({1})], "ranks 0, 1, 2 on n07: 3 thread(s) on 2 core(s) (0, 1)"),
        ([rank({0, 1, 2, 3}), rank({3}), rank({3})], "ranks 1, 2 on n07: 2 thread(s) on 1 core(s) (3)"),
        ([rank({0, 1}, threads=4)], "rank 0 on n07: 4 thread(s) on 2 core(s) (0, 1)"),
        ([rank({0}), rank({0}, node="another kernel")], None),
        ([rank({0}), rank({0}, host="another container of it")], "ranks 0, 1 on n07: 2 thread(s) on 1 core(s) (0)"),
        ([rank(set()), rank(set())], None),  # not known
    ],
)
def test_ranks_that_share_too_few_cores_are_named(ranks: list[dict[str, Any]], expected: str | None) -> None:
    assert join(ranks, on_cpu=True).warnings == ([f"crowded: {expected}"] if expected else [])


def test_a_rank_that_its_quota_stopped_is_named() -> None:
    stopped = rank({0, 1}, quotas=[0.9, 0.9], throttling=cgroups.Throttling(480, 453, 12.3))
    value, warnings = join([rank({2}, throttling=cgroups.Throttling(480, 2, 0.1)), stopped], on_cpu=True)
    assert value is not None
    assert (value["throttled_periods"], value["periods"], value["throttled_s"]) == (453, 480, 12.3)
    expected = "throttled: a CPU quota of 0.9 of 2 core(s) stopped rank 1 on n07 in 453 of 480 periods"
    assert warnings == [f"{expected} while it was measured"]


@pytest.mark.slow
def test_a_process_that_was_stopped_in_the_windows_says_so() -> None:
    """As `scontrol suspend` stops it; what happens before and after the windows does not count."""
    program = (
        "import json, os, signal, sys\n"
        "from models.contention import ContentionWatch, join\n"
        "watch = ContentionWatch()\n"
        "os.kill(os.getpid(), signal.SIGCONT)\n"
        "watch.begin(); print('windows', flush=True); sys.stdin.readline(); watch.end()\n"
        "os.kill(os.getpid(), signal.SIGCONT)\n"
        "print(json.dumps(join([watch.counted(threads=1, of_node=True)], on_cpu=False).warnings))\n"
    )
    for stops in (0, 1):  # two that follow each other at once may be one to Python
        with subprocess.Popen(
            [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            for _ in range(stops):
                process.send_signal(signal.SIGSTOP)
                until(lambda: f"{process.pid} (python) T" in stat_of(process.pid), "it is stopped")
                process.send_signal(signal.SIGCONT)
                until(lambda: f"{process.pid} (python) T" not in stat_of(process.pid), "it goes on")
            process.stdin.write("\n")
            process.stdin.flush()
            warnings = [line for line in json.loads(process.stdout.readline()) if line.startswith("suspended: ")]
        assert [line.partition(" was ")[2] for line in warnings] == (
            [f"stopped and continued {stops} time(s) in the windows"] if stops else []
        )


def stat_of(process: int) -> str:
    """What the kernel says of it, with one name for every interpreter."""
    return re.sub(r"\(.*\)", "(python)", Path(f"/proc/{process}/stat").read_text())


@pytest.mark.parametrize(
    ("seen", "on_cpu", "is_said"),
    [
        ({"busy_s": {0: 1.0, 1: 1.0}, "stolen_s": 2.4}, True, True),
        ({"busy_s": {0: 1.0, 1: 1.0}, "stolen_s": 2.4}, False, False),  # a GPU computes
        ({"busy_s": {0: 1.0, 1: 1.0}, "stolen_s": 0.2}, True, False),
        ({"busy_s": {0: 1.0, 1: 1.0}, "stolen_s": None}, True, False),
        ({"busy_s": {}, "stolen_s": 2.4}, True, False),  # another rank looks at the node's cores
    ],
)
def test_time_that_a_hypervisor_gave_to_others(seen: dict[str, Any], on_cpu: bool, is_said: bool) -> None:
    warnings = join([rank({0, 1}), rank({0, 1}, **seen)], on_cpu=on_cpu).warnings
    assert ("a virtual machine: 12% of its processor time went to others while it ran" in warnings) == is_said


def test_a_quota_that_changed_is_said() -> None:
    (warning,) = join([rank({0, 1}, quotas=[math.inf, 1.0])], on_cpu=True).warnings
    assert warning == "the CPU quota changed while this job was measured: from none to 1 core(s)"


# --- this machine's own kernel ----------------------------------------------------------------------------------------

HOG = """
import time
while time.process_time() < 0.5:
    pass
print("done", flush=True)
input()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux")
def test_a_neighbour_that_comes_after_the_first_look_is_seen() -> None:
    watch = ContentionWatch()
    watch.begin()
    command = [sys.executable, "-c", HOG]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hog:
        assert hog.stdout
        assert hog.stdout.readline() == "done\n"
        watch.end()  # before the hog ends and is counted among our own processes
        hog.communicate("\n", timeout=PATIENCE_S)
    seen = watch.counted(threads=1, of_node=True)
    value, _ = join([seen], on_cpu=True)
    assert seen is not None
    assert value is not None
    assert value["neighbours_cores"] * seen["elapsed_s"] > 0.5 * 0.5


QUOTA = """
import json, os, sys, time
from models.accelerators.peaks import cpu_bound
from models.contention import ContentionWatch, join
from models.request import cores_of_rank
from models.world import World
watch = ContentionWatch()
own = os.open(sys.argv[1], os.O_WRONLY), os.open(sys.argv[2], os.O_WRONLY)
os.write(own[0], b"0")
watch.begin()
begin_s = time.process_time()
while time.process_time() < begin_s + 0.1:
    pass
watch.end()
cores, bound = cores_of_rank(World()), cpu_bound("fp32")
os.write(own[1], b"0")
seen = watch.counted(threads=1, of_node=True)
value, warnings = join([seen], on_cpu=True)
print(json.dumps([seen["quotas"], value, warnings, cores, bound]))
"""


@pytest.fixture(scope="module")
def limited() -> Iterator[list[Any]]:
    """What a process sees that burns processor time below a quota so small that it meets it on the busiest machine."""
    with real_quota(0.02) as procs:
        if procs is None:
            pytest.skip("this machine lets us make no control group with a quota")
        environ = {**ENVIRON, "PYTHONPATH": str(ROOT)}
        outside = procs.parents[2] / procs.name
        command = [sys.executable, "-c", QUOTA, str(procs), str(outside)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout)


@pytest.mark.slow
def test_a_real_quota_is_read_and_its_throttling_said(limited: list[Any]) -> None:
    quotas, value, warnings, _, _ = limited
    assert quotas == [0.02, 0.02]
    assert value["periods"] >= value["throttled_periods"] > 0
    assert any(text.startswith("throttled: a CPU quota of 0.02 of ") for text in warnings)


@pytest.mark.slow
def test_a_real_quota_makes_the_threads_and_the_bound_fewer(limited: list[Any]) -> None:
    from models.accelerators.peaks import cpu_bound

    *_, cores, bound = limited
    whole = cpu_bound("fp32")
    assert cores == 1
    assert (whole is None) == (bound is None)
    if whole and bound:
        assert bound <= 0.02 * whole * 1.001
