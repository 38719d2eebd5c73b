"""What a person sees while a job waits in a queue: its place, kept up to date on a terminal, and no news in a log."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from platforms.rundir import session_history
from tests.fake_kubernetes import Kube
from tests.harness.conftest import Project
from tests.harness.terminal import Terminal

PATIENCE_S = 60.0
CLOUD = """\
scheduler: kubernetes
device: cpu
layouts: {default: [1x1]}
data_dir: /data
kubernetes: {context: fake, image: "bench.local/python:3.11", cpu: 100m, memory: 64Mi, queue: ours}
"""
TEST = """
import pytest

@pytest.mark.workload(command=["echo", "done"])
def test_mine(run):
    assert (run.folder / "log").read_text() == "done\\n"
"""


# In a session: a log hears every 30 s of a job that does not change, and a cluster that was slow to tell a place is not
# asked for 300 s. A slow machine must not come so far, or wait so long.
CALM = """
import harness.console, platforms.schedulers.kubernetes.snapshot
harness.console.HEARTBEAT_S = 600.0
platforms.schedulers.kubernetes.snapshot.NO_QUEUE_S = 1.0
platforms.schedulers.kubernetes.snapshot.QUEUE_AGE_S = 0.5
"""


class Queue:
    """A Kueue that admits nothing, in which others' jobs `first` and `second` wait."""

    def __init__(self, kube: Kube) -> None:
        self.kube, self.kueue = kube, kube.kueue(queue="ours", quota={"cpu": "8"})
        self.kueue.pause()
        self.kueue.add_queue("theirs", "default", {})
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
        for name in ("first", "second"):
            about = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "theirs"}}
            kube.store.create("jobs", "default", {"metadata": about, "spec": {"template": template}})
        kube.until(lambda: len(kube.store.list("workloads")[0]) == 2)

    def leaves(self, name: str) -> None:
        self.kube.store.delete("jobs", "default", name)


@pytest.fixture
def queue(
    project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Queue]:
    project.write("site/site.yaml", "enabled: [cloud]\n")
    project.write("site/platforms/cloud.yaml", CLOUD)
    project.write("tests/test_mine.py", TEST)
    project.write("calm.py", CALM)
    monkeypatch.setenv("PYTHONPATH", str(project.path))
    with Kube(tmp_path_factory.mktemp("kube")) as kube:
        monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
        yield Queue(kube)


def test_a_place_is_kept_up_to_date_and_is_no_news(project: Project, queue: Queue) -> None:
    """Also on a terminal that has no room for Kueue's words on why it waits."""
    terminal = Terminal(project.path, 90, "-p", "calm", "tests", "-m", "cloud", "--run-id=1")
    terminal.until(r"\]  queued, position 3: Kueue \(queue")
    queue.leaves("first")
    terminal.until(r"\]  queued, position 2: ")
    queue.leaves("second")
    terminal.until(r"\]  queued, position 1: ")
    queue.kueue.pause(on=False)
    terminal.until(r"1 passed")
    assert terminal.ends() == 0
    (path,) = (project.path / "runs/1" / session_history.FOLDER).glob("*.jsonl")
    lines = [line for line in session_history._read_lines(path) if "state" in line]
    told = [(line["state"], line.get("reason")) for line in lines]
    assert not any("position" in str(line) for line in lines)
    assert max(Counter(told).values()) < 3, told  # twice: it has changed again before the first change was written
    assert not any("position" in each.read_text() for each in project.path.glob("runs/1/*/run.json"))


def test_a_log_has_one_line_on_it(project: Project, queue: Queue) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "calm", "-p", "no:cacheprovider", "tests", "-m", "cloud"]
    asked = "/localqueues/ours/pendingworkloads"
    with (project.path / "log").open("wb") as log:
        session = subprocess.Popen(command, cwd=project.path, stdout=log, stderr=log)
    for name in ("first", "second"):
        before, end = count(queue.kube, asked), time.monotonic() + PATIENCE_S
        while count(queue.kube, asked) == before:
            assert session.poll() is None, (project.path / "log").read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        queue.leaves(name)
    queue.kueue.pause(on=False)
    code = session.wait(PATIENCE_S)
    said = (project.path / "log").read_text()
    assert code == 0, said
    assert len(re.findall(r"on cloud: queued", said)) == 1, said


def count(kube: Kube, path: str) -> int:
    return sum(request.path.endswith(path) for request in kube.requests)
