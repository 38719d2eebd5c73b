"""What bounds a run follows from its windows and phases; a cause that explains little is not named."""

import math
from dataclasses import replace
from typing import Any

import pytest

from models.bounds import Evidence, Loading, Rank, decomposition, parts_of

FAST_LOADER = Loading(1, 5.0, processor=1.0, blocked=0.0, queued=0.0, occupied=0.9, processor_ms=5.0)
NOTHING_LOST = Evidence(
    step_ms=100.0,
    wait_ms=1.0,
    copy_ms=0.0,
    busy_ms=99.0,
    computing_ms=98.0,
    ranks=(Rank("rank 0 on n01", 98.0, 0.0),),
    loading=FAST_LOADER,
)


def slow_loader(blocked: float, **changes: Any) -> Evidence:
    """The loop waits for 150 of 250 ms, and the loader alone takes 245."""
    loading = Loading(2, 245.0, 1 - blocked, blocked, queued=0.0, occupied=1.0, processor_ms=490 * (1 - blocked))
    return replace(NOTHING_LOST, **{"step_ms": 250.0, "wait_ms": 151.0, "loading": loading, **changes})


def two_ranks(*alone_ms: float, computing_ms: float, core_wait: float = 0.0) -> Evidence:
    """The second rank waits for a core."""
    ranks = (Rank("rank 0 on n01", alone_ms[0], 0.0), Rank("rank 1 on n02", alone_ms[1], core_wait))
    times = {"computing_ms": computing_ms, "busy_ms": computing_ms + 1, "step_ms": computing_ms + 2}
    return replace(NOTHING_LOST, ranks=ranks, **times)


