"""The tests of catalogue/, with stand-ins that print what tools printed (tests/catalogue/), and with planted faults.

The script of a job runs for real, in sh; the stand-ins of its tools are first on PATH. All was recorded with the suite,
but for GPUs on two nodes: nccl.txt (some of its rows) is of github.com/lessizzmore/create-a3mega-ztan-fork at 02dd8f4,
nccl_infiniband.txt of github.com/NVIDIA/nccl, issue 1453, and nccl_tcp.txt of github.com/NVIDIA/nccl-tests, issue 284.

Nor is what language models print. torchtitan.txt (some of its lines, which lack a few characters there, too) is of
github.com/datacrunch-research/benchmarks, docs/README.md at 47c1997: Llama 3.1 8B on eight H200, February 2025, before
0.1.0. megatron.txt (some lines) is of someone's notes on Megatron-LM, core 0.12, of April 2025, in a public repository
whose name is not known here. vllm.txt and vllm_failed.txt, of vLLM 0.25.1, are of github.com/er0080/vllm-benchmarking,
packages/api/tests/fixtures/vllm_sweep_v0.25.1 at 57cb02c and packages/protocol/tests/fixtures at c7b7c1e.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalogue import (
    test_dlio,
    test_fio,
    test_gloo,
    test_hpl,
    test_ior,
    test_megatron,
    test_mpi,
    test_nccl,
    test_nvbandwidth,
    test_osu,
    test_stream,
    test_torchtitan,
    test_user_path,
    test_vet,
    test_vllm,
)
from platforms.job import Run, State, Status
from tests.harness.conftest import ROOT, Project
from tests.harness.conftest import nursery as nursery
from tests.harness.conftest import project as project

resnet50 = functools.update_wrapper(functools.partial(test_dlio.test_dlio, workload="resnet50"), test_dlio.test_dlio)
nccl_test = functools.update_wrapper(
    functools.partial(test_nccl.test_nccl, collective="all_reduce"), test_nccl.test_nccl
)
RECORDED = Path(__file__).parent / "catalogue"
LSCPU = 'case $1 in -p*) echo "0,0"; echo "1,0" ;; *) echo "ALL-SIZE"; echo " 33554432" ;; esac'
# Answers for a pod's group of processes.
CAT = f'case $1 in /sys/*) echo "${{QUOTA:-max 100000}}" ;; *) exec {shutil.which("cat")} "$@" ;; esac'
# Writes the file that fio would have written: from /dev/urandom, or zeros.
FIO = """
for word; do case $word in --directory=*) folder=${word#*=} ;; esac; done
head -c 1M %s > "$folder/data"
cat "$RECORDED/fio.txt"
"""
# As gcc: makes a program that prints the recording.
GCC = (
    'while [ "$1" != -o ]; do shift; done; printf "#!/bin/sh\\ncat %s/stream.txt\\n" "$RECORDED" > "$2"; chmod +x "$2"'
)
NETPIPE = """
for word; do case $word in -i) cat "$RECORDED/netpipe.txt" ;; esac; done
for word; do last=$word; done
[ "$last" = /dev/null ] || cat "$RECORDED/netpipe_results.txt" > "$last"
"""

OSU = 'case $* in *osu_allreduce*-c*) echo "$*" > "$RECORDED/words"; cat "$RECORDED/osu.txt" ;; esac'

# Writes the data that IOR would have written, and as its summary all that was in the log.
IOR = """
for word; do [ "${last:-}" != -o ] || data=$word; last=$word; done
case "$*" in
*hostname*) printf 'a rank is on <%%s>\\n' node-1 node-1 node-2 node-2 ;;
*mdtest*) echo "$*" > "$RECORDED/words"; cat "$RECORDED/mdtest.txt" ;;
*) head -c 1M %s > "$data.00000000"; cp "$RECORDED/ior.txt" "${data%%/*}/summary" ;;
esac
"""

# Makes data of the recorded size, and prints the recorded log of the training as its summary.
DLIO = """
for word; do case $word in ++workload.output.folder=*) out=${word#*=} ;; esac; done
case "$*" in
*hostname*) printf 'a rank is on <%s>\\n' node-1 node-1 ;;
*train=False) mkdir -p "$out" "${out%/*}/data/train"; truncate -s 1715931648 "${out%/*}/data/train/file" ;;
*train=True) echo "$*" > "$RECORDED/words"; cp "$RECORDED/dlio.txt" "$out/summary.json" ;;
esac
"""


# Writes where NCCL_DEBUG_FILE says, in which NCCL puts the host's name for %h and the process for %p.
NCCL = 'cat "$RECORDED/nccl.txt"; cat "$RECORDED/nccl_network.txt" > "${NCCL_DEBUG_FILE%%%*}n01.4711"'

# A server that runs until it is ended, and its client.
VLLM = """
[ "$1" != serve ] || { echo "$*" > "$RECORDED/words"; touch "$RECORDED/up"; exec sleep 60; }
for word; do [ "${last:-}" != --result-dir ] || cp "$RECORDED/vllm.txt" "$word/result.json"; last=$word; done
"""


def ranks_on(prefix: str, *nodes: str, banner: str = "") -> str:
    """Shell text by which mpirun answers on which nodes its ranks are, each line behind a prefix with its rank."""
    lines = "".join(f"{prefix % rank if prefix else ''}a rank is on <{node}>\\n" for rank, node in enumerate(nodes))
    return f"case $* in *hostname*) printf '{banner}{lines}' ;; esac"


class Replay:
    """One test of the catalogue: its job's script with stand-ins, its log, and what its body records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.recorded = folder / "recorded"
        self.metrics: dict[str, Any] = {}
        self.ended_s = 100.25
        self.extra: dict[str, Any] = {}
        self.fields: dict[str, object] = {  # of the layout, and a test's own parameters
            **{"data_dir": folder / "data", "nodes": 1, "ranks": 8, "ranks_per_node": 4},
            **{"workload": "resnet50", "collective": "all_reduce"},
        }
        self.programs.mkdir()
        self.recorded.mkdir()
        self.program("stat", "echo ext2/ext3")
        self.program("nproc", "echo 2")
        self.program("cat", CAT)
        for path in RECORDED.iterdir():
            self.recorded.joinpath(path.name).write_text(path.read_text())

    def program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def edit(self, name: str, old: str, new: str) -> None:
        """Plant a fault into a recording."""
        path = self.recorded / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def job(self, test: Callable[..., None], **environ: str) -> subprocess.CompletedProcess[str]:
        """Run the job of a test; what it prints is its log."""
        (mark,) = [mark for mark in getattr(test, "pytestmark") if mark.name == "workload"]  # noqa: B009
        words = mark.kwargs["command"]
        for name, value in self.fields.items():
            words = [word.replace(f"{{{name}}}", str(value)) for word in words]
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        environ = {**os.environ, "PATH": path, "RECORDED": str(self.recorded), **environ}
        done = subprocess.run(words, env=environ, cwd=self.folder, capture_output=True, text=True, check=False)
        (self.folder / "log").write_text(done.stdout)
        return done

    def body(self, test: Callable[..., None], log: str | None = None) -> None:
        """Run the body of a test on the log."""
        if log is not None:
            (self.folder / "log").write_text(log)
        status = Status(State.SUCCEEDED, started_s=100.0, ended_s=self.ended_s)
        test(Run(folder=self.folder, status=status), self._record)

    def _record(self, run: Run, metrics: dict[str, Any], **extra: object) -> None:
        self.metrics |= metrics
        self.extra |= extra

    def passes(self, test: Callable[..., None], **environ: str) -> dict[str, float]:
        done = self.job(test, **environ)
        assert done.returncode == 0, done.stdout + done.stderr
        self.body(test)
        return {name: round(value, 3) for name, (value, _, _) in self.metrics.items()}

    def fails(self, test: Callable[..., None], says: str, **environ: str) -> None:
        self.job(test, **environ)
        with pytest.raises((AssertionError, ValueError), match=says):
            self.body(test)
        assert not self.metrics


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    return Replay(tmp_path)


