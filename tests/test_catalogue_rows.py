"""Each test of the catalogue reads the rows that it asked for, or says which one it cannot read.

The recordings are those of test_catalogue.py, with planted faults; what other versions print is in their own words.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from catalogue import (
    test_fio,
    test_gloo,
    test_hpl,
    test_ior,
    test_megatron,
    test_mpi,
    test_nvbandwidth,
    test_osu,
    test_stream,
    test_torchtitan,
    test_vllm,
)
from tests.test_catalogue import RECORDED, Replay, nccl_test, resnet50
from tests.test_catalogue import dlio as dlio
from tests.test_catalogue import fio as fio
from tests.test_catalogue import hpcc as hpcc
from tests.test_catalogue import ior as ior
from tests.test_catalogue import megatron as megatron
from tests.test_catalogue import nccl as nccl
from tests.test_catalogue import netpipe as netpipe
from tests.test_catalogue import osu as osu
from tests.test_catalogue import replay as replay
from tests.test_catalogue import stream as stream
from tests.test_catalogue import torchtitan as torchtitan

Test = Callable[..., None]


@pytest.fixture
def gloo(replay: Replay) -> Replay:
    replay.fields.update(python="param")
    replay.program("param", 'cat "$RECORDED/gloo.txt"')
    return replay


class Row(NamedTuple):
    """A line of a tool's output that a test wants."""

    replay: str
    test: Test
    begin: str
    """A pattern of its first characters."""
    environ: Mapping[str, str] = MappingProxyType({})


ROWS = {
    "nccl first": Row("nccl", nccl_test, " +8 +2 "),
    "nccl last": Row("nccl", nccl_test, " +8589934592 "),
    "torchtitan": Row("torchtitan", test_torchtitan.test_torchtitan, ".*step: 50 "),
    "torchtitan last": Row("torchtitan", test_torchtitan.test_torchtitan, ".*step: 100 "),
    "megatron": Row("megatron", test_megatron.test_megatron, ".*iteration +60/", {"MEGATRON": "pretrain_gpt.py"}),
    "stream copy": Row("stream", test_stream.test_stream, "Copy:", {"STREAM_C": __file__}),
    "stream triad": Row("stream", test_stream.test_stream, "Triad:", {"STREAM_C": __file__}),
    "hpcc": Row("hpcc", test_hpl.test_hpl, "HPL_Tflops="),
    "netpipe": Row("netpipe", test_mpi.test_ping_pong, " +4194304 "),
    "osu": Row("osu", test_osu.test_collectives, r"16777216 .*\d$"),
    "mdtest": Row("ior", test_ior.test_mdtest, " +File creation"),
    "ior": Row("ior", test_ior.test_ior, r' +"bwMeanMIB": 1'),
    "fio": Row("fio", test_fio.test_fio, ' +"bw_bytes" : 871543688'),
    "gloo": Row("gloo", test_gloo.test_all_reduce, r".*-float32 +8 "),
    "dlio": Row("dlio", resnet50, ' +"train_au_mean_percentage"'),
}


def damaged(log: str, begin: str) -> Iterator[tuple[str, str]]:
    """The log without the row, with two of it, and with the row in two pieces, cut at every other place."""
    (row,) = [line for line in log.split("\n") if re.match(begin, line)]
    yield "missing", log.replace(f"{row}\n", "")
    yield "twice", log.replace(row, f"{row}\n{row}")
    for cut in range(1, len(row), 2):
        other = "[n02] another writer's line" if cut % 4 == 1 else ""
        yield f"cut before {row[cut:]!r}", log.replace(row, f"{row[:cut]}{other}\n{row[cut:]}")


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_is_missing_doubled_or_in_pieces_gives_no_other_number(
    name: str, request: pytest.FixtureRequest
) -> None:
    """A cut may leave the row whole enough for its number; the number is then the right one."""
    row = ROWS[name]
    replay = request.getfixturevalue(row.replay)
    replay.passes(row.test, **row.environ)
    right = dict(replay.metrics)
    read = []
    for damage, log in damaged((replay.folder / "log").read_text(), row.begin):
        replay.metrics.clear()
        with contextlib.suppress(AssertionError, ValueError):
            replay.body(row.test, log)
            read.append(damage)
        assert replay.metrics in ({}, right), damage
    if row.replay not in ("ior", "fio", "dlio"):  # of JSON, in which the later of two equal keys counts
        assert not {"missing", "twice"} & set(read)


