"""`python -m platforms prepare`: what Python lacks on a machine, and data sets, made once."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from platforms.__main__ import main
from platforms.commands import prepare
from platforms.config.schema import Platform
from platforms.job import RefusedError

pytestmark = pytest.mark.slow
NIGHTLY = pytest.mark.nightly("platforms/commands/prepare.py", "environments")
BASE = Path(sys.base_prefix) / "bin" / "python3"


def machine(tmp_path: Path, **keys: object) -> Platform:
    fixed = {"scheduler": "ssh", "device": "cpu", "layouts": {"default": ("1x1",)}, "source": Path("box.yaml")}
    return Platform(**{"name": "box", "work_dir": str(tmp_path / "work"), **fixed, **keys})


def make_wheel(folder: Path, version: str) -> None:
    """What pip installs as Pillow."""
    information = f"pillow-{version}.dist-info"
    with zipfile.ZipFile(folder / f"pillow-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("PIL/__init__.py", "")
        wheel.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: pillow\nVersion: {version}\n")
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{information}/RECORD", "")


@pytest.fixture
def python3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `python3` that has torch, numpy and h5py, as by a site's module, and no Pillow; and a place to get that."""
    if not BASE.exists() or subprocess.run([BASE, "-I", "-c", "import PIL"], capture_output=True).returncode == 0:
        pytest.skip("the Python below this one has Pillow, so it is no example of one that lacks it")
    tools, have, wheels = tmp_path / "bin", tmp_path / "module", tmp_path / "wheels"
    for folder in (tools, wheels, *(have / name for name in ("torch", "numpy", "h5py"))):
        folder.mkdir(parents=True)
    for name in ("torch", "numpy", "h5py"):
        (have / name / "__init__.py").touch()
    (tools / "python3").symlink_to(BASE)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(have))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return have


@pytest.mark.parametrize("name", ["archer2_cpu", pytest.param("box", marks=NIGHTLY)])
def test_a_venv_has_what_the_sites_python_lacks(
    python3: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the version of the platform's environment, where it has one, and where an index has newer ones, too."""
    pillow = prepare.pins(name).get("pillow", "pillow")
    for version in (pillow.partition("==")[2] or "11.0", "99.0"):
        make_wheel(tmp_path / "wheels", version)
    prepare.make_environment(machine(tmp_path, name=name), [])
    env = tmp_path / "work" / f"env-{name}"
    assert capsys.readouterr().out == f"{env} has {pillow}\n"
    freeze = [env / "bin" / "python", "-m", "pip", "freeze", "--local"]
    found = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout
    assert found == f"{pillow if '==' in pillow else 'pillow==99.0'}\n"
    prepare.make_environment(machine(tmp_path, name=name), [])
    assert capsys.readouterr().out == f"nothing is missing in {env}/bin/python\n"


def test_no_torch_is_said_with_its_cures(python3: Path, tmp_path: Path) -> None:
    (python3 / "torch" / "__init__.py").unlink()
    (python3 / "torch").rmdir()
    with pytest.raises(RefusedError, match="python3 has no torch: name one that does in `python:`"):
        prepare.make_environment(machine(tmp_path), [])


@NIGHTLY
def test_what_pip_does_not_find_makes_no_environment(python3: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no environment was made"):
        prepare.make_environment(machine(tmp_path), ["nowhere-to-be-found>=2"])


def test_a_named_python_is_left_alone(python3: Path, tmp_path: Path) -> None:
    named = tmp_path / "bin" / "python3"
    with pytest.raises(RefusedError, match=f"{named} lacks pillow: {named} -m pip install pillow"):
        prepare.make_environment(machine(tmp_path, python=str(named)), [])
    assert not (tmp_path / "work").exists()


def test_a_venv_of_a_venv_would_lose_its_torch(python3: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([BASE, "-m", "venv", "--without-pip", tmp_path / "theirs"], check=True)
    monkeypatch.setenv("PATH", f"{tmp_path / 'theirs' / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(RefusedError, match="is a venv itself, and lacks pillow: python3 -m pip install pillow"):
        prepare.make_environment(machine(tmp_path), [])


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"python": "/no/python3"}, "/no/python3 is not there or older than Python 3.8"),
        ({"modules": ("nosuch/1",)}, "module"),
        ({"scheduler": "local", "work_dir": None}, "--env is for other machines"),
    ],
)
def test_what_cannot_be_made(tmp_path: Path, keys: dict[str, object], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        prepare.make_environment(machine(tmp_path, **keys), [])


def test_data_is_made_once_and_the_real_set_never(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site" / "platforms"
    site.mkdir(parents=True)
    (site.parent / "site.yaml").write_text("enabled: [box]\n")
    (site / "box.yaml").write_text(
        f"scheduler: ssh\ndevice: cpu\nlayouts: {{default: [1x1]}}\nwork_dir: {tmp_path}/work\n"
        f"python: {sys.executable}\npoll_s: 0.2\nbenchmarks: {{deepcam: {{size: full}}}}\n"
    )
    words = ["prepare", "box", "--site", str(site.parent), "--runs-dir", str(tmp_path / "runs")]
    assert main([*words, "--benchmark", "cosmoflow", "--size", "smoke"]) == 0
    assert (tmp_path / "work" / "data" / "cosmoflow-smoke" / "train").is_dir()
    assert "succeeded" in capfd.readouterr().out
    assert main([*words, "--benchmark", "cosmoflow", "--size", "smoke"]) == 0
    assert capfd.readouterr().out == f"cosmoflow smoke: {tmp_path}/work/data/cosmoflow-smoke is there\n"
    assert main([*words, "--benchmark", "deepcam"]) == 2
    assert "deepcam full is the real data set: put it into" in capfd.readouterr().err


def test_data_is_made_only_where_it_may_be_and_something_can_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    (site / "platforms").mkdir(parents=True)
    text = "device: cpu\nlayouts: {default: [1x1]}\ncannot_run: {reason: it is old, source: its manual}\n"
    (site / "platforms" / "it.yaml").write_text(text)
    assert main(["prepare", "it", "--size", "smoke", f"--site={site}"]) == 2
    assert f"it is not enabled: python -m platforms enable it --site={site}" in capsys.readouterr().err
    (site / "site.yaml").write_text("enabled: [it]\n")
    assert main(["prepare", "it", "--size", "smoke", f"--site={site}"]) == 0
    why = "none of the suite's benchmarks can run: it is old (source: its manual)"
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: not made, since it cannot run there: {why}; --benchmark {name} makes it all the same"
        for name in ("cosmoflow", "deepcam", "gpt", "resnet50")
    ]
