"""Every way in which a job on Kubernetes can go, on the stand-in, or with --kubeconfig FILE on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes_scenarios.building_blocks import Play, Scenario
from tests.kubernetes_scenarios.scenarios import TOGETHER
from tests.kubernetes_scenarios.session_faults import SESSION_FAULTS
from tests.kubernetes_scenarios.show import Show
from tests.kubernetes_scenarios.stage import Stage

pytestmark = [pytest.mark.live_k8s, pytest.mark.slow]


@pytest.fixture(scope="module")
def plays(
    cluster: Stage, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Show, dict[str, Play]]]:
    """All that are wanted, in one session and at the same time."""
    show = Show(cluster, tmp_path_factory.mktemp("runs"), "together")
    cluster.intercept_creations()
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    wanted = [item.callspec.params.get("scenario") for item in items if hasattr(item, "callspec")]
    chosen = [each for each in TOGETHER if each in wanted and not any(map(cluster.lacks, each.needs))]
    yield show, {each.name: show.play(each) for each in chosen}
    assert show.runner.cancel() == []


@pytest.mark.parametrize("scenario", TOGETHER, ids=lambda each: each.name)
def test_scenario(cluster: Stage, plays: tuple[Show, dict[str, Play]], scenario: Scenario) -> None:
    if lacking := [why for need in scenario.needs if (why := cluster.lacks(need))]:
        pytest.skip("; ".join(lacking))
    show, known = plays
    show.wait_for_end(known[scenario.name])
    show.check(scenario, known[scenario.name])


SLOW = ("explanations-fail", "half-a-place")  # they wait for half a minute
NIGHTLY = pytest.mark.nightly("platforms/schedulers/kubernetes/status", "k8s_templates")


@pytest.mark.parametrize("name", [pytest.param(name, marks=NIGHTLY if name in SLOW else ()) for name in SESSION_FAULTS])
def test_session_fault(cluster: Stage, name: str, tmp_path: Path) -> None:
    session_fault = SESSION_FAULTS[name]
    if lacking := [why for need in session_fault.needs if (why := cluster.lacks(need))]:
        pytest.skip("; ".join(lacking))
    show = Show(cluster, tmp_path, name)
    try:
        session_fault.play(show)
    finally:
        cluster.front.clear_faults()
        show.runner.cancel()
