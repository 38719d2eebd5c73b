"""`python -m platforms enable` and `disable`: one key of a person's file is edited, and nothing else in it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from platforms import checkout
from platforms.__main__ import main
from platforms.commands import enable
from platforms.config import schema
from platforms.job import ConfigError, RefusedError


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site's folder with a blank in its path, and two platforms."""
    folder = tmp_path / "our site"
    (folder / "platforms").mkdir(parents=True)
    for name in ("a", "new"):
        (folder / "platforms" / f"{name}.yaml").write_text("scheduler: local\ndevice: cpu\n")
    return folder


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "enabled: [new]\n"),
        ("", "enabled: [new]\n"),
        ("# nothing yet\n", "# nothing yet\nenabled: [new]\n"),
        ("---\n", "---\nenabled: [new]\n"),
        ("values: {a: b}  # mine\n", "values: {a: b}  # mine\nenabled: [new]\n"),
        ("values: {a: b}", "values: {a: b}\nenabled: [new]\n"),
        ("values:\n  text: |\n    a\n    b\n", "values:\n  text: |\n    a\n    b\nenabled: [new]\n"),
        ("enabled: [a, b]  # ours\nvalues: {a: b}\n", "enabled: [a, b, new]  # ours\nvalues: {a: b}\n"),
        ("enabled: []  # none\n", "enabled: [new]  # none\n"),
        ("enabled:\n", "enabled: [new]\n"),
        ("enabled:  # none\nkeep_days: 3\n", "enabled: [new]  # none\nkeep_days: 3\n"),
        ("enabled: null # none\n", "enabled: [new] # none\n"),
        ("enabled: ~\n", "enabled: [new]\n"),
        ("'enabled': ['a']\n", "'enabled': [a, new]\n"),
        ("enabled: [\n  a,\n]\n", "enabled: [a, new]\n"),
        ("enabled:\n- a", "enabled: [a, new]"),
        ("enabled:\r\n  - a\r\nkeep_days: 3\r\n", "enabled: [a, new]\r\nkeep_days: 3\r\n"),
        ("enabled:\n  - a\n  - b\n  # us\nvalues: {}", "enabled: [a, b, new]\n  # us\nvalues: {}"),
        ("enabled: [new]\n", "enabled: [new]\n"),
        ("values: {a: 'ö # é'}\nenabled: [a] # ü\n", "values: {a: 'ö # é'}\nenabled: [a, new] # ü\n"),
    ],
)  # fmt: skip
def test_enabling_changes_one_place(before: str | None, after: str, tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    if before is not None:
        file.write_bytes(before.encode())
    for _ in range(2):  # the second time there is nothing to do
        enable.write(tmp_path, add=["new"])
        assert file.read_bytes().decode() == after
    assert [path.name for path in tmp_path.iterdir()] == ["site.yaml"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("enabled: [a, new, b]  # ours\n", "enabled: [a, b]  # ours\n"),
        ("enabled: [new]  # ours\n", "enabled: []  # ours\n"),
        ("keep_days: 3\nenabled:\n- new", "keep_days: 3\nenabled: []"),
        ("enabled: [a]\n", "enabled: [a]\n"),
        (None, None),
    ],
)
def test_disabling_changes_one_place(before: str | None, after: str | None, tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    if before is not None:
        file.write_text(before)
    for _ in range(2):
        enable.write(tmp_path, remove=["new"])
        assert (file.read_text() if file.exists() else None) == after


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{enabled: [a], keep_days: 3}\n", r"enabled: \[a, new\]"),
        ("{keep_days: 3}\n", r"enabled: \[new\]"),
        ("enabled: [\n  a,  # 1\n  b  # 2\n]\n", r"enabled: \[a, b, new\]"),
        ("enabled:  # us\n  - a\n", r"enabled: \[a, new\]"),
        ("values: {}\nkeep_days: 3\n...\n", r"enabled: \[new\]"),
    ],
)
def test_what_only_a_person_can_edit_stays(text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(RefusedError, match=f"write `{line}` yourself"):
        enable.write(tmp_path, add=["new"])
    assert (tmp_path / "site.yaml").read_text() == text


def test_a_name_that_something_else_refers_to_stays(tmp_path: Path) -> None:
    text = "enabled: [&a a, b]\nvalues: {x: *a}\n"
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(RefusedError, match=r"write `enabled: \[\]` yourself"):
        enable.write(tmp_path, remove=["a", "b"])
    assert (tmp_path / "site.yaml").read_text() == text


def test_a_file_with_mistakes_is_not_edited(tmp_path: Path) -> None:
    text = "enabled: [a]\nenabled: [b]\n"
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"site.yaml:2: enabled: written twice, first in line 1"):
        enable.write(tmp_path, add=["new"])
    assert (tmp_path / "site.yaml").read_text() == text