def test_a_last_row_of_what_the_memory_could_not_hold_is_not_that_of_the_largest_message(nccl: Replay) -> None:
    """nccl-tests then ends with smaller messages, and with 0."""
    row = r"\n +8589934592 .*"
    path = nccl.recorded / "nccl.txt"
    path.write_text(
        re.sub(row, "", path.read_text()).replace(
            "#\n# Using", "#\n# Reducing maxBytes to 5284866730 due to memory limitation\n#\n# Using"
        )
    )
    nccl.fails(nccl_test, "asked for 8589934592 bytes, and printed 0 whole rows .*Reducing maxBytes to 5284866730")


def test_messages_that_divide_by_no_ranks_are_a_little_smaller(nccl: Replay) -> None:
    """As all-to-all has them of 12 ranks: nothing of 8 to 32 bytes, 48 of 64."""
    path = nccl.recorded / "nccl.txt"
    text = path.read_text().replace("           8             2 ", "           0             0 ")
    text = text.replace("          16             4 ", "           0             0 ")
    zero = next(line for line in text.splitlines() if line.startswith("           0 "))
    row = "          48            12     float    none      -1    77.7  0.00  0.00      0    77.7  0.00  0.00    N/A"
    text = text.replace("     1048576 ", f"{zero}\n{row}\n     1048576 ")
    path.write_text(text.replace("  8589934592 ", "  8589934560 "))
    assert nccl.passes(nccl_test) == {"bus_bandwidth": 338.82, "latency": 77.7}


FAST = [
    "NET/IB/0",
    "NET/IB/4/GDRDMA",
    "NET/IB/0(1)/GDRDMA",
    "NET/IB/2/GDRDMA/Shared",
    "NET/IB/0/GDRDMA(PCI)",
    "NET/IBext/0",
    "NET/IBext_v11/7",
    "NET/IB-CAST/1",
    "NET/gIB/3/GDRDMA",
    "NET/SPCX/2(0)/GDRDMA",
    "NET/RCCL-ANP/0/GDRDMA",
    "NET/UCX/0/GDRDMA",
    "NET/UCX-RMA/0",
    "NET/Libfabric/3/GDRDMA",
    "NET/OFI/0",
    "NET/FasTrak/0",
    "NET/cxi/0",
    "NET/Slingshot/1/GDRDMA",
    "P2P/MNNVL",
    "P2P/MNNVL/read",
]
SLOW = [
    "NET/Socket/0",
    "NET/Socket/2/Shared",
    "NET/FastSocket/0",
    "NET/GPUDirectTCPX_v7/1",
    "NET/netdedup/0",
    "NET/IBM/0",
    "NET/mesh/0",
]


@pytest.mark.parametrize(
    "said", [*FAST, "NET/AWS Libfabric/7/GDRDMA/Shared", "NET/IB/0/GDRDMA comm 0x9bbf3b0 nRanks 4096"]
)
def test_networks_that_are_known_to_be_fast_pass(nccl: Replay, said: str) -> None:
    nccl.edit("nccl_network.txt", "NET/IBext_v8/7/GDRDMA", said)
    assert nccl.passes(nccl_test)["latency"] == 135.8


@pytest.mark.parametrize("said", SLOW)
def test_any_other_network_is_refused_until_the_site_says_that_it_is_right(nccl: Replay, said: str) -> None:
    name = "/".join(said.split("/")[:2])
    nccl.edit("nccl_network.txt", "via NET/IBext_v8/7/GDRDMA\n", f"via {said}\n")
    nccl.fails(nccl_test, f"NCCL went over {name}, .* write `CATALOGUE_FABRIC: {name}` into")
    assert nccl.passes(nccl_test, CATALOGUE_FABRIC=name)["latency"] == 135.8


@pytest.mark.parametrize("provider", ["efa", "cxi", "tcp", "sockets", "udp"])
def test_libfabric_is_as_fast_as_its_provider(nccl: Replay, provider: str) -> None:
    said = f"n01:7:7 [0] NCCL INFO NET/OFI Selected provider is {provider}, fabric is {provider} (found 4 nics)\n"
    nccl.edit("nccl_network.txt", "NET/IBext_v8/7", "NET/AWS Libfabric/7")
    path = nccl.recorded / "nccl_network.txt"
    path.write_text(said + path.read_text())
    if provider in ("efa", "cxi"):
        assert nccl.passes(nccl_test)["latency"] == 135.8
    else:
        nccl.fails(nccl_test, f"NCCL went over OFI/{provider}, ")
        assert nccl.passes(nccl_test, CATALOGUE_FABRIC="NET/AWS Libfabric.*")["latency"] == 135.8


