"""The shipped platforms: they load, they render what their sites want, and their ids and rules stay as they are."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from harness.plans import TrialRequest
from harness.spec import spec_of
from harness.suite import suite_of
from platforms.commands import prepare
from platforms.commands.doctor import node_checks
from platforms.config.schema import Platform, Site, load_platforms, load_site
from platforms.job import JobSpec
from platforms.schedulers import FILE_KEYS
from platforms.schedulers.kubernetes.manifest import policy as rules
from platforms.schedulers.kubernetes.manifest import render as manifest
from platforms.schedulers.kubernetes.objects.pod_templates import templates
from platforms.schedulers.slurm import policy, render

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "site.example.yaml"
BENCHMARKS = ("cosmoflow", "deepcam", "resnet50")
Specs = Mapping[str, Mapping[str, list[JobSpec]]]

# What only its site knows, of each profile.
MISSING = {
    "alps_clariden": {"alps_account", "alps_edf", "alps_work_dir"},
    "archer2_cpu": {"archer2_account", "archer2_work_dir"},
    "archer2_mi210": {"archer2_account", "archer2_work_dir"},
    "cerebras_cs2": {"cs2_python", "cs2_work_dir"},
    "cirrus_ex": {"cirrus_account", "cirrus_python", "cirrus_work_dir"},
    "cirrus_v100": {"cirrus_account", "cirrus_v100_python", "cirrus_work_dir"},
    "isambard_ai": {"isambard_image", "isambard_project", "isambard_work_dir"},
}
NAMES = sorted(MISSING)
EIDF = {"eidf_image", "eidf_namespace"}
MISSING_ON_CLUSTERS = {
    **dict.fromkeys(("eidf_a100", "eidf_h100", "eidf_h200", "eidf_mig"), EIDF),
    "graphcore": {"eidf_namespace"},
    "kind": set(),
}
CLUSTERS = sorted(MISSING_ON_CLUSTERS)
MISSING_BY_SSH = {"cerebras_cs3": {"cs3_python", "cs3_work_dir"}}
BY_SSH = sorted(MISSING_BY_SSH)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """site.example.yaml with everything that is commented out in it."""
    folder = tmp_path_factory.mktemp("example")
    text = re.sub(r"^( *)#(?=\S)", r"\1", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (folder / "site.yaml").write_text(text, encoding="utf-8")
    return load_site(folder)


def profiles(site: Site | None, scheduler: str = "slurm") -> dict[str, Platform]:
    found = load_platforms([ROOT / "platforms"], site, schedulers=FILE_KEYS, environ={}, root=Path("/nonexistent"))
    return {name: platform for name, platform in found.items() if platform.scheduler == scheduler}


@pytest.fixture(scope="module")
def shipped(example: Site) -> dict[str, Platform]:
    """The profiles at the site of the example."""
    return profiles(example)


@pytest.fixture(scope="module")
def clusters(example: Site) -> dict[str, Platform]:
    """Those with Kubernetes, and those whose jobs start by a command."""
    return {**profiles(example, "kubernetes"), **profiles(example, "ssh")}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty site folder, as on a fresh clone, and no word of any site in the environment."""
    for name in [name for name in os.environ if name.startswith("HPC_ML_BENCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("CI", raising=False)
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def words(site: Path, *more: str) -> list[str]:
    """The command line of pytest on the repository's own benchmarks at a site."""
    files = [str(ROOT / f"test_{benchmark}.py") for benchmark in BENCHMARKS]
    here = [f"--rootdir={ROOT}", f"--config-file={ROOT / 'pytest.ini'}", "-p", "no:cacheprovider"]
    return [*here, f"--site={site}", f"--runs-dir={site / 'runs'}", *more, *files]


class Collected:
    """A plugin that keeps what a session has chosen."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = list(session.items)


@pytest.fixture(scope="module")
def kept() -> dict[str, dict[str, list[JobSpec]]]:
    return {}


@pytest.fixture
def specs(pytester: pytest.Pytester, site: Path, example: Site, kept: dict[str, dict[str, list[JobSpec]]]) -> Specs:
    """The jobs of each profile, by benchmark, as the suite makes them of its own tests; collected once."""
    if not kept:
        (site / "site.yaml").write_text(f"values: {dict(example.values)}\n")
        seen = Collected()
        pytester.inline_run(
            *words(site, "-m", "slurm or kubernetes or cs3", "--collect-only", "--dry-run"), plugins=[seen]
        )
        for item in seen.items:
            case = suite_of(item.config).selection.case(item)
            spec = spec_of(item, case, "run", Path("/somewhere/models-0123456789ab.pyz"), ROOT, TrialRequest())
            assert spec.benchmark is not None
            kept.setdefault(case.platform.name, {}).setdefault(spec.benchmark, []).append(spec)
    return kept


def asked(text: str) -> set[str]:
    """The #SBATCH options of a script."""
    return {shlex.split(line)[1] for line in text.splitlines() if line.startswith("#SBATCH ")}


# --- the files --------------------------------------------------------------------------------------------------------


def test_each_profile_loads_on_a_fresh_clone_and_says_what_only_its_site_knows() -> None:
    assert {name: set(platform.missing) for name, platform in profiles(None).items()} == MISSING
    found = {name: set(platform.missing) for name, platform in profiles(None, "kubernetes").items()}
    assert found == MISSING_ON_CLUSTERS
    assert {name: set(platform.missing) for name, platform in profiles(None, "ssh").items()} == MISSING_BY_SSH


def test_the_example_of_a_site_has_every_value_and_sets_nothing_by_itself(example: Site, tmp_path: Path) -> None:
    assert set(example.values) == set().union(
        *MISSING.values(), *MISSING_ON_CLUSTERS.values(), *MISSING_BY_SSH.values()
    )
    assert set(example.enabled) <= set(NAMES)
    assert example.max_device_hours
    (tmp_path / "site.yaml").write_bytes(EXAMPLE.read_bytes())
    assert load_site(tmp_path) == Site()


@pytest.mark.slow
def test_values_of_the_site_fill_every_hole(shipped: dict[str, Platform], clusters: dict[str, Platform]) -> None:
    found = {name: platform.missing for name, platform in {**shipped, **clusters}.items()}
    assert found == dict.fromkeys([*NAMES, *CLUSTERS, *BY_SSH], ())


@pytest.mark.parametrize("name", [*NAMES, *CLUSTERS, *BY_SSH])
def test_each_profile_names_its_sources_with_their_dates(name: str) -> None:
    header = (ROOT / "platforms" / f"{name}.yaml").read_text(encoding="utf-8").partition("scheduler:")[0]
    assert re.search(r"at [0-9a-f]{7,8}\b", header) or name == "kind"
    assert re.search(r"\(20\d\d-\d\d-\d\d\)|in 20\d\d", header)


def test_the_page_names_each_platform_and_the_values_that_it_needs() -> None:
    text = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
    known = {*NAMES, *BY_SSH}.union(*MISSING.values(), *MISSING_BY_SSH.values())
    assert not [word for word in known if f"`{word}`" not in text]


# --- ids: the keys of history -----------------------------------------------------------------------------------------

# Of each profile, the parts of its ids after its name, for cosmoflow, deepcam and resnet50. May grow and never change.
IDS = {
    "alps_clariden": ("1x4gpu", "1x4gpu", "1x4gpu"),
    "archer2_cpu": ("2x2cpu", "4x2cpu", "2x2cpu"),
    "archer2_mi210": ("1x4gpu", "1x4gpu", "1x4gpu"),
    "cerebras_cs2": ("1x1csx", "1x1csx", "1x1csx"),
    "cerebras_cs3": ("1x1csx", "1x1csx", "1x1csx"),
    "cirrus_ex": ("2x2cpu", "4x2cpu", "2x2cpu"),
    "cirrus_v100": ("1x4gpu", "1x4gpu", "1x4gpu"),
    "isambard_ai": ("1x4gpu", "1x4gpu", "1x4gpu"),
    "eidf_a100": ("1x4gpu", "1x4gpu", "1x4gpu"),
    "eidf_h100": ("1x4gpu", "1x4gpu", "1x4gpu"),
    "eidf_h200": ("1x4gpu", "1x4gpu", "1x4gpu"),
    "eidf_mig": ("1x1gpu", "1x1gpu", "1x1gpu"),
    "graphcore": ("1x8ipu", "1x8ipu", "1x8ipu"),
    "kind": ("1x1cpu", "1x1cpu", "1x1cpu"),
}


@pytest.mark.parametrize("name", [*NAMES, *CLUSTERS, *BY_SSH])
@pytest.mark.slow
def test_ids_are_frozen(specs: Specs, name: str) -> None:
    only = {"cerebras_cs2": ("gbs32",), "graphcore": ("gbs32",), "cerebras_cs3": ("tuned",)}
    configurations = only.get(name, ("gbs32", "tuned"))
    expected = [
        f"test_{benchmark}.py::test_{benchmark}[{name}-{layout}-{configuration}]"
        for benchmark, layout in zip(BENCHMARKS, IDS[name], strict=True)
        for configuration in configurations
    ]
    assert [spec.test for benchmark in BENCHMARKS for spec in specs[name][benchmark]] == expected


# --- scripts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_script_is_good_bash_and_keeps_its_own_sites_rules(
    specs: Specs, shipped: dict[str, Platform], name: str
) -> None:
    for benchmark in BENCHMARKS:
        platform = shipped[name].for_benchmark(benchmark)
        for spec in specs[name][benchmark]:
            text = render.render(spec, platform)
            checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
            assert (checked.returncode, checked.stderr) == (0, "")
            assert policy.lint(spec, text, platform) == ()
            assert "set in site.yaml" not in text


@pytest.mark.parametrize(
    ("name", "trained", "options", "command"),
    [
        (
            "archer2_cpu",
            "resnet50",
            "--account=t01 --partition=standard --qos=standard --nodes=2 --ntasks=32 --ntasks-per-node=16 "
            "--cpus-per-task=8 --exclusive",
            r"srun --kill-on-bad-exit=1 --nodes=2 --ntasks=32 --ntasks-per-node=16 --cpus-per-task=8 "
            r'--hint=nomultithread --distribution=block:block --cpu-freq=2250000 sh -c .* "\$python" .* --backend mpi',
        ),
        ("archer2_cpu", "deepcam", "--nodes=4 --ntasks=32 --ntasks-per-node=8 --cpus-per-task=16",
         r"srun .*--nodes=4 --ntasks=32 --ntasks-per-node=8 --cpus-per-task=16 .*"),
        (
            "archer2_mi210",
            "resnet50",
            "--partition=gpu --qos=gpu-exc --nodes=1 --gpus=4 --exclusive",
            r"srun --kill-on-bad-exit=1 --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=8 "
            r'--hint=nomultithread --distribution=block:block "\$python" .* --backend nccl',
        ),
        ("cirrus_v100", "cosmoflow", "--partition=gpu --qos=gpu --nodes=1 --gres=gpu:4 --exclusive",
         r"srun .*--ntasks=4 --ntasks-per-node=4 --cpus-per-task=10 --hint=nomultithread .*--backend mpi"),
        ("cirrus_ex", "deepcam",
         "--account=t01 --qos=standard --nodes=4 --ntasks=32 --ntasks-per-node=8 --cpus-per-task=36 --exclusive",
         r"srun .*--distribution=block:block --cpu-bind=cores .*"),
        ("cerebras_cs2", "resnet50", "--nodes=1 --ntasks=1 --cpus-per-task=2 --gres=cs:1", r'"\$python" .*'),
        ("isambard_ai", "resnet50", "--partition=workq --nodes=1 --ntasks=1 --gpus-per-node=4",
         r"srun .*apptainer exec --bind=\S+ --nv \S+\.sif sh -c .*--nproc-per-node=4 .*"),
        ("alps_clariden", "resnet50",
         "--account=g123 --partition=normal --ntasks=4 --ntasks-per-node=4 --gpus-per-task=1",
         r"srun .*--environment=\S+\.toml .*"),
    ],
)  # fmt: skip
def test_what_slurm_is_asked_for(
    specs: Specs, shipped: dict[str, Platform], name: str, trained: str, options: str, command: str
) -> None:
    spec = specs[name][trained][0]
    platform = shipped[name].for_benchmark(trained)
    text = render.render(spec, platform)
    assert set(options.split()) <= asked(text)
    assert re.fullmatch(command, " ".join(render.launch(spec, platform)), re.DOTALL)


@pytest.mark.slow
def test_the_kernels_that_miopen_finds_are_kept_in_the_memory_of_an_mi210s_node(
    specs: Specs, shipped: dict[str, Platform]
) -> None:
    text = render.render(specs["archer2_mi210"]["resnet50"][0], shipped["archer2_mi210"])
    (line,) = [line for line in text.splitlines() if "MIOPEN" in line]
    script = f"{line}; exec python3 -c 'import os; print(os.environ[\"MIOPEN_USER_DB_PATH\"])'"
    done = subprocess.run(["bash", "-c", script], env={**os.environ, "SLURM_JOB_ID": "71"}, capture_output=True)
    assert done.stdout.decode() == "/tmp/miopen-71\n"


def test_the_batch_of_the_paper_divides_among_its_ranks(specs: Specs) -> None:
    worlds = {name: {spec.ranks for several in jobs.values() for spec in several} for name, jobs in specs.items()}
    ranks = {"2x2cpu": {32}, "1x4gpu": {4}, "1x8ipu": {1}}  # one process drives all eight
    assert worlds == {name: ranks.get(IDS[name][0], {1}) for name in [*NAMES, *CLUSTERS, *BY_SSH]}


def test_a_job_of_one_process_runs_where_a_rank_drives_several_devices(
    clusters: dict[str, Platform], tmp_path: Path
) -> None:
    """Writing data and looking at a node need one device, though a rank of this platform drives eight."""
    platform = clusters["graphcore"]
    assert platform.devices_per_replica * platform.replicas_per_rank == 8
    jobs = (
        prepare.data_spec(platform, "resnet50", "quick", "/data/resnet50-quick", tmp_path / "models.pyz", "run"),
        node_checks.node_check_spec(platform, tmp_path, "doctor-1", "/data"),
    )
    for spec in jobs:
        assert (spec.ranks, spec.replicas, spec.layout.devices, spec.launcher) == (1, 1, 1, "none")


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_each_rule_finds_what_breaks_it(specs: Specs, shipped: dict[str, Platform], name: str) -> None:
    platform, spec = shipped[name].for_benchmark("resnet50"), specs[name]["resnet50"][0]
    rules, where = platform.policy, f"{platform.source}: policy"
    lines = render.render(spec, platform).splitlines()
    for option, why in rules.forbidden.items():
        text = "\n".join([*lines[:2], f"#SBATCH {option}=1", *lines[2:]])
        assert policy.lint(spec, text, platform) == (f"line 3: {option} is forbidden here: {why} ({where}: forbidden)",)
    for option, why in rules.required.items():
        text = "\n".join(line for line in lines if not re.match(rf"#SBATCH {option}\b(?!-)", line))
        assert policy.lint(spec, text, platform) == (f"line 1: {option} is missing: {why} ({where}: required)",)
    assert rules.forbidden or rules.required


# --- clusters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.slow
def test_every_manifest_keeps_its_own_sites_rules(specs: Specs, clusters: dict[str, Platform], name: str) -> None:
    for benchmark in BENCHMARKS:
        platform = clusters[name].for_benchmark(benchmark)
        for layouts in ("default", *platform.layouts):
            for layout in platform.layout_list(benchmark, layouts):
                launcher = "torchrun" if platform.launcher == "auto" and layout.devices > 1 else platform.launcher
                spec = replace(specs[name][benchmark][0], layout=layout, launcher=launcher)
                text = manifest.render(spec, platform)
                assert rules.lint(manifest.parse(text), platform, spec, text) == ()
                assert "set in site.yaml" not in text


@pytest.mark.parametrize(
    ("name", "kind", "asked"),
    [
        ("eidf_a100", "Job", {"nvidia.com/gpu": "4", "product": "NVIDIA-A100-SXM4-40GB", "cpu": "16", "threads": "4"}),
        ("eidf_h100", "Job", {"nvidia.com/gpu": "4", "product": "NVIDIA-H100-80GB-HBM3", "cpu": "32", "threads": "8"}),
        ("eidf_h200", "Job", {"nvidia.com/gpu": "4", "product": "NVIDIA-H200", "cpu": "32", "threads": "8"}),
        ("eidf_mig", "Job", {"nvidia.com/gpu": "1", "product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", "cpu": "4"}),
        ("graphcore", "IPUJob", {"cpu": "128", "memory": "400Gi"}),
        ("kind", "Job", {"cpu": "2", "memory": "4Gi", "threads": "2"}),
    ],
)
def test_what_a_cluster_is_asked_for(
    specs: Specs, clusters: dict[str, Platform], name: str, kind: str, asked: dict[str, str]
) -> None:
    (root,) = manifest.parse(manifest.render(specs[name]["resnet50"][0], clusters[name]))
    ((_path, template),) = templates(root)
    (container,) = template["spec"]["containers"]
    found = {**container["resources"]["limits"]}
    found["product"] = template["spec"].get("nodeSelector", {}).get("nvidia.com/gpu.product")
    found["threads"] = {one["name"]: one.get("value") for one in container["env"]}.get("OMP_NUM_THREADS")
    assert root["kind"] == kind
    assert asked.items() <= found.items()
    queued = root["metadata"]["labels"].get("kueue.x-k8s.io/queue-name")
    assert queued == ("eidf989ns-user-queue" if name.startswith("eidf") else None)
    assert ("generateName" in root["metadata"]) is (name != "kind")


def test_a_project_may_have_a_claim_and_a_context_of_its_own(example: Site) -> None:
    own = {"eidf_claim": "sets", "eidf_claim_size": "1Ti", "eidf_storage_class": "fast", "eidf_context": "mine"}
    for name, platform in profiles(Site(values={**example.values, **own}), "kubernetes").items():
        if name.startswith("eidf"):
            (volume,) = platform.kubernetes.volumes
            found = (volume.pvc, volume.size, volume.storage_class, platform.kubernetes.context)
            assert found == tuple(own.values())


@pytest.mark.parametrize("name", ["eidf_a100", "eidf_h100", "eidf_h200", "eidf_mig"])
@pytest.mark.slow
def test_rules_of_eidf_find_what_breaks_them(specs: Specs, clusters: dict[str, Platform], name: str) -> None:
    platform, spec = clusters[name], specs[name]["resnet50"][0]
    keys = platform.kubernetes
    broken = {
        "kinds": {"kind": "pod"},
        "queue-name": {"queue": None},
        "generateName": {"generate_name": False},
        "requests.cpu": {"cpu": None, "cpu_per_device": None},
        "limits.memory": {"memory": None, "memory_per_device": None},
        "gpu.product] is missing": {"node_selector": {}},
        "there is no NVIDIA-A100-SXM4-40G here (did you mean 'NVIDIA-A100-SXM4-40GB'?)": {
            "node_selector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40G"}
        },
        "more memory than 890Gi": {"memory": "891Gi", "memory_per_device": None},
        "more cpu than 192": {"cpu": "193", "cpu_per_device": None},
    }
    for rule, changes in broken.items():
        other = platform.model_copy(update={"kubernetes": keys.model_copy(update=changes)})
        text = manifest.render(spec, other)
        assert any(rule in found for found in rules.lint(manifest.parse(text), other, spec, text)), rule
    long = replace(spec, time_limit_s=35 * 86400.0 + 1)
    text = manifest.render(long, platform)
    assert any("policy: max_time" in found for found in rules.lint(manifest.parse(text), platform, long, text))


# --- pytest itself, on a fresh clone ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_dry_run_shows_the_jobs_and_what_is_missing(pytester: pytest.Pytester, site: Path) -> None:
    result = pytester.runpytest_inprocess(*words(site, "-m", "cirrus_ex", "--dry-run", "--configuration", "gbs32"))
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*test_resnet50.py::test_resnet50[[]cirrus_ex-2x2cpu-gbs32[]] (slurm)*",
            "#SBATCH --account='<cirrus_account: set in site.yaml>'",
            "missing: *cirrus_account*",
            "*dry run: 3 jobs rendered, none submitted*",
        ]
    )


def test_a_successor_is_in_service(shipped: dict[str, Platform], clusters: dict[str, Platform]) -> None:
    known = {**shipped, **clusters}
    ended = {name: str(each.until) for name, each in known.items() if each.until is not None}
    archer2 = dict.fromkeys(("archer2_cpu", "archer2_mi210"), "2026-11-21")
    assert ended == {**archer2, "cerebras_cs2": "2025-02-21", "cirrus_v100": "2025-12-08", "graphcore": "2026-03-25"}
    assert all(known[each.successor].until is None for each in known.values() if each.successor)
