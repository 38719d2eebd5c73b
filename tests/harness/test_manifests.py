"""A test's own manifest, its own cluster, and what the scheduler itself says in a dry run."""

from __future__ import annotations

from pathlib import Path

import pytest

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: theirs}
spec:
  containers:
  - name: c
    image: ${image}
    command: ${command}
    resources: {limits: {nvidia.com/gpu: "${device_amount}"}}
"""
TEST = """
import pytest
{before}
@pytest.mark.workload({mark})
{marks}
def test_it({arguments}run):
    pass
"""
CLUSTER = """\
scheduler: kubernetes
device: gpu
layouts: {default: [1x2]}
data_dir: /data
kubernetes: {image: registry/image:1, namespace: project, context: prod}
"""


class Cluster:
    """A project with one test of its own on one cluster, and pytest on it, which shows what would be submitted."""

    def __init__(self, project) -> None:
        self.project = project
        project.write("site/platforms/cloud.yaml", CLUSTER)
        project.write("tests/pod.yaml", POD)

    def test(self, mark: str, *, before: str = "", marks: str = "", arguments: str = "") -> None:
        text = TEST.format(mark=mark, before=before, marks=marks, arguments=arguments)
        self.project.write("tests/test_mine.py", text)

    def dry_run(self, *more: str) -> pytest.RunResult:
        return self.project.pytest("tests", "-m", "cloud", "--dry-run", *more)

    def shown(self, *more: str) -> str:
        result = self.dry_run(*more)
        assert result.ret == 0, result.stderr.str() + result.stdout.str()
        return result.stdout.str()


@pytest.fixture
def cloud(project) -> Cluster:
    return Cluster(project)


# --- the manifest -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifest", ["'pod.yaml'", "Path(__file__).with_name('pod.yaml')"])
def test_a_path_begins_at_the_tests_file(cloud, manifest):
    cloud.test(f"manifest={manifest}, command=['my', 'own']", before="from pathlib import Path")
    shown = cloud.shown()
    assert "kind: Pod\n" in shown
    assert "    image: registry/image:1\n    command:\n    - my\n    - own\n" in shown
    assert "nvidia.com/gpu: '2'" in shown
    assert "hpc-ml-bench/test: tests-test_mine.py-test_it-cloud-1x2gpu" in shown


@pytest.mark.slow
def test_a_manifest_alone_needs_no_command_and_runs_on_clusters_only(cloud):
    cloud.test("manifest='pod.yaml'")
    (left_out,) = [line for line in cloud.project.pytest("tests").outlines if line.startswith("left out: ")]
    names = left_out.removeprefix("left out: ").partition(" (")[0].split(", ")
    assert {"cloud", "eidf_a100", "kind"} <= set(names)
    assert not {"local", "archer2_cpu", "isambard_ai"} & set(names)
    shown = cloud.shown()
    assert "image: registry/image:1" in shown
    assert "command:" not in shown


def test_with_a_benchmark_its_command_goes_where_the_manifest_wants_it(cloud):
    cloud.test("manifest='pod.yaml', benchmark='resnet50'")
    shown = cloud.shown("--configuration", "gbs32")
    assert "- torch.distributed.run\n" in shown
    assert "--nproc-per-node=2\n" in shown
    assert "- resnet50\n" in shown


@pytest.mark.slow
def test_a_dict_of_the_test_stays_its_own(cloud):
    before = (
        "import yaml\nfrom pathlib import Path\nPOD = yaml.safe_load(Path(__file__).with_name('pod.yaml').read_text())"
    )
    cloud.test("manifest=POD, command=['x']", before=before)
    with cloud.project.path.joinpath("tests/test_mine.py").open("a") as file:
        file.write("\ndef test_after():\n    assert POD['metadata'] == {'name': 'theirs'}\n")
    assert "kind: Pod\n" in cloud.shown()
    assert cloud.project.pytest("tests", "-k", "test_after").parseoutcomes()["passed"] == 1


FUNCTION = """
def made({arguments}):
    containers = [{{"name": "c", "image": "i:1", "args": [{word}]}}]
    return {{"apiVersion": "v1", "kind": "Pod", "spec": {{"containers": containers}}}}