@pytest.mark.parametrize(
    ("said", "transport"),
    [
        ("P2P/IPC comm 0x44 nRanks 08", "P2P/IPC"),
        ("P2P/direct pointer comm 0x55 nRanks 16", "P2P/direct pointer"),
        ("P2P/CUMEM/read", "P2P/CUMEM"),
        ("SHM/direct/direct comm 0x66 nRanks 08", "SHM/direct"),
        ("NET/IB/0/GDRDMA comm 0x77 nRanks 16", "NET/IB/GDRDMA"),
    ],
)
def test_what_follows_a_transport_is_no_part_of_its_name(nccl: Replay, said: str, transport: str) -> None:
    path = nccl.recorded / "nccl_network.txt"
    path.write_text(f"n01:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {said}\n{path.read_text()}")
    nccl.passes(nccl_test)
    assert nccl.extra["transports"].split(", ") == sorted(["NET/IBext_v8/GDRDMA", transport])


def test_nccl_that_compared_nothing_fails(nccl: Replay) -> None:
    path = nccl.recorded / "nccl.txt"
    path.write_text(re.sub(r"(\d) +0( |$)", r"\1    N/A\2", path.read_text(), flags=re.MULTILINE))
    nccl.fails(nccl_test, "compared nothing that arrived: #wrong is N/A")


@pytest.mark.parametrize(("end", "right"), [("0 OK", True), ("7 FAILED", False)])
@pytest.mark.parametrize("names", [("sum", ""), ("", ""), ("sum", "-1")], ids=["all-reduce", "all-to-all", "with root"])
def test_nccl_tests_before_2_13_are_judged_by_their_end(
    nccl: Replay, names: tuple[str, str], end: str, right: bool
) -> None:
    """As github.com/microsoft/superbenchmark has them: `error` is how far a value is off, and there was no root."""
    path = nccl.recorded / "nccl.txt"
    text = path.read_text().replace("#wrong", " error").replace(" 0\n", " 5e-07\n").replace("      0   ", "  0e+00   ")
    text = text.replace("sum      -1", "   ".join(names)).replace("0 OK", end)
    path.write_text(text)
    if right:
        assert nccl.passes(nccl_test) == {"bus_bandwidth": 338.82, "latency": 135.8}
    else:
        nccl.fails(nccl_test, "values that arrived are wrong")


def test_osu_compares_each_size_that_it_measures(osu: Replay) -> None:
    """It takes smaller messages than it was asked for where its memory limit is lower."""
    path = osu.recorded / "osu.txt"
    path.write_text(re.sub(r"\n16777216 .*Pass", "", path.read_text()))
    osu.fails(test_osu.test_collectives, "OSU compared 16777216 bytes in 0 of 1 collectives")


def test_what_fio_was_asked_for_is_what_it_did(fio: Replay) -> None:
    fio.edit("fio.txt", '"total_ios" : 2000', '"total_ios" : 1500')
    fio.fails(test_fio.test_fio, "of 2000 files, fio created 1500 and deleted 1500")
    fio.edit("fio.txt", '"total_ios" : 1500', '"total_ios" : 2000')
    fio.edit(
        "fio.txt",
        '"io_bytes" : 134217728,\n        "io_kbytes" : 131072,\n        "bw_bytes" : 741534408',
        '"io_bytes" : 9,\n        "bw_bytes" : 741534408',
    )
    fio.fails(test_fio.test_fio, "fio wrote 134217728 bytes, compared 134217728 of them, and read 9")


@pytest.mark.parametrize("missing", ["bw_bytes", "clat_ns", "global options"])
def test_fio_of_another_version_is_one_sentence(fio: Replay, missing: str) -> None:
    """fio 2.15 has `bw` alone, in KiB/s, and other units of the rest."""
    path = fio.recorded / "fio.txt"
    path.write_text(path.read_text().replace(f'"{missing}"', '"else"'))
    fio.fails(test_fio.test_fio, rf"/log: .*{missing} is missing: .* Read is fio 3\.27 and newer$")


def test_ior_that_moved_less_than_it_was_asked_for_fails(ior: Replay) -> None:
    path = ior.recorded / "ior.txt"
    path.write_text(path.read_text().replace('"xsizeMiB": 256.0000', '"xsizeMiB": 128.0000'))
    ior.fails(test_ior.test_ior, "IOR was asked to write 268435456 bytes, and moved 134217728")