@pytest.fixture
def fio(replay: Replay) -> Replay:
    replay.program("fio", FIO % "/dev/urandom")
    replay.program("awk", "echo 716726272")  # reads /proc/PID/io: what the kernel fetched at the recording
    return replay


@pytest.fixture
def hpcc(replay: Replay) -> Replay:
    replay.program("hpcc", "")
    replay.program(
        "mpirun",
        'cp "$RECORDED/hpcc.txt" hpccoutf.txt; cp hpccinf.txt "$RECORDED/input"; echo "$*" > "$RECORDED/words"',
    )
    replay.program("lscpu", LSCPU)
    return replay


@pytest.fixture
def stream(replay: Replay) -> Replay:
    replay.program("gcc", GCC)
    replay.program("lscpu", LSCPU)
    return replay


@pytest.fixture
def netpipe(replay: Replay) -> Replay:
    replay.program("NPopenmpi", "")
    replay.program("mpirun", NETPIPE)
    return replay


@pytest.fixture
def nccl(replay: Replay) -> Replay:
    replay.fields.update(nodes=2, devices=16, devices_per_node=8)
    replay.program("all_reduce_perf", NCCL)
    replay.program("srun", 'echo "srun $1, $SLURM_NTASKS tasks"; shift; exec "$@"')
    infiniband = replay.recorded / "nccl_infiniband.txt"
    infiniband.rename(replay.recorded / "nccl_network.txt")
    return replay


@pytest.fixture
def osu(replay: Replay) -> Replay:
    replay.program("osu_allreduce", "")
    replay.program("osu_alltoall", "")
    replay.program("mpirun", OSU)
    return replay


@pytest.fixture
def ior(replay: Replay) -> Replay:
    replay.program("ior", "")
    replay.program("mdtest", "")
    replay.program("mpirun", IOR % "/dev/urandom")
    return replay


@pytest.fixture
def torchtitan(replay: Replay) -> Replay:
    replay.fields.update(python="python")
    replay.program("python", 'echo "$*" > "$RECORDED/words"; cat "$RECORDED/torchtitan.txt"')
    return replay


@pytest.fixture
def megatron(replay: Replay) -> Replay:
    """As it would have been with the definition's sequence, and had it skipped no iterations."""
    replay.fields.update(python="python")
    replay.program("python", 'cat "$RECORDED/megatron.txt"')
    replay.edit("megatron.txt", " seq_length ...................................... 512", " seq_length ..... 1024")
    path = replay.recorded / "megatron.txt"
    skipped = re.compile(r"skipped iterations: +[1-9]")
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not skipped.search(line)))
    return replay


