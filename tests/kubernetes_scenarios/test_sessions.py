"""What a person types, on a stand-in or with --kubeconfig FILE on a real cluster: sessions of pytest that end in any
way, doctor and prune. Trainings: tests/test_first_result_kubernetes.py."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.kubernetes_scenarios.command_line_user import ROOT, CommandLineUser
from tests.kubernetes_scenarios.stage import Stage

pytestmark = [pytest.mark.live_k8s, pytest.mark.slow]

PLATFORM = """\
scheduler: kubernetes
node_facts: false
device: cpu
layouts: {{default: [1x1]}}
data_dir: /data
kubernetes: {{image: "{image}", cpu: 50m, memory: 64Mi}}
"""
LONG = """
import pytest

@pytest.mark.parametrize("number", range(3))
@pytest.mark.workload(command=["sh", "-c", "trap 'exit 0' TERM; echo begun; sleep 600 & wait"])
def test_long(run, number): pass
"""
MIXED = """
import pytest

@pytest.mark.workload(command=["sh", "-c", "sleep 2; echo done"])
def test_good(run): assert (run.folder / "log").read_text() == "done\\n"

@pytest.mark.workload(command=["sh", "-c", "echo bye; exit 3"])
def test_bad(run): pass

def unstartable():
    container = {"name": "c", "image": "bench.local/none:1", "imagePullPolicy": "Never", "command": ["true"]}
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {"restartPolicy": "Never", "securityContext": security, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}

@pytest.mark.workload(manifest=unstartable)
def test_none(run): pass

@pytest.mark.workload(command=["sh", "-c", "echo done"])
def test_also_good(run): assert (run.folder / "log").read_text() == "done\\n"
"""


class Author(CommandLineUser):
    """With tests of their own, and one platform."""

    @property
    def platform(self) -> str:
        return f"{self.stage.key}_own"

    def left(self) -> list[str]:
        kinds = (kind for kind in self.stage.shown for each in self.find_objects(kind, self.platform))
        return list(kinds)

    def phases(self) -> list[str]:
        return sorted(str(each["status"].get("phase")) for each in self.find_objects("pods", self.platform))

    def tests(self, text: str) -> None:
        (self.place / "test_mine.py").write_text(text)

    def pytest(self, *words: str) -> tuple[str, ...]:
        return ("pytest", "-m", self.platform, f"--runs-dir={self.runs}", "-p", "no:cacheprovider", *words)


@pytest.fixture
def author(cluster: Stage, tmp_path: Path) -> Author:
    author = Author(cluster, tmp_path, tmp_path)
    author.write_site_file("site.yaml", f"enabled: [{author.platform}]\n")
    author.write_site_file(f"platforms/{author.platform}.yaml", PLATFORM.format(image=cluster.image))
    (tmp_path / "pytest.ini").write_text(
        (ROOT / "pytest.ini").read_text().replace("pythonpath = .", f"pythonpath = {ROOT}")
    )
    return author


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly("harness/session_end.py"))]
)
def test_an_interrupted_session_leaves_no_objects(author: Author, how: signal.Signals) -> None:
    author.tests(LONG)
    with author.start(*author.pytest()) as process:
        author.wait_until(lambda: author.phases() == ["Running"] * 3, process)
        process.send_signal(how)
        said = process.communicate(timeout=600)[0]
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
    assert "cancelling 3 unfinished jobs" in said
    assert author.left() == []


def test_failed_and_unstartable_jobs_stop_no_other_job(author: Author) -> None:
    author.tests(MIXED)
    with author.start(*author.pytest("-rA")) as process:
        said = process.communicate(timeout=600)[0]
    assert process.returncode == pytest.ExitCode.TESTS_FAILED, said
    ends = {test: end for end, test in re.findall(r"^(PASSED|FAILED|ERROR) test_mine.py::(\w+)", said, re.MULTILINE)}
    assert ends == {"test_good": "PASSED", "test_also_good": "PASSED", "test_bad": "FAILED", "test_none": "ERROR"}
    assert "exit code 3" in said
    assert "is not present with pull policy of Never" in said
    assert set(author.phases()) <= {"Failed"}, author.phases()
    said = author.run("platforms", "prune", author.platform, "--yes", "--keep-days=0", f"--runs-dir={author.runs}")
    assert " gone" in said
    author.wait_until(lambda: author.left() == [])


def test_cancel_deletes_the_leftovers_of_a_killed_session(author: Author) -> None:
    said = author.run("platforms", "doctor", author.platform)
    assert "failed" not in said
    author.tests(LONG)
    with author.start(*author.pytest("--run-id=gone")) as process:
        author.wait_until(lambda: author.phases() == ["Running"] * 3, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    runs = f"--runs-dir={author.runs}"
    said = author.run("platforms", "prune", author.platform, "--yes", "--keep-days=0", runs)
    assert said.count("stays: its job waits or runs") == 3
    assert author.phases() == ["Running"] * 3
    author.run("platforms", "cancel", "gone", runs)
    author.wait_until(lambda: author.left() == [])