"""
GPUS = "@pytest.mark.parametrize('num_gpus', [4, 8])"


@pytest.mark.parametrize(
    ("arguments", "word", "expected"),
    [
        ("num_gpus", "f'n{num_gpus}'", ["n4", "n8"]),
        ("num_gpus, nodes, *, platform", "f'{platform}:{nodes}:{num_gpus}'", ["cloud:1:4", "cloud:1:8"]),
        ("parameters", "f'n{parameters[\"num_gpus\"]}'", ["n4", "n8"]),
        ("other=3", "f'n{other}'", ["n3", "n3"]),
        ("devices, ranks", "f'd{devices}r{ranks}'", ["d2r2", "d2r2"]),
    ],
)
def test_a_function_is_given_what_it_asks_for(cloud, arguments, word, expected):
    before = FUNCTION.format(arguments=arguments, word=word)
    cloud.test("manifest=made", before=before, marks=GPUS, arguments="num_gpus, ")
    shown = cloud.shown()
    assert [line.strip("- ") for line in shown.splitlines() if line.strip("- ") in expected] == expected
    assert "dry run: 2 jobs rendered" in shown


@pytest.mark.parametrize(
    ("mark", "before", "said"),
    [
        ("manifest='pd.yaml'", "", "*workload: manifest: */tests/pd.yaml: no such file*"),
        ("manifest=3", "", "*workload: manifest is a path, a dict, a list of dicts, or a function*"),
        ("manifest=[]", "", "*workload: manifest is a path, a dict, a list of dicts, or a function*"),
        ("manifest=['pod.yaml']", "", "*workload: manifest is a path, a dict, a list of dicts, or a function*"),
        ("manifst='pod.yaml'", "", "*workload: 'manifst' is no option; known: *manifest*namespace*"),
        ("namespace='mine'", "", "*workload: needs either benchmark='resnet50' or command=*or, for Kubernetes, a man*"),
        ("benchmark='resnet50', command=['a'], manifest='pod.yaml'", "", "*workload: needs either benchmark=*"),
        ("manifest='pod.yaml', namespace=3", "", "*workload: namespace is a text, as in namespace='mine'"),
        ("manifest='pod.yaml', context=''", "", "*workload: context is a text*"),
        ("manifest=dict", "", "*workload: manifest: *does not say what it takes*"),
    ],
)
@pytest.mark.slow
def test_mistakes_are_told_at_collection(cloud, mark, before, said):
    cloud.test(mark, before=before)
    result = cloud.project.pytest("tests", "--collect-only")
    assert result.ret != 0
    (result.stdout if "Interrupted" in result.stdout.str() else result.stderr).fnmatch_lines([said])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("def made(num_gpu): pass", "*made asks for 'num_gpu', which the test has not (did you mean 'num_gpus'?)*"),
        ("def made(): return 'text'", "*made returned 'text'; it must be a dict or a list of dicts*"),
        ("def made(): return 1 / 0", "*made failed: ZeroDivisionError: division by zero*"),
        ("def made(): return {'kind': 'Pod'}", "*manifest: the object: `apiVersion:` is missing*"),
    ],
)
def test_mistakes_of_a_function_are_told_before_anything_is_submitted(cloud, made, said):
    cloud.test("manifest=made", before=made, marks=GPUS, arguments="num_gpus, ")
    result = cloud.dry_run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


def test_a_mistake_in_the_file_has_its_line(cloud):
    cloud.test("manifest='pod.yaml', command=['x']")
    cloud.project.write("tests/pod.yaml", POD.replace("${image}", "${imag}"))
    result = cloud.dry_run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*/tests/pod.yaml:7: there is no placeholder ${imag} (did you mean 'image'?)*"])


@pytest.mark.slow
def test_with_a_command_it_runs_on_other_platforms_as_ever(project):
    project.write("pod.yaml", POD)
    path = project.write("test_mine.py", "")
    project.job_test()
    path.write_text(path.read_text().replace("command=", "manifest='pod.yaml', namespace='n', command="))
    project.pytest().assert_outcomes(passed=1)
    assert project.jobs() == ["test_mine-test_it-local-1x1cpu"]


# --- the cluster ------------------------------------------------------------------------------------------------------


def test_a_test_names_its_own_cluster(cloud):
    cloud.test("manifest='pod.yaml', namespace='mine', context='there', kubeconfig='../kube/config'")
    shown = cloud.shown()
    assert "  namespace: mine\n" in shown
    assert "# context: there\n" in shown
    kubeconfig = cloud.project.path / "tests" / "../kube/config"
    assert f"# kubeconfig: {kubeconfig}\n" in shown


# --- --dry-run=server -------------------------------------------------------------------------------------------------

SLURM = """\
scheduler: slurm
device: cpu
layouts: {{default: [1x1]}}
work_dir: {folder}
"""


def sbatch(project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A platform with Slurm on this machine, whose sbatch is this script."""
    project.write("site/platforms/batch.yaml", SLURM.format(folder=tmp_path))
    project.job_test()
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sbatch").write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\ncat > {tmp_path}/script\n{script}\n')
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("SBATCH_PARTITION", "somebodys")


@pytest.mark.slow
def test_the_scheduler_itself_is_asked(project, tmp_path, monkeypatch):
    sbatch(project, tmp_path, monkeypatch, 'echo "sbatch: Job 7 to start at noon, $SBATCH_PARTITION" >&2')
    result = project.pytest("-m", "batch", "--dry-run=server")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["#SBATCH --job-name=*", "batch has nothing against it", "*1 job rendered, none sub*"])
    assert (tmp_path / "asked").read_text() == "--test-only\n"
    assert (tmp_path / "script").read_text().startswith("#!/bin/bash\n")
    assert not project.jobs()


def test_what_the_scheduler_has_against_a_job_is_told(project, tmp_path, monkeypatch):
    sbatch(project, tmp_path, monkeypatch, "echo 'allocation failure: Invalid qos' >&2; exit 1")
    said = "*test_it[[]batch-1x1cpu[]]: batch would refuse it: sbatch: *Invalid qos*"
    project.refuses("-m", "batch", "--dry-run=server", says=said)


def test_a_machine_without_a_scheduler_has_nothing_to_say(project):
    project.job_test()
    result = project.pytest("--dry-run=server")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["local has nothing against it"])