@pytest.fixture
def vllm(replay: Replay) -> Replay:
    replay.fields.update(devices_per_node=4)
    replay.program("vllm", VLLM)
    replay.program("curl", '[ -e "$RECORDED/up" ]')
    return replay


@pytest.fixture
def dlio(replay: Replay) -> Replay:
    replay.program("dlio_benchmark", "")
    replay.program("mpirun", DLIO)
    return replay


def test_fio_is_read_and_its_files_are_removed(fio: Replay) -> None:
    assert fio.passes(test_fio.test_fio) == {"checkpoint": 0.872, "read": 0.742, "iops": 36445.037, "create": 6006.006}
    assert list((fio.folder / "data").iterdir()) == []


def test_fio_without_direct_io_fails(fio: Replay) -> None:
    fio.edit("fio.txt", '"direct" : "1"', '"direct" : "0"')
    fio.fails(test_fio.test_fio, "fio did not use direct I/O: the page cache is no storage")


def test_a_page_cache_that_answers_for_the_storage_fails(fio: Replay) -> None:
    fio.program("awk", "echo 4096")
    fio.fails(test_fio.test_fio, r"of \d+ bytes, 4096 came from storage, the rest from a cache")
    fio.program("stat", "echo lustre")
    assert fio.passes(test_fio.test_fio)["read"] == 0.742


def test_data_that_compress_fail(fio: Replay) -> None:
    fio.program("fio", FIO % "/dev/zero")
    fio.fails(test_fio.test_fio, r"the data are compressible: gzip makes \d{4} bytes of 1048576")


def test_hpcc_is_read(hpcc: Replay) -> None:
    assert hpcc.passes(test_hpl.test_hpl, HPCC_N="7200") == {"hpl": 1.518, "stream": 9.045}
    lines = (hpcc.recorded / "input").read_text().splitlines()
    assert (lines[5], lines[10], lines[11]) == ("7200 N", "1 P", "2 Q")


def test_all_ranks_of_hpl_are_on_the_first_of_several_nodes(hpcc: Replay) -> None:
    """Slurm's jobs have one slot a node, which OpenMPI would fill one after the other."""
    hpcc.passes(test_hpl.test_hpl)
    assert " --map-by ppr:2:node -n 2 hpcc" in (hpcc.recorded / "words").read_text()


def test_a_quota_of_a_pod_bounds_its_ranks(hpcc: Replay) -> None:
    for quota, ranks in (("150000 100000", "-n 1 "), ("50000 100000", "-n 1 "), ("-1 100000", "-n 2 ")):
        hpcc.passes(test_hpl.test_hpl, QUOTA=quota)
        assert ranks in (hpcc.recorded / "words").read_text()


def test_a_wrong_residual_of_hpl_fails(hpcc: Replay) -> None:
    hpcc.edit("hpcc.txt", "0.0054099 ...... PASSED", "54.0990000 ...... FAILED")
    hpcc.fails(test_hpl.test_hpl, "HPL's residual is wrong")


def test_an_error_of_another_part_of_hpcc_fails(hpcc: Replay) -> None:
    hpcc.edit("hpcc.txt", "Success=1", "Success=0")
    hpcc.fails(test_hpl.test_hpl, "hpcc says that one of its tests is wrong")


def test_arrays_that_fit_into_the_last_cache_fail(hpcc: Replay, stream: Replay) -> None:
    hpcc.program("lscpu", LSCPU.replace("33554432", "335544320"))
    hpcc.fails(test_hpl.test_hpl, "STREAM measured a cache: let HPCC_N")
    stream.fails(test_stream.test_stream, "arrays of 134217728 bytes", STREAM_C=__file__)


def test_stream_is_compiled_and_read(stream: Replay) -> None:
    assert stream.passes(test_stream.test_stream, STREAM_C=__file__) == {"triad": 4.968}


def test_a_wrong_result_of_stream_fails(stream: Replay) -> None:
    stream.edit("stream.txt", "Solution Validates", "Failed Validation on array a[]")
    stream.fails(test_stream.test_stream, "STREAM says that its results are wrong", STREAM_C=__file__)


def test_netpipe_is_read(netpipe: Replay) -> None:
    assert netpipe.passes(test_mpi.test_ping_pong) == {"latency": 3.88, "bandwidth": 1.219}


def test_the_ranks_of_a_ping_pong_are_on_two_nodes(netpipe: Replay) -> None:
    netpipe.fields.update(nodes=3)
    done = netpipe.job(test_mpi.test_ping_pong)
    assert (done.returncode, done.stdout) == (127, "MPI's ranks are on 1 of 2 nodes: catalogue/README.md, MPI ranks\n")
    netpipe.program("mpirun", f"{ranks_on('[1,%d]<stdout>:', 'node-1', 'node-2')}\n{NETPIPE}")
    assert netpipe.passes(test_mpi.test_ping_pong).keys() == {"latency", "bandwidth"}