MORE_WORKERS = Loading(8, 62.0, 0.9, 0.1, 0.0, 1.0, 400.0)
CAUSES = {
    "device": (NOTHING_LOST, "bound by the device: a step takes 100 ms, 98% of it its own computing", ""),
    "storage": (
        slow_loader(0.95, again=replace(FAST_LOADER, workers=2)),
        "bound by storage (the loader alone: 245 ms a step, 2 workers waiting for it in 95% of their time; the same "
        "samples again: 5 ms)",
        "a faster file system for the set; --cache warm says",
    ),
    "decoding": (
        slow_loader(0.02, more=MORE_WORKERS),
        "bound by decoding on 2 workers (the loader alone: 245 ms a step): a step takes 250 ms, and this explains 98% "
        "of the 152 ms lost",
        "workers: 8 in the platform's file; 8 workers read 4.0 times as fast as 2",
    ),
    "copy": (replace(NOTHING_LOST, step_ms=150.0, copy_ms=50.0), "copies to the device (50 ms a step)", "test_nvband"),
    "threads": (
        replace(NOTHING_LOST, more_threads=2, more_threads_ms=52.0),
        "bound by 1 thread: in 2 a step of 98 ms takes 52 ms",
        "threads_per_rank: 2",
    ),
    "communication": (
        two_ranks(50.0, 51.0, computing_ms=100.0),
        "without it a step of 100 ms takes 51 ms",
        "test_nccl.py",
    ),
    "slow rank": (
        two_ranks(50.0, 100.0, computing_ms=105.0),
        "a slow rank: rank 1 on n02 takes 50 ms a step longer than the others for its own work",
        "--each-node",
    ),
    "quota": (
        replace(NOTHING_LOST, ranks=(Rank("rank 0 on n01", 98.0, 0.5),), quota=1.0, throttled=0.9),
        "a CPU quota of 1 core(s), used up in 90% of its periods",
        "CPU limit",
    ),
    "neighbours": (
        replace(NOTHING_LOST, ranks=(Rank("rank 0 on n01", 98.0, 0.5),), neighbours=0.5),
        "neighbours, who used 0.5 of the job's cores",
        "--exclusive",
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_that_explains_the_loss_is_named_with_what_to_try(cause: str) -> None:
    evidence, text, following = CAUSES[cause]
    found = decomposition(evidence)
    assert found["bound"] == cause
    assert 0.8 <= found["explains"] <= 1
    assert text in found["text"]
    assert following in found["next"]
    assert math.fsum(found["parts_ms"].values()) == pytest.approx(evidence.step_ms)


def test_two_causes_of_which_none_explains_enough_are_both_told_and_none_is_named() -> None:
    found = decomposition(slow_loader(0.6))
    assert (found["bound"], found["explains"]) == (None, None)
    assert "no cause explains 80% of the 152 ms lost: storage 60%, decoding 40%" in found["text"]
    assert "catalogue/test_fio.py" in found["next"]


def test_a_share_that_rounds_to_nothing_is_not_told() -> None:
    text = decomposition(slow_loader(0.6, copy_ms=0.1, step_ms=250.1))["text"]
    assert text.endswith("storage 60%, decoding 40%")
    text = decomposition(slow_loader(0.6, loading=replace(FAST_LOADER, step_ms=100.0), copy_ms=0.1))["text"]
    assert ": decoding 66%, no known cause 34%" in text


def test_a_wait_that_the_loader_alone_does_not_need_is_not_put_on_it() -> None:
    quick = replace(slow_loader(0.95).loading or FAST_LOADER, step_ms=20.0)
    found = decomposition(slow_loader(0.95, loading=quick))
    assert found["bound"] is None
    assert found["parts_ms"]["unexplained"] == pytest.approx(132.0)


def test_a_loader_whose_workers_are_idle_is_not_bound_by_them() -> None:
    idle = replace(slow_loader(0.95).loading or FAST_LOADER, occupied=0.1)
    assert decomposition(slow_loader(0.95, loading=idle))["bound"] is None


def test_what_computing_loses_beside_a_busy_loader_is_decoding() -> None:
    """On a processor the loader takes cores from computing."""
    evidence = slow_loader(0.02, step_ms=250.0, wait_ms=100.0, busy_ms=150.0)
    assert decomposition(evidence)["bound"] == "decoding"
    assert parts_of(evidence)["decoding"] == pytest.approx(152 * 0.98)


def test_what_computing_loses_after_waiting_is_of_what_it_waited_for() -> None:
    evidence = slow_loader(0.95, step_ms=290.0, wait_ms=150.0, busy_ms=139.0)
    assert parts_of(evidence)["storage"] == pytest.approx((150 + 41) * 0.95)
    assert decomposition(replace(evidence, wait_ms=10.0, busy_ms=160.0, step_ms=170.0))["bound"] is None


@pytest.mark.parametrize(
    ("cause", "counted"), [("neighbours", {"neighbours": 8.0}), ("quota", {"quota": 4.0, "throttled": 0.9})]
)
def test_where_a_device_computes_it_is_the_loader_that_others_or_a_quota_hold_up(
    cause: str, counted: dict[str, Any]
) -> None:
    """Its workers wait for a core in half of their time: without that they would keep up."""
    loading = Loading(15, 190.0, processor=0.5, blocked=0.0, queued=0.5, occupied=0.9, processor_ms=1300.0)
    evidence = replace(NOTHING_LOST, step_ms=192.0, wait_ms=93.0, loading=loading, on_device=True, **counted)
    found = decomposition(evidence)
    assert found["bound"] == cause
    assert parts_of(replace(evidence, **dict.fromkeys(counted, 0.0)))["decoding"] == pytest.approx(93.0, abs=1)
    assert decomposition(replace(evidence, wait_ms=1.0, step_ms=100.0))["bound"] == "device"
    assert math.fsum(found["parts_ms"].values()) == pytest.approx(192.0)


def test_a_rank_that_waits_for_a_core_is_no_slow_rank() -> None:
    evidence = replace(two_ranks(50.0, 100.0, computing_ms=105.0, core_wait=0.45), neighbours=0.9)
    assert decomposition(evidence)["bound"] == "neighbours"


def test_a_straggler_of_the_windows_explains_what_it_takes_longer_there_than_by_itself() -> None:
    evidence = replace(two_ranks(50.0, 100.0, computing_ms=105.0), busy_ms=140.0, step_ms=141.0)
    assert decomposition(evidence)["bound"] is None
    assert decomposition(replace(evidence, straggler=(1, 84.0)))["parts_ms"]["slow rank"] == pytest.approx(84.0)
    assert decomposition(replace(evidence, straggler=(0, 84.0)))["parts_ms"]["slow rank"] == pytest.approx(50.0)


def test_a_straggler_is_also_slow_in_what_it_does_for_the_exchange() -> None:
    """By itself it takes 50 ms longer, with the others 70; of 40 ms that the exchange adds it waits for 10."""
    evidence = replace(two_ranks(50.0, 100.0, computing_ms=140.0), straggler=(1, 70.0), exchange_ms=10.0)
    parts = parts_of(evidence)
    assert (parts["slow rank"], parts["communication"]) == pytest.approx((70.0, 21.0), abs=1)
    parts = parts_of(replace(evidence, exchange_ms=35.0))
    assert (parts["slow rank"], parts["communication"]) == pytest.approx((56.0, 35.0), abs=1)


def test_work_on_the_nodes_other_cores_is_told_and_is_no_cause() -> None:
    found = decomposition(replace(NOTHING_LOST, elsewhere=1.0))
    assert found["bound"] == "device"
    assert "while others used 1.0 of the node's other cores" in found["text"]


def test_workers_that_wait_while_all_files_are_in_memory_do_not_wait_for_storage() -> None:
    in_memory = replace(slow_loader(0.95).loading or FAST_LOADER, resident=1.0)
    found = decomposition(slow_loader(0.95, loading=in_memory))
    assert (found["bound"], found["parts_ms"]["storage"]) == (None, 0.0)


def test_phases_that_contradict_the_windows_say_so() -> None:
    slower = decomposition(replace(NOTHING_LOST, computing_ms=120.0))
    assert "computing by itself was 21% of a step slower than in the windows, and why is not known" in slower["text"]
    faster = decomposition(replace(NOTHING_LOST, computing_ms=70.0))
    said = (
        "in the windows computing takes 29 ms a step longer than by itself, and 29 ms of the step have no known cause"
    )
    assert said in faster["text"]
    assert faster["bound"] is None


def test_a_split_model_does_not_tell_computing_from_communication() -> None:
    ranks = [Rank("rank 0 on n01", None, 0.0), Rank("rank 1 on n02", None, 0.0)]
    found = decomposition(replace(NOTHING_LOST, ranks=ranks))
    assert (found["bound"], found["next"]) == (None, "")
    assert "98% of it computing or communication, which cannot be told apart" in found["text"]
