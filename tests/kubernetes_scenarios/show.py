"""Plays scenarios with the real Runner and scheduler on a stage, many at the same time."""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, State, job_name, run_label
from platforms.runner import Job, Runner
from platforms.schedulers.kubernetes.scheduler import KubernetesScheduler
from tests.kubernetes_scenarios.building_blocks import SMALL, Clock, Play, Scenario
from tests.kubernetes_scenarios.stage import Stage

YEAR_S = 3e7


class Show:
    """One session of ours. The clock of its runner, and that of each patient scenario's scheduler, may be moved on."""

    def __init__(self, stage: Stage, runs: Path, run_id: str, *, max_running: int | None = None) -> None:
        self.stage, self.run_id = stage, f"{run_id}-{stage.key}"
        self.real = stage.fake is None
        self.limit_s = 400.0 if self.real else 180.0
        self.clock = Clock()
        self._max_running = max_running or (20 if self.real else 300)
        self._clocks: dict[str, Clock] = {}
        self._scripts: dict[str, Generator[None, None, None]] = {}
        self._broken: dict[str, Exception] = {}
        self._plays: dict[str, Play] = {}
        self.runner = Runner(runs, self.run_id, clock=self.clock, connect=self._connect)

    def _connect(self, platform: Platform) -> KubernetesScheduler:
        return KubernetesScheduler(platform, clock=self._clocks[platform.name])

    def platform(self, name: str, **keys: Any) -> Platform:
        """Each has a scheduler of its own."""
        name = f"{self.stage.key}_{name.replace('-', '_')}"
        self._clocks.setdefault(name, Clock())
        cluster = {"kubeconfig": str(self.stage.front.kubeconfig), "image": self.stage.image, **SMALL, **keys}
        known = {"source": self.stage.front.kubeconfig, "scheduler": "kubernetes", "device": "cpu"}
        pace = {"poll_s": 0.5 if self.real else 0.3, "max_running": self._max_running, "retries": 0}
        return Platform.model_validate(
            {"name": name, "layouts": {"default": ("1x1",)}, "kubernetes": cluster, **known, **pace}
        )

    def spec(self, name: str, platform: Platform, changes: Mapping[str, Any]) -> JobSpec:
        """Of a test of that name; of a shell's script where `changes` do not say more."""
        test, layout = f"test_scenario.py::test_scenario[{name}]", changes.get("layout", Layout(1, 1, "cpu"))
        named = job_name(name, layout, self.run_id, test)
        spec = JobSpec(named, test, platform.name, layout, (), run=run_label(self.run_id))
        return replace(spec, **{"start_limit_s": 900.0, "time_limit_s": 900.0, **changes})

    def add(self, name: str, changes: Mapping[str, Any], platform: Platform | None = None, recording: str = "") -> Play:
        """A job of this session. On a stand-in `recording` is played to it."""
        platform = platform or self.platform("steady")
        spec = self.spec(name, platform, changes)
        if recording and self.stage.fake is not None:
            self.stage.fake.play(spec.name, recording)
        job = self.runner.add(spec, platform)
        play = self._plays[name] = Play(self.stage, job, self._clocks[platform.name], recorded=bool(recording))
        return play

    def shell(self, name: str, script: str, **changes: Any) -> Play:
        return self.add(name, {"arguments": ("sh", "-c", script), **changes})

    def play(self, scenario: Scenario) -> Play:
        """Begins; the job is submitted with the next turn."""
        platform = self.platform(scenario.name if scenario.patient else "steady")
        if scenario.before:
            scenario.before(self.stage, self.spec(scenario.name, platform, {}).name)
        recording = scenario.name if scenario.recorded else ""
        play = self.add(scenario.name, scenario.job(self.stage), platform, recording)
        if scenario.script:
            self._scripts[scenario.name] = scenario.script(play)
        return play

    def tick(self, _: Job | None = None) -> None:
        """Advance the script of each scenario by one step."""
        for name, script in list(self._scripts.items()):
            play = self._plays[name]
            try:
                if play.job.done:
                    self._scripts.pop(name).close()
                else:
                    next(script)
            except StopIteration:
                del self._scripts[name]
            except Exception as error:
                del self._scripts[name]
                self._broken[name] = error

    def until(self, true: Any, what: str, limit_s: float | None = None) -> Any:
        """Advance everything until `true()` is true, and return its value."""
        end = time.monotonic() + (limit_s or self.limit_s)
        while not (found := true()):
            assert time.monotonic() < end, f"waited in vain: {what}"
            self.runner.pump()
            self.tick()
            time.sleep(0.02)
        return found

    def wait_idle_until(self, true: Any, what: str) -> None:
        """Wait until `true()` is true while our session does nothing."""
        end = time.monotonic() + self.limit_s
        while not true():
            assert time.monotonic() < end, f"waited in vain: {what}"
            time.sleep(0.05)

    def wait_until_running(self, play: Play, lines: int = 1) -> Play:
        """Wait until the job has written so many lines."""
        self.until(lambda: play.job.done or (play.runs and play.log().count(b"\n") >= lines), f"{play.name} runs")
        assert not play.job.done, play.job.status
        return play

    def wait_for_end(self, play: Play) -> Job:
        """Wait until the job is done."""
        name = next(name for name, each in self._plays.items() if each is play)

        def tick(_: Job) -> None:
            self.tick()
            if name in self._broken:
                raise self._broken[name]

        self.runner.wait(play.job, tick, deadline=self.clock() + self.limit_s)
        self.tick()  # a script ends with its job, and what it holds meanwhile is let go
        assert play.job.done, f"{play.job.status}\n{play.job.error}"
        return play.job

    def check(self, scenario: Scenario, play: Play) -> None:
        """Check everything that a scenario demands of its job."""
        job, status = play.job, play.job.status
        assert status.state is scenario.state, f"{status}\n{job.error}"
        assert job.done
        assert (job.failure is None) == (scenario.state is State.SUCCEEDED)
        assert re.search(scenario.reason, status.reason), f"{scenario.reason!r} is not in {status.reason!r}"
        if scenario.code is not None:
            assert status.exit_code == scenario.code, status
        if scenario.log is not None:
            assert play.log() == scenario.log, play.log()
        if scenario.event and not self.stage.lacks("events"):
            assert any(re.search(scenario.event, event) for event in status.events), status.events
        assert status.run_s is None or 0 <= status.run_s < YEAR_S  # not measured: a year
        if scenario.state is State.SUCCEEDED:
            assert job.run is not None
            assert not job.run.problems, job.run.problems
        self.wait_until_no_pod_is_live(play)
        self.check_objects(scenario, play)
        if scenario.check:
            scenario.check(play)

    def wait_until_no_pod_is_live(self, play: Play) -> None:
        """Wait until no pod of the job is live."""
        self.until(lambda: not self.live(play), f"no pod of {play.name} is live: {self.live(play)}", 60.0)

    def live(self, play: Play) -> list[str]:
        phases = {each["metadata"]["name"]: each["status"].get("phase") for each in play.pods()}
        return [name for name, phase in phases.items() if phase not in ("Succeeded", "Failed")]

    def check_objects(self, scenario: Scenario, play: Play) -> None:
        """Check that the job's objects are kept or recorded if the scenario says so, and deleted if not."""
        if not scenario.leaves:
            return self.wait_until_gone(play)
        kept = (play.job.folder / "objects.yaml").read_text()
        assert re.search(rf"^  name: {play.name}$", kept, re.MULTILINE), kept
        assert "\nnext:\n" in str(play.job.failure)
        assert self.left_objects(play) or scenario.left is None, "nothing of it is left to look at"
        return None

    def left_objects(self, play: Play) -> list[str]:
        text = (play.job.folder / "manifest.yaml").read_text()
        written = re.findall(r"^apiVersion: (\S+)\nkind: (\S+)$", text, re.MULTILINE)
        kinds = {f"{kind.lower()}s.{version}" for version, kind in written if "." in version}
        served = [kind for kind in kinds if self.stage.serves(kind)]
        found = ((kind, each) for kind in (*self.stage.shown, *served) for each in play.admin.list(kind, play.selector))
        return [f"{kind}/{each['metadata']['name']}" for kind, each in found]

    def wait_until_gone(self, play: Play) -> None:
        self.until(lambda: not self.left_objects(play), f"all of {play.name} is gone", 60.0)