@pytest.mark.parametrize("prefix", ["", "%d: ", "[1,%d]<stdout>:", "[%d] ", "[default%d]:"])
@pytest.mark.parametrize("banner", ["", "node-9\\n", "Welcome to node-2\\n"])
def test_labels_and_banners_are_no_nodes(netpipe: Replay, prefix: str, banner: str) -> None:
    netpipe.fields.update(nodes=2)
    netpipe.program("mpirun", f"{ranks_on(prefix, 'node-1', 'node-1', banner=banner)}\n{NETPIPE}")
    assert "MPI's ranks are on 1 of 2 nodes" in netpipe.job(test_mpi.test_ping_pong).stdout


def test_messages_that_arrive_changed_fail(netpipe: Replay) -> None:
    netpipe.edit("netpipe.txt", "19:    6144 bytes      3 times -->  Integrity check passed", " Integrity check failed")
    netpipe.fails(test_mpi.test_ping_pong, "what arrived is not what was sent")


def test_ranks_that_are_not_on_all_nodes_are_a_sentence(osu: Replay) -> None:
    """As in pods, where OpenMPI's mpirun knows its own pod alone."""
    osu.fields.update(nodes=2)
    done = osu.job(test_osu.test_collectives)
    assert (done.returncode, done.stdout) == (127, "MPI's ranks are on 1 of 2 nodes: catalogue/README.md, MPI ranks\n")
    done = osu.job(test_osu.test_collectives, CATALOGUE_MPIRUN="false")
    assert (done.returncode, done.stdout) == (1, "")


def test_the_first_pod_of_several_does_the_work(osu: Replay) -> None:
    done = osu.job(test_osu.test_collectives, JOB_COMPLETION_INDEX="1")
    assert (done.returncode, done.stdout) == (0, "")
    assert osu.passes(test_osu.test_collectives, JOB_COMPLETION_INDEX="0")["allreduce"] == 0.33


def test_collectives_of_osu_are_read(osu: Replay) -> None:
    assert osu.passes(test_osu.test_collectives) == {
        "allreduce": 0.33,
        "allreduce_16_mib": 10046.56,
        "alltoall_64_kib": 11.01,
    }
    assert "--map-by ppr:4:node" in (osu.recorded / "words").read_text()


def test_a_wrong_sum_of_an_all_reduce_fails(osu: Replay) -> None:
    row = "16                      0.33              0.33              0.34          10              "
    osu.edit("osu.txt", f"{row}Pass", f"{row}Fail")
    osu.fails(test_osu.test_collectives, "what arrived is not what was sent, or not its sum")


def test_copies_between_processes_that_a_container_forbids_fail(osu: Replay, hpcc: Replay, netpipe: Replay) -> None:
    said = "[pod:00025] Read -1, expected 16384, errno = 1\n"  # OpenMPI 4.1.4 in a pod, of each large message
    for name, test in (
        ("osu.txt", test_osu.test_collectives),
        ("hpcc.txt", test_hpl.test_hpl),
        ("netpipe.txt", test_mpi.test_ping_pong),
    ):
        with pytest.raises(AssertionError, match="OMPI_MCA_btl_vader_single_copy_mechanism: none"):
            osu.body(test, said + (RECORDED / name).read_text())


def test_the_site_says_what_starts_mpi_ranks(osu: Replay) -> None:
    osu.program("srun", f"exec {osu.programs}/mpirun by srun $*")
    assert osu.passes(test_osu.test_collectives, CATALOGUE_MPIRUN="srun --mpi=pmix -n 64")["allreduce"] == 0.33
    assert (osu.recorded / "words").read_text().startswith("by srun --mpi=pmix -n 64 ")
    done = osu.job(test_osu.test_collectives, CATALOGUE_MPIRUN="nowhere -n 64")
    assert (done.returncode, done.stdout) == (127, "nowhere is not on this node: catalogue/README.md, MPI ranks\n")


def test_ior_is_read_and_its_files_are_removed(ior: Replay) -> None:
    assert ior.passes(test_ior.test_ior) == {"write": 1.247, "read": 0.956}
    assert list((ior.folder / "data").iterdir()) == []


def test_a_page_cache_that_answers_ior_on_one_node_fails(ior: Replay) -> None:
    ior.edit("ior.txt", "read_bytes: 268439552", "read_bytes: 24576")
    ior.fails(test_ior.test_ior, r"of 536870912 bytes, \d+ came from storage")
    ior.edit("ior.txt", '"nodes": 1, \n      "memoryPerTask"', '"nodes": 2, \n      "memoryPerTask"')
    assert ior.passes(test_ior.test_ior).keys() == {"write", "read"}


def test_data_that_ior_reads_back_changed_fail(ior: Replay) -> None:
    ior.edit("ior.txt", "Writing output", "WARNING: Incorrect data on write (16 errors found).\nWriting output")
    ior.fails(test_ior.test_ior, "what is read back is not what was written")


def test_data_of_ior_that_compress_fail(ior: Replay) -> None:
    ior.program("mpirun", IOR % "/dev/zero")
    ior.fails(test_ior.test_ior, "the data are compressible")


def test_mdtest_is_read(ior: Replay) -> None:
    assert ior.passes(test_ior.test_mdtest) == {"create": 2854.081, "remove": 101869.018}
    assert "mdtest -F -C -T -r -u -N 1 -n 2000 -d" in (ior.recorded / "words").read_text()


