"""Invented reports for the tests of the page: a year of ten platforms, and sites in other states."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from reporting.compare.scaling import Kind, ScaledLayout, Scaling
from reporting.report.data import (
    SCHEMA,
    Condition,
    Incident,
    Level,
    NodeReport,
    NoteReport,
    Part,
    PlatformReport,
    Point,
    ReportData,
    SeriesReport,
    TestReport,
)
from tests.reporting import report_series

LAST_NIGHT = datetime.date(2026, 11, 22)
DEVICES = {
    "eidf_a100": ("NVIDIA A100-SXM4-40GB", 4, 9216.0),
    "isambard_ai": ("NVIDIA GH200 120GB", 4, 14120.0),
    "lumi_g": ("AMD Instinct MI250X", 8, 8120.0),
    "archer2_mi210": ("AMD Instinct MI210", 4, 5310.0),
    "cirrus_v100": ("NVIDIA V100-SXM2-16GB", 4, 3980.0),
    "jureca_h100": ("NVIDIA H100 PCIe", 4, 11200.0),
    "graphcore_pod16": ("Graphcore GC200 IPU", 16, 7340.0),
    "cerebras_cs2": ("Cerebras WSE-2", 1, 6120.0),
    "k8s_l40s": ("NVIDIA L40S", 4, 6020.0),
    "archer2_cpu": ("AMD EPYC 7742", 2, 122.0),
}
WORKLOADS = (
    ("resnet50", "1x4gpu", "tuned", 1.0),
    ("resnet50", "1x4gpu", "gbs32", 0.31),
    ("cosmoflow", "1x4gpu", "tuned", 0.042),
    ("cosmoflow", "2x4gpu", "tuned", 0.081),
    ("deepcam", "1x4gpu", "tuned", 0.0093),
    ("deepcam", "1x4gpu", "tuned-cold", 0.0081),
)
DRIVER = "driver 580.82 -> 590.11"


def night(ago: int) -> str:
    return (LAST_NIGHT - datetime.timedelta(days=ago)).isoformat()


def series(
    seed: str,
    level: float,
    *,
    nights: int = 365,
    condition: Condition = Condition.OK,
    drop: float = 0.0,
    for_nights: int = 0,
    changes: Sequence[str] = (),
    gaps: Sequence[int] = (),
    test: str = "test",
    **said_of_it: str,
) -> SeriesReport:
    """A series whose last `for_nights` nights are `drop` away from `level`. In `gaps`, nights ago, it has no run."""
    draw = random.Random(seed)
    points = []
    for ago in reversed(range(nights)):
        is_changed = ago < for_nights
        value: float | None = level * (1 + (drop if is_changed else 0.0) + draw.gauss(0, 0.006))
        state, said = Condition.OK, ""
        if nights - ago <= 20:
            state = Condition.LEARNING
        if is_changed and condition is not Condition.PAUSED:
            state = condition
            said = f"{100 * drop:+.1f} %, slower since {night(for_nights - 1)}"
        if draw.random() < 0.006:
            value, state, said = None, Condition.FAILED, "error"
        if ago in gaps:
            continue
        if condition is Condition.FAILED and is_changed:
            value, said = None, "failed: out of memory"
        points.append(
            Point(
                night=night(ago),
                started_s=1_763_000_000.0 + (nights - ago) * 86400.0,
                run_id=f"nightly-{night(ago)}",
                value=value if value is None else round(value, 3),
                condition=state,
                said=said,
                nodes=(f"nid{draw.randrange(1000, 1040):06d}",),
                doubts=("crowded",) if draw.random() < 0.01 else (),
                changes=tuple(changes) if changes and ago == for_nights - 1 else (),
            )
        )
    with_value = [point for point in points if point.value is not None]
    last = with_value[-1] if with_value else None
    is_learning = nights < 20
    pin = None if is_learning else level
    is_away = for_nights > 0 and condition not in (Condition.FAILED, Condition.BLIND, Condition.PAUSED)
    since = night(for_nights - 1) if is_away else None
    change = None
    if pin is not None and last is not None and last.value is not None:
        change = drop if is_away else last.value / pin - 1
    short = _short(condition, change, since, nights)
    wait, step = 170e3 / level, 826e3 / level
    return report_series.series(
        points,
        condition=Condition.LEARNING if is_learning and condition is Condition.OK else condition,
        kind=condition.value,
        value_night=last.night if last else None,
        pin=pin,
        change=change,
        limit=None if pin is None else 0.0138,
        since=since,
        short=short,
        text=_text(test, level, change, since, short),
        **said_of_it,
        levels=() if pin is None else (Level(level, night(nights - 1), None, "median of 20 runs"),),
        parts=(Part("wait_ms", wait, wait), Part("step_ms", step, step * (1 - (change or 0.0)))),
    )


def _short(condition: Condition, change: float | None, since: str | None, nights: int) -> str:
    if nights < 20:
        return f"learning {nights} of 20"
    if since is not None and change is not None:
        return f"{100 * change:+.1f} %, slower since {since}"
    return condition.value


def _text(test: str, level: float, change: float | None, since: str | None, short: str) -> str:
    if since is None or change is None:
        return f"{test}: effective throughput: {short}"
    return f"""{test}: effective throughput is {-100 * change:.1f} % below its pin of {level:.1f}, slower since {since}