def test_a_link_stays_one_and_rights_stay(tmp_path: Path) -> None:
    (tmp_path / "kept.yaml").write_text("enabled: [a]\n")
    (tmp_path / "kept.yaml").chmod(0o640)
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "site.yaml").symlink_to("../kept.yaml")
    enable.write(folder, add=["new"])
    assert (folder / "site.yaml").is_symlink()
    assert (tmp_path / "kept.yaml").read_text() == "enabled: [a, new]\n"
    assert (tmp_path / "kept.yaml").stat().st_mode & 0o777 == 0o640


def test_the_commands(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["enable", "new", "a", "local", f"--site={site}"]) == 0
    assert schema.load_site(site).enabled == ("new", "a")
    assert f"{site}/site.yaml: new is enabled\n" in capsys.readouterr().out
    assert main(["disable", "new", f"--site={site}"]) == 0
    assert schema.load_site(site).enabled == ("a",)


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    path = enable.write(tmp_path / "not" / "yet", add=["a"])
    assert path.read_text() == "enabled: [a]\n"


def test_what_a_platform_still_needs_is_said(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["enable", "archer2_cpu", f"--site={site}"]) == 0
    assert "archer2_cpu is enabled; it needs `values: {archer2_work_dir: …, archer2_account: …}` there, too" in (
        capsys.readouterr().out
    )


def test_a_secret_that_a_platform_needs_comes_from_the_environment(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "scheduler: local\ndevice: cpu\nlayouts: {default: [1x1]}\nenv: {WANDB_API_KEY: '${site.wandb_api_key}'}\n"
    (site / "platforms").mkdir(exist_ok=True)
    (site / "platforms" / "watched.yaml").write_text(text)
    assert main(["enable", "watched", f"--site={site}"]) == 0
    out = capsys.readouterr().out
    assert "watched is enabled; export HPC_ML_BENCH_WANDB_API_KEY before pytest, since secrets never reach YAML" in out
    assert "values:" not in out


def test_a_name_that_no_platform_has_writes_nothing(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["enable", "a", "archer2_cp", f"--site={site}"]) == 2
    assert "there is no platform 'archer2_cp' (did you mean 'archer2_cpu'?)" in capsys.readouterr().err
    assert main(["disable", "newer", f"--site={site}"]) == 2
    assert "there is no platform 'newer' (did you mean 'new'?)" in capsys.readouterr().err
    assert not (site / "site.yaml").exists()


def test_a_platform_without_its_file_can_be_disabled(site: Path) -> None:
    (site / "site.yaml").write_text("enabled: [a, gone]\n")
    assert main(["disable", "gone", f"--site={site}"]) == 0
    assert (site / "site.yaml").read_text() == "enabled: [a]\n"


def test_the_command_that_a_refusal_prints_cures_it(site: Path) -> None:
    (site / "site.yaml").write_text("enabled: [a]\n")
    settings, platforms = checkout.load(site)
    with pytest.raises(RefusedError) as refused:
        checkout.refuse_unready(platforms["new"], site, settings)
    words = shlex.split(str(refused.value).partition("python -m platforms ")[2])
    assert main(words) == 0
    settings, platforms = checkout.load(site)
    checkout.refuse_unready(platforms["new"], site, settings)


def test_a_machine_that_has_ended_is_said_to_be_so(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "platforms" / "a.yaml").write_text("scheduler: local\ndevice: cpu\nuntil: 2024-12-31\nsuccessor: new\n")
    assert main(["enable", "a", "new", "--site", str(site)]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("a:")]
    assert told == [
        f"a: this machine ended on 2024-12-31 (until: in {site}/platforms/a.yaml); use new: its tests are skipped"
    ]