def test_files_that_a_node_looks_up_are_those_of_another_node(ior: Replay) -> None:
    """mdtest multiplies the stride that it is told by the ranks of a node."""
    (ior.recorded / "mdtest_nodes.txt").rename(ior.recorded / "mdtest.txt")
    assert ior.passes(test_ior.test_mdtest) == {"create": 10107.883, "stat": 11687.001, "remove": 12508.036}
    ior.metrics.clear()
    ior.edit("mdtest.txt", "Shifting ranks by 2", "Shifting ranks by 4")
    ior.fails(test_ior.test_mdtest, "nodes look their own files up")


def test_dlio_is_read_and_its_files_are_removed(dlio: Replay) -> None:
    assert dlio.passes(resnet50, DLIO_FILES="3") == {"samples": 1626.456, "au": 49.903}
    assert "workload=resnet50_h100" in (dlio.recorded / "words").read_text()
    assert "num_files_train=36" in (dlio.recorded / "words").read_text()
    assert list((dlio.folder / "data").iterdir()) == []


def test_a_page_cache_that_answers_dlio_fails(dlio: Replay) -> None:
    dlio.edit("dlio.txt", "read_bytes: 858771456", "read_bytes: 974848")
    dlio.fails(resnet50, r"of \d+ bytes, 862560256 came from storage, the rest from a cache")


def test_a_training_of_dlio_without_files_fails(dlio: Replay) -> None:
    name = '"train_throughput_mean_samples_per_second": '
    dlio.edit("dlio.txt", f"{name}1626.455815337603", f"{name}0.0")
    dlio.fails(resnet50, "DLIO has read no sample")


def test_gloo_is_read(replay: Replay) -> None:
    text = (RECORDED / "gloo.txt").read_text()
    replay.body(test_gloo.test_all_reduce, text)
    assert replay.metrics == {"allreduce": (548.1, "us", "lower"), "allreduce_16_mib": (35911.9, "us", "lower")}
    replay.metrics.clear()
    with pytest.raises(AssertionError, match="one rank reduces nothing"):
        replay.body(test_gloo.test_all_reduce, text.replace("world_size: 2", "world_size: 1"))
    assert not replay.metrics


def test_nvbandwidth_is_read(replay: Replay) -> None:
    """Behind the suite's own line, which names the program, too."""
    replay.program("nvbandwidth", 'echo \'{"facts": {"name": "nvbandwidth"}}\'; cat "$RECORDED/nvbandwidth.txt"')
    metrics = replay.passes(test_nvbandwidth.test_nvbandwidth)
    assert metrics == {"to_gpu": 53.442, "from_gpu": 54.659, "gpu_memory": 2080.39}


def test_the_slowest_gpu_counts_and_a_wrong_copy_fails(replay: Replay) -> None:
    replay.program("nvbandwidth", 'cat "$RECORDED/nvbandwidth.txt"')
    replay.edit("nvbandwidth.txt", '"53.4419"', '"53.4419", "N/A", "26.7"')
    assert replay.passes(test_nvbandwidth.test_nvbandwidth)["to_gpu"] == 26.7
    replay.metrics = {}
    replay.edit("nvbandwidth.txt", '"Passed"', '"Failed"')
    replay.fails(test_nvbandwidth.test_nvbandwidth, "a copy is wrong")


def test_nccl_is_read_with_its_network(nccl: Replay) -> None:
    of_site = {"CATALOGUE_FABRIC": "NET/IB.*/GDRDMA", "CATALOGUE_LINK_GB_S": "300"}
    metrics = nccl.passes(nccl_test, SLURM_NTASKS="2", **of_site)
    assert metrics == {"bus_bandwidth": 338.82, "latency": 135.8}  # above the links: not a ring, so none bounds it
    assert not list(nccl.folder.glob("nccl.*"))
    log = (nccl.folder / "log").read_text()
    assert "srun --ntasks-per-node=8,  tasks\n" in log  # a rank for each GPU, and not the job's task for each node


def test_a_number_above_what_a_ring_can_have_fails(nccl: Replay) -> None:
    says = "a ring over links of 300 GB/s cannot have 338.82 GB/s"
    nccl.fails(nccl_test, says, CATALOGUE_LINK_GB_S="300", NCCL_ALGO="Ring")


def test_no_ring_bounds_an_all_to_all_part_of_which_stays_in_the_nodes(nccl: Replay) -> None:
    test = functools.update_wrapper(functools.partial(test_nccl.test_nccl, collective="alltoall"), test_nccl.test_nccl)
    assert nccl.passes(test, CATALOGUE_LINK_GB_S="300", NCCL_ALGO="Ring")["bus_bandwidth"] == 338.82


def test_a_message_of_no_bytes_has_no_latency(nccl: Replay) -> None:
    """All-to-all gives each of 16 ranks nothing of 8 bytes."""
    row = "           8             2     float     sum      -1    135.8 "
    nccl.edit("nccl.txt", row, row.replace(" 8 ", " 0 ").replace(" 2 ", " 0 ").replace("135.8", " 0.94"))
    assert nccl.passes(nccl_test)["latency"] == 123.2


