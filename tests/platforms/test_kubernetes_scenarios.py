"""Every way in which a job on Kubernetes can go, on the stand-in, or with --kubeconfig FILE on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.stage import Stage
from tests.platforms.kubernetes_parts import Play, Scenario
from tests.platforms.kubernetes_scenarios import TOGETHER
from tests.platforms.kubernetes_show import Show
from tests.platforms.kubernetes_troubles import TROUBLES

pytestmark = pytest.mark.live_k8s


@pytest.fixture(scope="module")
def plays(
    cluster: Stage, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Show, dict[str, Play]]]:
    """All that are wanted, in one session and at the same time."""
    show = Show(cluster, tmp_path_factory.mktemp("runs"), "together")
    cluster.surprise()
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
    show.end(known[scenario.name])
    show.check(scenario, known[scenario.name])


@pytest.mark.parametrize("name", TROUBLES)
def test_trouble(cluster: Stage, name: str, tmp_path: Path) -> None:
    trouble = TROUBLES[name]
    if lacking := [why for need in trouble.needs if (why := cluster.lacks(need))]:
        pytest.skip("; ".join(lacking))
    show = Show(cluster, tmp_path, name)
    try:
        trouble.play(show)
    finally:
        cluster.front.clear_faults()
        show.runner.cancel()