If the new level is right from now on:
  python -m reporting accept '{test}' --since {since} --reason 'WHY'
How it was computed (docs/gate.md):
  pin             {level:.1f} samples/s, the median of 20 runs, 2025-11-23 to 2025-12-12
  last 7 nights   {100 * change:+.1f} %; limit 1.38 % = 3 x error, at least 1 %  RED"""


def test_id(platform: str, workload: str, layout: str, setting: str) -> str:
    return f"test_{workload}.py::test_{workload}[{platform}-{layout}-{setting}]"


def test_of(platform: str, number: int, nights: int, **planted: object) -> TestReport:
    """One test; `planted` are the arguments of `series` that say what is wrong with it."""
    device, devices, level = DEVICES[platform]
    workload, layout, setting, share = WORKLOADS[number]
    name = test_id(platform, workload, layout, setting)
    one = series(name, level * share, nights=nights, test=name, **planted)  # type: ignore[arg-type]
    is_failing = one.condition is Condition.FAILED
    return report_series.report_of(
        one,
        id=name,
        platform=platform,
        workload=workload,
        layout=layout,
        setting=setting,
        device=device,
        devices=devices,
        folder=f"test_{workload}-{platform}-{layout}-{setting}",
        last_run=one.points[-1].run_id if one.points else "",
        last_outcome="failed" if is_failing else "passed",
        failed_since=night(2) if is_failing else None,
        failed_nights=int(planted.get("for_nights", 0)) if is_failing else 0,  # type: ignore[call-overload]
        device_hours=0.4 * nights,
    )


# what is wrong in the ordinary year: (platform, tests) -> the arguments of `series`
PLANTED: dict[tuple[str, tuple[int, ...]], dict[str, object]] = {
    ("eidf_a100", (0, 1, 3)): {
        "condition": Condition.SLOWER,
        "drop": -0.084,
        "for_nights": 6,
        "changes": (DRIVER,),
        "where": "all of it in the device step; input unchanged",
        "why": f"changed: {DRIVER}",
    },
    ("lumi_g", (4,)): {
        "condition": Condition.SLOWER,
        "drop": -0.041,
        "for_nights": 2,
        "where": "all of it in waiting for data; device step unchanged",
    },
    ("cirrus_v100", (2,)): {"condition": Condition.FAILED, "for_nights": 3},
    ("isambard_ai", (5,)): {"condition": Condition.SUSPECT, "drop": -0.062, "for_nights": 1},
    ("archer2_mi210", (0, 2)): {
        "condition": Condition.ACKNOWLEDGED,
        "drop": -0.11,
        "for_nights": 24,
        "ticket": "https://gitlab.example.org/hpc/tickets/17",
    },
    ("jureca_h100", (1,)): {"condition": Condition.BLIND, "gaps": tuple(range(9))},
    ("graphcore_pod16", (0, 1, 2, 3, 4, 5)): {"condition": Condition.PAUSED, "gaps": tuple(range(12))},
    ("k8s_l40s", (0,)): {"condition": Condition.FASTER, "drop": 0.061, "for_nights": 11},
    ("cerebras_cs2", (4,)): {"gaps": (33, 34, 35, 36, 70)},
}


def incidents() -> tuple[Incident, ...]:
    """Those of the ordinary year, in the order of their urgency."""

    def ids(platform: str, *numbers: int) -> tuple[str, ...]:
        return tuple(test_id(platform, *WORKLOADS[number][:3]) for number in numbers)

    nothing = "nothing that is recorded has changed"
    return (
        Incident(
            Condition.SLOWER, "eidf_a100", night(5), 6, ids("eidf_a100", 0, 1, 3), 6, -0.084, -0.061,
            "3 of 6 tests are 6.1 to 8.4 % slower", "device step; on all nodes",
            f"{DRIVER}; note: the cooling has new pumps (ada)",
        ),
        Incident(
            Condition.SLOWER, "lumi_g", night(1), 2, ids("lumi_g", 4), 6, -0.041, -0.041,
            "deepcam 1x4gpu tuned is 4.1 % slower", "waiting for data; on nid001004 and nid001017", nothing,
        ),
        Incident(
            Condition.FAILED, "cirrus_v100", night(2), 3, ids("cirrus_v100", 2), 6, None, None,
            "cosmoflow 1x4gpu tuned has no numbers: out of memory", "on r2i0n1", nothing,
        ),
        Incident(
            Condition.SUSPECT, "isambard_ai", night(0), 1, ids("isambard_ai", 5), 6, -0.062, -0.062,
            "deepcam 1x4gpu tuned-cold was 6.2 % slower once", "on nid001021", nothing,
        ),
        Incident(
            Condition.ACKNOWLEDGED, "archer2_mi210", night(23), 24, ids("archer2_mi210", 0, 2), 6, -0.11, -0.094,
            "2 of 6 tests are 9.4 to 11.0 % slower", "copies to the device",
            "image 25.10 -> 25.11; known: https://gitlab.example.org/hpc/tickets/17",
        ),
    )  # fmt: skip


def report(
    tests: Sequence[TestReport],
    found: Sequence[Incident] = (),
    headline: str = "No test is slower",
    nodes: Sequence[NodeReport] = (),
    notes: Sequence[NoteReport] = (),
    problems: Sequence[str] = (),
) -> ReportData:
    """A whole report of these tests."""
    platforms = {}
    for name in dict.fromkeys(test.platform for test in tests):
        own = [test for test in tests if test.platform == name]
        nights = [point.night for test in own for one in test.series for point in one.points]
        platforms[name] = PlatformReport(
            name=name,
            tests=len(own),
            conditions=dict(Counter(test.condition.value for test in own)),
            device=own[0].device,
            device_hours=sum(test.device_hours for test in own),
            last_night=max(nights, default=night(0)),
            paused="half of the cooling is off (until 2026-12-01)" if own[0].condition is Condition.PAUSED else "",
        )
    firsts = [one.points[0].night for test in tests for one in test.series if one.points]
    return ReportData(
        schema=SCHEMA,
        site="example centre",
        made_at="2026-11-23T06:12:04+00:00",
        night=night(0),
        first_night=min(firsts, default=night(0)),
        headline=headline,
        incidents=tuple(found),
        conditions=dict(Counter(test.condition.value for test in tests)),
        platforms=tuple(platforms.values()),
        tests=tuple(tests),
        nodes=tuple(nodes),
        notes=tuple(notes),
        problems=tuple(problems),
    )


def year(nights: int = 365, platforms: int = 10) -> ReportData:
    """Ten platforms with six tests each, in which this and that is wrong."""
    tests = []
    for platform in list(DEVICES)[:platforms]:
        for number in range(len(WORKLOADS)):
            planted: dict[str, object] = {}
            for (where, numbers), arguments in PLANTED.items():
                if where == platform and number in numbers:
                    planted = arguments
            tests.append(test_of(platform, number, nights, **planted))
    known = {test.id for test in tests}
    found = [each for each in incidents() if set(each.tests) <= known]
    nodes = [
        NodeReport("lumi_g", "nid001004", 31, "slow", -0.083, 0.011, night(0), 4, "-8.3 % in 2 runs (limit 4.4 %)"),
        NodeReport("lumi_g", "nid001017", 30, "suspect", -0.051, 0.016, night(1), 1, "-5.1 % in its last run"),
        *(NodeReport("lumi_g", f"nid0010{at:02d}", 30, "fit", 0.002, 0.011, night(0), 0) for at in range(20, 36)),
        NodeReport("eidf_a100", "eidf-gpu-01", 5, "not judged", None, None, night(0), 0),
    ]
    notes = [
        NoteReport(night(6), "note", "eidf_a100", "the cooling has new pumps", "ada"),
        NoteReport(night(20), "ack", tests[-1].id, "https://gitlab.example.org/hpc/tickets/17 until 2026-12-04", "ada"),
        NoteReport(night(12), "pause", "graphcore_pod16", "half of the cooling is off", "mel"),
        NoteReport(night(90), "accept", tests[0].id, "driver 580.82 must stay, vendor case 4711", "mel"),
    ]
    problems = ["history/2026-11-03-login2.jsonl:17: a torn line, ignored"]
    headline = "4 of 60 tests are slower, on eidf_a100 and lumi_g; 1 has failed"
    return replace(report(tests, found, headline, nodes, notes, problems), scalings=(scaling("cosmoflow tuned"),))


def scaling(name: str, lost: str = "exchange of gradients 91 % (20 ms)", doubts: tuple[str, ...] = ()) -> Scaling:
    """A test in three layouts."""
    layouts = (
        ScaledLayout("1x1gpu", 1, Kind.BASE, 32, 320.0, 1.0, None, "-"),
        ScaledLayout("1x4gpu", 4, Kind.WEAK, 128, 1100.0, 3.44, 0.86, lost, doubts),
        ScaledLayout("2x4gpu", 8, Kind.NEITHER, None, 900.0, 2.81, None, lost),
    )
    return Scaling(name, "eidf_a100", "nightly-1", "samples/s", layouts, (lost,))


def quiet() -> ReportData:
    """A site where nothing is wrong."""
    return report([test_of(platform, at, 120) for platform in list(DEVICES)[:4] for at in range(4)])


def new_site() -> ReportData:
    """A site that began a week ago: everything is learning."""
    tests = [test_of(platform, at, 7) for platform in list(DEVICES)[:3] for at in range(3)]
    return report(tests, headline="No test is slower; 9 learning")


def single_run() -> ReportData:
    """A history with one run."""
    return report([test_of("eidf_a100", 0, 1)], headline="No test is slower; 1 learning")


def twelve_incidents() -> ReportData:
    """A bad night: more incidents than a screen can show."""
    whole = year(nights=60)
    more = [
        replace(
            whole.incidents[1], platform=platform, tests=tuple(t.id for t in whole.tests if t.platform == platform)[:1]
        )
        for platform in list(DEVICES)[3:10]
    ]
    return replace(whole, incidents=(*whole.incidents[:3], *more, *whole.incidents[3:]))


HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\"' onmouseover=window.hacked=1 x='",
    "${window.hacked = 1} {{ window.hacked = 1 }} `${window.hacked = 1}`",
    "\u202egnp.exe\u2066 \u200f",
    "<!--<script>",
    "]]></style><svg onload=window.hacked=1>",
    "a\x00b\x1b[31m\ud800\u2028\u2029",
)


def hostile() -> ReportData:
    """A report in which every text of a history or a person is one of `HOSTILE`."""
    whole = year(nights=40, platforms=2)
    tests = []
    names = ["platform", "workload", "layout", "setting", "device", "folder"]
    names += ["last_run", "last_outcome", "failed_as", "failed_why"]
    for at, test in enumerate(whole.tests):
        evil = HOSTILE[at % len(HOSTILE)]
        one = test.series[0]
        points = tuple(
            replace(point, run_id=evil, said=evil, nodes=(evil,), doubts=(evil,), changes=(evil,))
            for point in one.points
        )
        levels = tuple(replace(level, said=evil) for level in one.levels)
        parts = tuple(replace(part, name=evil) for part in one.parts)
        texts = dict.fromkeys(("metric", "unit", "short", "text", "where", "why"), evil)
        one = replace(one, **texts, ticket=f"javascript:{evil}", points=points, levels=levels, parts=parts)
        failed = {"failed_on": (evil,), "failed_since": night(2), "failed_nights": 1}
        tests.append(replace(test, id=f"{evil}{at}", series=(one,), **dict.fromkeys(names, evil), **failed))
    found = [
        Incident(Condition.SLOWER, evil, night(2), 3, (tests[0].id, evil), 6, -0.1, -0.1, evil, evil, evil)
        for evil in HOSTILE
    ]
    nodes = [NodeReport(evil, evil, 3, "slow", -0.1, 0.01, night(0), 1, evil) for evil in HOSTILE]
    notes = [NoteReport(night(3), "note", evil, evil, evil) for evil in HOSTILE]
    ready = report(tests, found, HOSTILE[0], nodes, notes, HOSTILE)
    scalings = tuple(replace(scaling(evil, evil, (evil,)), platform=evil, run_id=evil, unit=evil) for evil in HOSTILE)
    platforms = tuple(replace(each, paused=HOSTILE[1]) for each in ready.platforms)
    return replace(ready, site=HOSTILE[0], platforms=platforms, scalings=scalings)


def long_names() -> ReportData:
    """Test ids, platforms and nodes that are longer than any screen is wide."""
    whole = year(nights=30, platforms=2)
    long = "a_platform_with_a_very_long_name_of_the_machine_room_in_the_basement"
    tests = [
        replace(
            test,
            id=f"site/benchmarks/of/the/centre/test_own.py::test_own[{long}-1x4gpu-{'averylongparameter' * 8}]",
            platform=long,
            workload="own" + "withoutanyblank" * 8,
        )
        for test in whole.tests[:1]
    ]
    found = [replace(whole.incidents[0], platform=long, tests=(tests[0].id,), where="node " + "n" * 200)]
    nodes = [NodeReport(long, "node" * 60, 3, "slow", -0.1, 0.01, night(0), 1, "slow" * 50)]
    notes = [NoteReport(night(3), "note", long, "a note " + "withoutblanks" * 30, "somebody" * 10)]
    return report(tests, found, f"1 of 1 tests is slower, on {long}", nodes, notes, ["/very/long" * 40])