@pytest.mark.parametrize("said", ["NET/IB/0(1)/GDRDMA", "P2P/MNNVL"])
def test_networks_of_nccl_that_are_right(nccl: Replay, said: str) -> None:
    """Through another GPU of the node (PXN), and NVLink between nodes."""
    nccl.edit("nccl_network.txt", "NET/IBext_v8/7/GDRDMA", said)
    assert nccl.passes(nccl_test, CATALOGUE_FABRIC="NET/IB.*/GDRDMA|P2P/MNNVL")


def test_nccl_over_tcp_fails(nccl: Replay) -> None:
    (nccl.recorded / "nccl_tcp.txt").rename(nccl.recorded / "nccl_network.txt")
    nccl.fails(nccl_test, "NCCL went over NET/Socket, and not as CATALOGUE_FABRIC says")


def test_nccl_without_gpudirect_fails_where_it_is_asked_for(nccl: Replay) -> None:
    nccl.edit("nccl_network.txt", "/GDRDMA", "")
    nccl.fails(nccl_test, "NCCL went over NET/IBext_v8, and not", CATALOGUE_FABRIC="NET/IB.*/GDRDMA")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("330.58      0", "330.58      7", "values that arrived are wrong"),
        ("Rank 15", "Rank  0", "15 of 16 GPUs found each other: is it built with MPI=1"),
    ],
)
def test_nccl_that_is_wrong_fails(nccl: Replay, old: str, new: str, says: str) -> None:
    nccl.edit("nccl.txt", old, new)
    nccl.fails(nccl_test, re.escape(says))


def test_one_gpu_has_no_bus(nccl: Replay) -> None:
    nccl.fields.update(nodes=1, devices=1, devices_per_node=1)
    (nccl.recorded / "nccl_one_gpu.txt").rename(nccl.recorded / "nccl.txt")
    nccl.fails(nccl_test, "one GPU has nobody to talk to")


def test_torchtitan_is_read(torchtitan: Replay) -> None:
    metrics = torchtitan.passes(test_torchtitan.test_torchtitan, TORCHTITAN="--module llama3 --config llama3_8b")
    assert metrics == {"tokens_per_s_per_device": 7051.0}
    assert torchtitan.extra.keys() == {"size", "memory_gib", "share_of_peak"}
    assert torchtitan.extra["size"] == "llama-8b"
    assert torchtitan.extra["memory_gib"] == 49.59
    assert torchtitan.extra["share_of_peak"] == pytest.approx(0.36695, abs=1e-5)  # where torchtitan has 41.29 %
    words = (torchtitan.recorded / "words").read_text()
    assert words == "-m torchtitan.train --module llama3 --config llama3_8b\n"


def test_the_present_line_of_torchtitan_is_read() -> None:
    """Of github.com/pytorch/torchtitan, pull request 1884, October 2025."""
    line = (
        "step: 10  loss: 10.2391  grad_norm: 16.1413  memory: 44.84GiB(47.19%)  tps: 5,615  tflops: 325.20  mfu: 32.88%"
    )
    assert re.findall(test_torchtitan.STEP, line) == [("10", "10.2391", "44.84", "5,615")]
    assert not re.findall(test_torchtitan.STEP, f"validate {line}")


def test_stages_of_a_pipeline_that_have_no_loss_do_not_count(torchtitan: Replay) -> None:
    """As github.com/orangingq/torchtitan has them at f579424, logs/dmserver1/1026_llama1b."""
    first = "[rank0]:2025-02-13 11:33:35,026 - root - INFO - step:  1  loss: 12.2417"
    torchtitan.edit(
        "torchtitan.txt", first, f"[rank2]: step:  1  loss: -2.0000  memory:  5.39GiB(11.36%)  tps: 406\n{first}"
    )
    assert torchtitan.passes(test_torchtitan.test_torchtitan) == {"tokens_per_s_per_device": 7051.0}


@pytest.mark.parametrize("said", ["Peak flops undefined for: NVIDIA X, fallback to A100", "mfu: N/A"])
def test_no_share_of_a_peak_that_is_not_the_devices(torchtitan: Replay, said: str) -> None:
    torchtitan.edit("torchtitan.txt", "Training completed", said)
    torchtitan.passes(test_torchtitan.test_torchtitan)
    assert "share_of_peak" not in torchtitan.extra


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("loss:  6.8581", "loss:     nan", "a loss is not finite"),
        ("loss:  6.4719", "loss: 12.5000", "the loss did not fall: 12.2417 at first, 12.5 at last"),
        ("8,030,261,248", "6,163,712", "no size of models/gpt_definition.json has parameters=6163712, sequence=8192"),
        ("sequence length 8192", "sequence length 1024", "parameters=8030261248, sequence=1024"),
        ("tps: 7,0", "tps: 27,0", "27051 tokens/s would be 141% of the device's peak"),
        ("0  loss:", "0  los:", "1 steps are logged"),
        ("total parameters", "parameters", "does not say the model's parameters and its sequence"),
    ],
)
def test_a_training_of_torchtitan_that_is_wrong_fails(torchtitan: Replay, old: str, new: str, says: str) -> None:
    torchtitan.edit("torchtitan.txt", old, new)
    torchtitan.fails(test_torchtitan.test_torchtitan, re.escape(says))


