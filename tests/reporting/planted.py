"""The machines of a simulated centre, and what happens to them in a year. report_year.py makes the runs.

The rates of ARCHER2's CPUs, of EIDF's A100s, of Graphcore and of Cerebras are those of Rae et al.
(reporting/tables/anchors.yaml). Those of the other machines are guesses: so many times an A100, or a CPU of ARCHER2.
Events are told in nights before the last night, which is 0, so that a shorter year ends in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

GIB = 2**30


@dataclass(frozen=True)
class SimulatedPlatform:
    """A platform, as its jobs describe it.

    Attributes:
        device: as torch names it.
        rates: by benchmark, in gbs32: effective throughput in samples/s, and the compute fraction.
        tuned: how many times faster the configuration `tuned` is.
        nodes: how many the platform has; node: the name of one, with its number.
        noise: how much of the recorded machine's noise its runs have; that one shares its processor with others.
        cases: what follows the layout in the tests' ids, by benchmark; None for `gbs32` and `tuned`.
    """

    name: str
    layout: str
    device: str
    kind: str
    memory_gib: int
    rates: Mapping[str, tuple[float, float]]
    tuned: float
    node: str
    nodes: int
    cpu: str
    cores: int
    noise: float = 0.1
    driver: str = ""
    image: str = ""
    launcher: str = "torchrun"
    backend: str = "nccl"
    sockets: int = 1
    cases: Mapping[str, tuple[str, ...]] | None = None

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Benchmark and case of each of its six tests."""
        cases = self.cases or dict.fromkeys(self.rates, ("gbs32", "tuned"))
        return [(benchmark, case) for benchmark, settings in cases.items() for case in settings]


def _gpu(
    name: str, device: str, memory_gib: int, times_a100: float, node: str, cpu: str, **more: Any
) -> SimulatedPlatform:
    """A node of four GPUs that is so many times as fast as EIDF's A100s."""
    rates = {"resnet50": (179.7, 0.794), "cosmoflow": (58.1, 0.493), "deepcam": (13.7, 0.535)}
    return SimulatedPlatform(
        **{
            "name": name,
            "layout": "1x4gpu",
            "device": device,
            "kind": "cuda",
            "memory_gib": memory_gib,
            "rates": {benchmark: (times_a100 * rate, share) for benchmark, (rate, share) in rates.items()},
            "tuned": 3.4,
            "node": node,
            "nodes": 12,
            "cpu": cpu,
            "cores": 64,
            "driver": "570.124.06",
            **more,
        }
    )


_IMAGE = "ghcr.io/example/pytorch:25.09"
_CPU_RATES = {"resnet50": (40.1, 0.989), "cosmoflow": (14.8, 0.989), "deepcam": (6.1, 0.987)}

PLATFORMS: tuple[SimulatedPlatform, ...] = (
    _gpu("eidf_a100", "NVIDIA A100-SXM4-40GB", 40, 1.0, "eidf-a100-{:02}", "AMD EPYC 7742", image=_IMAGE),
    _gpu("isambard_ai", "NVIDIA GH200 120GB", 96, 2.6, "nid0010{:02}", "Neoverse-V2", driver="565.57.01"),
    _gpu("alps_clariden", "NVIDIA GH200 120GB", 96, 2.5, "nid0052{:02}", "Neoverse-V2", driver="550.54.15"),
    SimulatedPlatform(
        "archer2_cpu", "2x2cpu", "AMD EPYC 7742 64-Core Processor", "cpu", 256, _CPU_RATES, 1.3, "nid0034{:02}", 24,
        "AMD EPYC 7742 64-Core Processor", 128, noise=0.12, launcher="srun", backend="mpi", sockets=2,
    ),
    SimulatedPlatform(
        "cirrus_ex", "2x2cpu", "AMD EPYC 9825 144-Core Processor", "cpu", 768,
        {benchmark: (2.3 * rate, share) for benchmark, (rate, share) in _CPU_RATES.items()}, 1.4, "cx0{:02}", 16,
        "AMD EPYC 9825 144-Core Processor", 288, noise=0.12, launcher="srun", backend="gloo", sockets=2,
    ),
    _gpu("eidf_h100", "NVIDIA H100 80GB HBM3", 80, 2.1, "eidf-h100-{:02}", "Intel Xeon Platinum 8468", image=_IMAGE),
    _gpu(
        "archer2_mi210", "AMD Instinct MI210", 64, 1.2, "nid2000{:02}", "AMD EPYC 7543P", nodes=4, driver="6.7.0",
        cores=32,
    ),
    SimulatedPlatform(
        "graphcore", "1x8ipu", "Graphcore Bow", "ipu", 400, {"resnet50": (255.6, 0.97), "cosmoflow": (14.5, 0.96)}, 1.0,
        "bow-pod64-{:02}", 4, "AMD EPYC 7742", 128, driver="3.3.0", image="graphcore/pytorch:3.3.0",
        launcher="poprun", backend="popart",
        cases={"resnet50": ("gbs32", "gbs32-subset", "gbs32-blocking"),
               "cosmoflow": ("gbs32", "gbs32-subset", "gbs32-blocking")},
    ),
    _gpu("eidf_h200", "NVIDIA H200", 141, 2.4, "eidf-h200-{:02}", "Intel Xeon Platinum 8568Y+", image=_IMAGE),
    SimulatedPlatform(
        "cerebras_cs2", "1x1csx", "Cerebras CS-2", "csx", 40, {"resnet50": (452.0, 0.95)}, 1.0, "cs2-{:02}", 1,
        "Intel Xeon Gold 6248", 40, driver="2.1.1", launcher="none", backend="none",
        cases={"resnet50": ("gbs32", "gbs32-smoke", "gbs32-subset", "gbs32-blocking", "gbs32-subset-blocking"),
               "compile_time": ("",)},
    ),
)  # fmt: skip