def test_ranks_of_ior_that_do_not_find_each_other_fail(ior: Replay) -> None:
    """As those of an mpirun for which IOR is not built: each is alone, and there are as many as were asked for."""
    path = ior.recorded / "ior.txt"
    path.write_text(path.read_text().replace('"numTasks": 2', '"numTasks": 1'))
    ior.fails(test_ior.test_ior, "2 ranks say what they fetched, and IOR has 1 in its write")
    ior.edit("mdtest.txt", "Nodemap: 11", "Nodemap: 1\nNodemap: 1")
    ior.fails(test_ior.test_mdtest, "printed 2 lines `Nodemap`: did its ranks find each other")


def test_megabytes_of_dlio_are_mebibytes(dlio: Replay) -> None:
    dlio.passes(resnet50)
    assert dlio.extra["mb_per_s"] == pytest.approx(186.489538)


def test_steps_and_ranks_of_dlio_that_are_missing_are_named(dlio: Replay) -> None:
    dlio.edit("dlio.txt", "Ending epoch 1 - 18 steps", "Ending epoch 1 - 17 steps")
    dlio.fails(resnet50, "DLIO ended after 17 of 18 steps")
    dlio.edit("dlio.txt", "Ending epoch 1 - 17 steps", "Ending epoch 1 - 18 steps")
    dlio.edit("dlio.txt", "read_bytes: 861585408\n", "")
    dlio.fails(resnet50, "1 of DLIO's 2 ranks say what they fetched from storage")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"Passed"', '"Waived"', "nvbandwidth has waived host_to_device_memcpy_ce: these GPUs have no such copy"),
        ('"Passed"', '"Error"', "nvbandwidth says of host_to_device_memcpy_ce: Error; a copy is wrong"),
        ('"2080.39"', '"N/A"', "nvbandwidth measured device_local_copy of 0 GPUs, and there are 1"),
        ('"device_local_copy"', '"other"', "testcases.device_local_copy is missing: .* Read is nvbandwidth 0.5"),
        ('"testcases"', '"error" : "CUDA_ERROR_X: no GPU", "else"', "nvbandwidth says: CUDA_ERROR_X: no GPU"),
        ('"name" : "device_local_copy"', '"name" :', "begins with 'nvbandwidth' breaks at"),
        ('"bandwidth_matrix"', '"else"', "bandwidth_matrix is missing: "),
    ],
)
def test_nvbandwidth_that_is_not_whole_is_one_sentence(replay: Replay, old: str, new: str, says: str) -> None:
    replay.program("nvbandwidth", 'cat "$RECORDED/nvbandwidth.txt"')
    replay.edit("nvbandwidth.txt", old, new)
    replay.fails(test_nvbandwidth.test_nvbandwidth, says)


@pytest.mark.parametrize(("said", "often"), [("", "no"), ('{"nvbandwidth" : {}}\n{"nvbandwidth" : {}}\n', "2")])
def test_a_result_that_is_not_there_once_is_one_sentence(replay: Replay, said: str, often: str) -> None:
    with pytest.raises(
        ValueError, match=f"/log has {often} JSON objects that begin with 'nvbandwidth', and one is wanted"
    ):
        replay.body(test_nvbandwidth.test_nvbandwidth, said)


@pytest.mark.parametrize(
    "said",
    [
        "This system uses 4 bytes per array element.",
        "This system uses 4 bytes per DOUBLE PRECISION word.",
    ],
)
def test_arrays_of_stream_have_the_bytes_that_it_says(stream: Replay, said: str) -> None:
    stream.edit("stream.txt", "This system uses 8 bytes per array element.", said)
    stream.fails(
        test_stream.test_stream,
        "arrays of 67108864 bytes, 4 an element: STREAM measured a cache of 33554432",
        STREAM_C=__file__,
    )


@pytest.mark.parametrize("lscpu", ['echo "ALL-SIZE"', "exit 1", "true"])
def test_a_node_whose_cache_is_not_known_is_told_what_to_write(stream: Replay, hpcc: Replay, lscpu: str) -> None:
    stream.program("lscpu", f'case $1 in -p*) echo "0,0" ;; *) {lscpu} ;; esac')
    for test in (test_stream.test_stream, test_hpl.test_hpl):
        done = stream.job(test, STREAM_C=__file__)
        assert done.returncode == 127
        assert done.stdout.startswith("lscpu knows no cache of this node: write CATALOGUE_CACHE, ")
    passed = stream.passes(test_stream.test_stream, STREAM_C=__file__, CATALOGUE_CACHE="33554432")
    assert passed == {"triad": 4.968}