def test_megatron_is_read(megatron: Replay) -> None:
    """The median of the iterations but for the first logged ones, which the recording has of half the sequence."""
    metrics = megatron.passes(test_megatron.test_megatron, MEGATRON="pretrain_gpt.py")
    assert metrics == {"tokens_per_s_per_device": 19392.219}
    assert megatron.extra["size"] == "gpt2-124m"
    assert megatron.extra["memory_mib"] == 1464.3408203125
    assert megatron.extra["iteration_s"] == pytest.approx(0.8449)
    assert megatron.extra["tflop_per_s_per_device"] == pytest.approx(15.4714, abs=1e-4)


def test_megatron_as_it_was_recorded_fails(megatron: Replay) -> None:
    recorded = (RECORDED / "megatron.txt").read_text()
    with pytest.raises(AssertionError, match=r"no size of models/gpt_definition\.json has .*sequence=512, tied=True"):
        megatron.body(test_megatron.test_megatron, recorded)
    recorded = recorded.replace(" seq_length ...................................... 512", " seq_length ..... 1024")
    with pytest.raises(AssertionError, match="number of skipped iterations: 21"):
        megatron.body(test_megatron.test_megatron, recorded)
    assert not megatron.metrics


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("nan iterations:   0", "nan iterations:   1", "number of nan iterations: 7"),
        (" lm loss: 8.194965E+00 |", "", "a loss is not finite"),
        ("lm loss: 7.514787E+00", "lm loss: 9.992320E+00", "the loss did not fall: 9.992319 at first, 9.99232 at last"),
        (" num_layers ...................................... 12", " num_layers ... 24", "has layers=24, width=768"),
        ("(new size: 50304)", "(new size: 128256)", "gpt2-124m has a vocabulary of 50257"),
        ("0/    1000", "0 of 1000", "0 lines of iterations are logged"),
    ],
)
def test_a_training_of_megatron_that_is_wrong_fails(megatron: Replay, old: str, new: str, says: str) -> None:
    megatron.edit("megatron.txt", old, new)
    megatron.fails(test_megatron.test_megatron, re.escape(says), MEGATRON="pretrain_gpt.py")


def test_vllm_is_read_and_its_server_ends(vllm: Replay) -> None:
    metrics = vllm.passes(test_vllm.test_vllm, VLLM_MODEL="model", VLLM_SERVE="--dtype half")
    assert metrics == {"output": 191.201, "ttft": 43.211, "tpot": 7.895}
    assert (vllm.recorded / "words").read_text() == "serve model --port 8000 --tensor-parallel-size 4 --dtype half\n"
    vllm.edit("vllm.txt", '"request_goodput": null', '"request_goodput": 5.5')
    (vllm.recorded / "up").unlink()
    assert vllm.passes(test_vllm.test_vllm, VLLM_MODEL="model")["goodput"] == 5.5


def test_requests_that_failed_fail(vllm: Replay) -> None:
    (vllm.recorded / "vllm_failed.txt").rename(vllm.recorded / "vllm.txt")
    vllm.fails(test_vllm.test_vllm, "0 of 8 requests completed, 8 failed", VLLM_MODEL="model")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"completed": 8', '"completed": 7', "7 of 8 requests completed, 0 failed"),
        ('"failed": 0', '"failed": 1', "8 of 8 requests completed, 1 failed"),
        ('"request_goodput": null', '"request_goodput": 0.0', "no request was within the limits of --goodput"),
    ],
)
def test_inference_that_is_wrong_fails(vllm: Replay, old: str, new: str, says: str) -> None:
    vllm.edit("vllm.txt", old, new)
    vllm.fails(test_vllm.test_vllm, says, VLLM_MODEL="model")


@pytest.mark.parametrize(
    ("curl", "serve", "says"),
    [
        ("true", VLLM, "another server answers on port 8000"),
        ("false", "exit 1", "the server ended before it answered"),
        ("false", VLLM, "the server does not answer"),
    ],
)
def test_a_server_that_does_not_answer_ends_the_job(vllm: Replay, curl: str, serve: str, says: str) -> None:
    vllm.program("curl", curl)
    vllm.program("vllm", serve)
    done = vllm.job(test_vllm.test_vllm, VLLM_MODEL="model", VLLM_WAIT="2")
    assert done.returncode == 1
    assert done.stdout.startswith(says)


@pytest.mark.parametrize(
    ("test", "says"),
    [
        (test_megatron.test_megatron, "MEGATRON in the platform's"),
        (test_vllm.test_vllm, "VLLM_MODEL in the platform's"),
    ],
)
def test_a_language_model_that_is_not_named_is_a_sentence(vllm: Replay, test: Callable[..., None], says: str) -> None:
    vllm.fields.update(python="python")
    done = vllm.job(test)
    assert done.returncode == 127
    assert done.stdout.startswith(says)


def test_imports_are_those_of_the_slowest_node(replay: Replay) -> None:
    node = "cold import: %s s, 500000000 bytes fetched from storage\nwarm import: 2.5 s, 0 bytes fetched from storage\n"
    asked = "one node of 2 imports torch\n"
    replay.body(test_user_path.test_import_torch, asked + node % "9.79" + asked + node % "11.0")
    assert replay.metrics == {"cold_import": (11.0, "s", "lower"), "warm_import": (2.5, "s", "lower")}
    with pytest.raises(AssertionError, match="of 2 nodes, 1 tell a cold import, 1 a warm"):
        replay.body(test_user_path.test_import_torch, asked + node % "9.79")
    from_memory = "one node of 1 imports torch\n" + node.replace("500000000", "0") % "3.0"
    with pytest.raises(AssertionError, match="the first import was not cold"):
        replay.body(test_user_path.test_import_torch, f"file system: xfs\n{from_memory}")
    replay.body(test_user_path.test_import_torch, f"file system: gpfs\n{from_memory}")