@dataclass(frozen=True)
class PlantedEvent:
    """Something that happens to a platform, and what a report must say of it while it lasts.

    Attributes:
        effect: `speed` changes the tests' times; `failed`: their jobs have no numbers; `absent`: they do not run;
            `doubt`: others work on their nodes; `begins`: the platform has no run before; `data`: another part of the
            data is in memory; `nothing`: only provenance changes.
        condition: what a report says of these tests in the last night, if it lasts.
        first, last: nights before the last night; None: it lasts.
        tests: the change of each test's throughput, by benchmark and case; negative is slower. () stands for all tests.
        part: of a step, to which the time is added.
        node: the change is on this node alone.
        changed: provenance with other values from the first night on.
        note: what a person notes on the first night.
        answer: `accept`, `ack` or `pause`: given on the morning after so many nights, with the reason.
        for_nights: how long an acknowledgement or a pause holds, counted from the last night.
    """

    name: str
    platform: str
    effect: Literal["speed", "failed", "absent", "doubt", "begins", "data", "nothing"]
    first: int
    last: int | None = None
    condition: str = "ok"
    tests: Mapping[tuple[str, str], float] = field(default_factory=dict)
    part: str = "step_ms"
    node: str = ""
    changed: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    answer: tuple[str, int, str] | None = None
    for_nights: int = 0

    def holds(self, ago: int) -> bool:
        """Whether it has its effect in a night."""
        return ago <= self.first and (self.last is None or ago >= self.last)

    def concerns(self, benchmark: str, case: str) -> bool:
        return not self.tests or (benchmark, case) in self.tests


_UPGRADE = {
    ("resnet50", "gbs32"): -0.042,
    ("resnet50", "tuned"): -0.084,
    ("cosmoflow", "gbs32"): -0.051,
    ("cosmoflow", "tuned"): -0.061,
    ("deepcam", "gbs32"): -0.045,
    ("deepcam", "tuned"): -0.073,
}

EVENTS: tuple[PlantedEvent, ...] = (
    PlantedEvent(
        "driver upgrade", "eidf_a100", "speed", 12, condition="slower", tests=_UPGRADE,
        changed={"driver": "580.65.06"},
    ),
    PlantedEvent(
        "file system", "isambard_ai", "speed", 9, condition="slower", tests={("deepcam", "tuned"): -0.074},
        part="wait_ms", note="the data are on a new Lustre file system now, below the same path",
    ),
    PlantedEvent(
        "faster decoder", "isambard_ai", "speed", 25, condition="faster", tests={("resnet50", "tuned"): 0.055},
        part="wait_ms", changed={"decoder": "simplejpeg 1.9.0"},
    ),
    PlantedEvent("slow node", "alps_clariden", "speed", 16, condition="slower", node="nid005207",
          tests={("resnet50", "gbs32"): -0.11, ("resnet50", "tuned"): -0.12, ("cosmoflow", "gbs32"): -0.11,
                 ("cosmoflow", "tuned"): -0.105, ("deepcam", "gbs32"): -0.115, ("deepcam", "tuned"): -0.12}),
    PlantedEvent(
        "acknowledged", "archer2_cpu", "speed", 40, condition="acknowledged", tests={("cosmoflow", "gbs32"): -0.062},
        changed={"kernel": "5.14.21-150500.55.97"},
        answer=("ack", 3, "https://gitlab.example.org/hpc/tickets/212"), for_nights=14,
    ),
    PlantedEvent(
        "accepted", "cirrus_ex", "speed", 210, tests={("resnet50", "gbs32"): -0.053, ("resnet50", "tuned"): -0.048},
        changed={"torch": "2.13.0"}, answer=("accept", 8, "torch 2.13 must stay, vendor case 4711"),
    ),
    PlantedEvent("blind", "cirrus_ex", "doubt", 6, condition="blind", tests={("deepcam", "tuned"): 0.0}),
    PlantedEvent("drift", "eidf_h100", "speed", 30, condition="slower", tests={("cosmoflow", "tuned"): -0.022}),
    PlantedEvent(
        "fixed regression", "eidf_h100", "speed", 150, 138, changed={"kernel": "5.15.0-119-generic"},
        tests={("resnet50", "gbs32"): -0.05, ("resnet50", "tuned"): -0.064, ("deepcam", "tuned"): -0.07},
    ),
    PlantedEvent(
        "fix", "eidf_h100", "nothing", 137, changed={"kernel": "5.15.0-122-generic"},
        note="kernel 5.15.0-122 has the fix of the IOMMU",
    ),
    PlantedEvent("failed nights", "archer2_mi210", "failed", 1, condition="failed", tests={("deepcam", "tuned"): 0.0}),
    PlantedEvent("outage", "archer2_mi210", "absent", 122, 118, note="maintenance of the cooling"),
    PlantedEvent(
        "paused", "graphcore", "absent", 20, condition="paused",
        answer=("pause", 0, "the pod is away for repair"), for_nights=25,
    ),
    PlantedEvent("new platform", "eidf_h200", "begins", 10, condition="learning"),
    PlantedEvent("data in memory", "cerebras_cs2", "data", 95, 95, tests={("resnet50", "gbs32"): 0.0}),
)  # fmt: skip