def test_hpl_alone_is_one_sentence(hpcc: Replay) -> None:
    path = hpcc.recorded / "hpcc.txt"
    path.write_text(path.read_text().partition("Begin of Summary")[0])
    hpcc.fails(test_hpl.test_hpl, r"no whole summary of hpcc \(1.4 and 1.5 are read\): HPL alone, xhpl, prints none")


def test_words_of_torchtitan_in_2024_are_tokens(torchtitan: Replay) -> None:
    """As in github.com/pytorch/torchtitan's own docs of that year: `wps: 1,710  mfu: 23.50%`."""
    torchtitan.edit("torchtitan.txt", "tps: ", "wps: ")
    assert torchtitan.passes(test_torchtitan.test_torchtitan) == {"tokens_per_s_per_device": 7051.0}


def test_all_ranks_of_torchtitan_log_each_step(torchtitan: Replay) -> None:
    path = torchtitan.recorded / "torchtitan.txt"
    lines = path.read_text().splitlines()
    both = [line for line in lines for _ in range(2 if " step: " in line else 1)]
    path.write_text("\n".join(both))
    assert torchtitan.passes(test_torchtitan.test_torchtitan) == {"tokens_per_s_per_device": 7051.0}
    torchtitan.metrics.clear()
    del both[next(index for index, line in enumerate(both) if "step: 50 " in line)]
    path.write_text("\n".join(both))
    torchtitan.fails(test_torchtitan.test_torchtitan, "step 50 is logged 1 times, step 100 2 times")


@pytest.mark.parametrize("name", ["group_query_attention", "untie_embeddings_and_output_weights", "world_size"])
def test_an_argument_that_megatron_deepspeed_has_not_is_named(megatron: Replay, name: str) -> None:
    megatron.edit("megatron.txt", f"  {name} ..", "  else ..")
    megatron.fails(
        test_megatron.test_megatron,
        rf"/log: {name} is missing: .* Read is Megatron-LM, core 0\.5 and newer, and not Megatron-DeepSpeed$",
        MEGATRON="pretrain_gpt.py",
    )


def of_vllm(replay: Replay, *edits: tuple[str, str]) -> dict[str, object]:
    """What is recorded of vLLM's result, as it was recorded but for these edits."""
    text = (RECORDED / "vllm.txt").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    replay.body(test_vllm.test_vllm, text)
    return replay.metrics


def test_vllm_of_2025_is_read(replay: Replay) -> None:
    """It has no `failed`, and a colon in the key of --goodput's requests."""
    edits = ('    "failed": 0,\n', ""), ('"request_goodput": null', '"request_goodput:": 5.5')
    assert of_vllm(replay, *edits)["goodput"] == (5.5, "requests/s", "higher")


def test_the_percentiles_of_vllm_are_those_that_were_asked_for(replay: Replay) -> None:
    of_vllm(replay, ('"p99_', '"p95_'))
    assert {key for key in replay.extra if key.endswith("_ms")} == {"ttft_p95_ms", "tpot_p95_ms"}


def test_answers_of_one_token_have_no_further_one(replay: Replay) -> None:
    edits = ('"total_output_tokens": 128', '"total_output_tokens": 8'), ('"median_tpot_ms": 7', '"median_tpot_ms": 0')
    assert of_vllm(replay, *edits).keys() == {"output", "ttft"}


@pytest.mark.parametrize("key", ["num_prompts", "completed", "output_throughput", "median_ttft_ms", "model_id"])
def test_a_key_that_vllm_lacks_is_one_sentence(replay: Replay, key: str) -> None:
    says = rf"/log: {key} is missing: .* Read is the result of `vllm bench serve`, of vLLM 0\.8 and newer$"
    with pytest.raises(ValueError, match=says):
        of_vllm(replay, (f'"{key}"', '"else"'))
    assert not replay.metrics


@pytest.mark.parametrize(
    ("gone", "says"),
    [("step: 50 ", "of every 10 steps one is logged, but not step 50"), ("step: 100 ", "but not step 100")],
)
def test_a_step_that_is_missing_is_named(torchtitan: Replay, gone: str, says: str) -> None:
    path = torchtitan.recorded / "torchtitan.txt"
    path.write_text("\n".join(line for line in path.read_text().split("\n") if gone not in line))
    torchtitan.fails(test_torchtitan.test_torchtitan, says)


def test_ranks_of_a_pipeline_that_have_no_loss_are_refused(torchtitan: Replay) -> None:
    path = torchtitan.recorded / "torchtitan.txt"
    path.write_text(re.sub(r"loss: +[\d.]+", "loss: -1.0000", path.read_text()))
    torchtitan.fails(test_torchtitan.test_torchtitan, "no loss is logged: a rank that has none writes -1")