def test_an_empty_job_takes_as_long_as_its_status_says(replay: Replay) -> None:
    replay.body(test_user_path.test_empty_job, "")
    assert replay.metrics == {"empty_job": (0.25, "s", "lower")}
    for ended_s, seconds in ((100.01, 0.1), (100.0, 1.0), (102.0, 2.0)):  # pods have whole seconds
        replay.ended_s = ended_s
        replay.body(test_user_path.test_empty_job, "")
        assert replay.metrics == {"empty_job": (seconds, "s", "lower")}


def test_an_empty_step_of_slurm_is_timed_in_its_job(replay: Replay) -> None:
    replay.program("srun", "sleep 0.05")
    metrics = replay.passes(test_user_path.test_empty_job, SLURM_JOB_ID="7")
    assert metrics.keys() == {"empty_step"}
    assert metrics["empty_step"] >= 0.05


@pytest.mark.parametrize(
    ("test", "says"),
    [
        (test_fio.test_fio, "fio is not on this node: Debian's package fio, or https://github.com/axboe/fio"),
        (test_hpl.test_hpl, "hpcc is not on this node: Debian's package hpcc"),
        (test_mpi.test_ping_pong, "NPopenmpi is not on this node: Debian's package netpipe-openmpi"),
        (test_dlio.test_dlio, f"dlio_benchmark is not on this node: {test_dlio.SOURCE}"),
        (test_ior.test_mdtest, f"mdtest is not on this node: {test_ior.SOURCE}"),
        (test_osu.test_collectives, f"osu_allreduce is not on this node: {test_osu.SOURCE}"),
        (test_vllm.test_vllm, "vllm is not on this node: https://github.com/vllm-project/vllm"),
    ],
)
def test_a_tool_that_is_not_there_is_a_sentence(replay: Replay, test: Callable[..., None], says: str) -> None:
    replay.program("sh", 'PATH=; export PATH; exec /bin/sh "$@"')
    done = replay.job(test)
    assert (done.returncode, done.stdout) == (127, f"{says}\n")


def test_stream_without_its_source_is_a_sentence(replay: Replay) -> None:
    done = replay.job(test_stream.test_stream, STREAM_C="/nowhere/stream.c")
    assert done.returncode == 127
    assert "names no file: get stream.c from https://www.cs.virginia.edu/stream/" in done.stdout


@pytest.mark.slow
def test_the_catalogue_runs_where_it_is_named(project: Project, fio: Replay) -> None:
    project.platform("mine", f"env: {{PATH: '{fio.programs}:{os.environ['PATH']}', RECORDED: {fio.recorded}}}\n")
    for name in ("test_fio.py", "test_hpl.py", "tools.py"):
        project.write(f"catalogue/{name}", (ROOT / "catalogue" / name).read_text())
    for set_of_tests in ("nightly", "acceptance"):
        result = project.pytest("catalogue", "-m", f"mine and {set_of_tests}", "-k", "fio")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["*mine*checkpoint*0.872*GB/s*"])
    assert not project.pytest("--collect-only", "-q").stdout.str().count("catalogue")


def test_the_slowest_device_of_a_node_is_recorded(replay: Replay) -> None:
    replay.fields.update(python="python")
    line = "vet: device %d: matrix products %s GFLOP/s, copies %s GB/s"
    said = [line % (0, "98.700", "12.300"), line % (1, "97.100", "12.500"), "vet: 1 of 1 nodes fit, after 3.1 s"]
    replay.program("python", "[ $2 = vet ] && printf '%s\\n' " + " ".join(f"'{each}'" for each in said))
    found = replay.passes(test_vet.test_vet, HPC_ML_BENCH_MODELS="models.pyz")
    assert found == {"products": 97.1, "copies": 12.3}
    assert replay.job(test_vet.test_vet).returncode  # without the archive


def test_each_test_is_in_a_set() -> None:
    """But for language models, whose trainers and models most machines lack: they run where their file is named."""
    named = {f"test_{name}.py" for name in ("torchtitan", "megatron", "vllm")}
    for path in [path for path in (ROOT / "catalogue").glob("test_*.py") if path.name not in named]:
        assert re.search(r"^(@|pytestmark = \[)pytest\.mark\.(nightly|acceptance)\b", path.read_text(), re.MULTILINE), (
            path.name
        )


def test_what_the_readme_says_is_primary_is_what_is_recorded() -> None:
    text = (ROOT / "catalogue" / "README.md").read_text()
    for path in (ROOT / "catalogue").glob("test_*.py"):
        row = next(line for line in text.splitlines() if line.startswith(f"| `{path.name}`"))
        recorded = re.findall(r'"(\w+)": \(.*?, "(?:higher|lower)"\)', path.read_text())
        assert [name for name in recorded if f"`{name}`" not in row] == []
