"""`python -m reporting verify`: every edit of a bundle is found, and a file that is none is refused in one sentence."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from platforms.job import RefusedError
from reporting.__main__ import main
from reporting.bundle import container, manifest
from reporting.bundle.packing import json_text
from reporting.bundle.verification import Verification, verify
from tests.reporting.bundled_session import (
    COSMOFLOW,
    MINE,
    NO_SPLIT,
    RESNET,
    RUN_ID,
    STREAM,
    contents_of,
    session,
    without_split,
)

EDITS = 1000
RECORD = f"jobs/{RUN_ID}/{RESNET}/run.json"
WIRE = f"jobs/{RUN_ID}/{RESNET}/wire.log"
STEPS = f"jobs/{RUN_ID}/{RESNET}/steps-rank{{}}.csv"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return session(tmp_path_factory.mktemp("session"), (RESNET, STREAM), with_code=True).bundle()


@pytest.fixture(scope="module")
def files(bundle: Path) -> dict[str, bytes]:
    return contents_of(bundle)


def renewed(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files with the manifest that they need, as somebody makes it who hides an edit."""
    others = {name: files[name] for name in sorted(files) if name != "MANIFEST"}
    text = manifest.manifest_text({name: manifest.listed(content) for name, content in others.items()})
    return {"MANIFEST": text.encode(), **others}


def found_in(path: Path, content: bytes, digest: str | None = None) -> list[str]:
    """What `verify` finds in a file with these bytes; the sentence with which it refuses it."""
    path.write_bytes(content)
    try:
        return [f"{finding.file}: {finding.said}" for finding in verify(path, digest).findings]
    except RefusedError as error:
        return [str(error)]


# --- any edit ---


def edited(content: bytes, at_random: random.Random) -> bytes:
    """The content with one value, digit, letter or byte changed, added or removed."""
    numbers = list(re.finditer(rb"\d+(?:\.\d+)?", content))
    kind = at_random.choice(["number", "digit", "byte", "insert", "delete", "twice"])
    place = at_random.randrange(len(content))
    if kind == "number" and numbers:
        number = at_random.choice(numbers)
        other = str(at_random.randrange(10**6)).encode()
        return content[: number.start()] + (other if other != number[0] else other + b"1") + content[number.end() :]
    if kind == "digit" and numbers:
        number = at_random.choice(numbers)
        place = at_random.randrange(number.start(), number.end())
        digits = [digit for digit in b"0123456789" if digit != content[place]]
        return content[:place] + bytes([at_random.choice(digits)]) + content[place + 1 :]
    if kind == "insert":
        return content[:place] + bytes([at_random.randrange(256)]) + content[place:]
    if kind == "delete":
        return content[:place] + content[place + 1 :]
    if kind == "twice":
        end = min(len(content), place + at_random.randrange(1, 40))
        return content[:end] + content[place:end] + content[end:]
    return content[:place] + bytes([content[place] ^ at_random.randrange(1, 256)]) + content[place + 1 :]


def test_a_thousand_edits_are_all_found(bundle: Path, files: dict[str, bytes], tmp_path: Path) -> None:
    at_random = random.Random(17)
    whole = bundle.read_bytes()
    missed = []
    for number in range(EDITS):
        if number % 5 == 0:  # of the zip file itself
            name, content = "zip", edited(whole, at_random)
        else:
            name = at_random.choice(sorted(files))
            content = container.write({**files, name: edited(files[name], at_random)})
        if not found_in(tmp_path / "edited.zip", content):
            missed.append((number, name))
    assert missed == []
    assert found_in(tmp_path / "same.zip", whole) == []


def test_edits_with_a_renewed_manifest_have_another_digest(
    bundle: Path, files: dict[str, bytes], tmp_path: Path
) -> None:
    digest = manifest.digest(files["MANIFEST"])
    at_random = random.Random(18)
    for _edit in range(60):
        name = at_random.choice([name for name in sorted(files) if name != "MANIFEST"])
        content = container.write(renewed({**files, name: edited(files[name], at_random)}))
        assert any("digest" in said for said in found_in(tmp_path / "edited.zip", content, digest)), name
    assert found_in(tmp_path / "same.zip", container.write(renewed(files)), digest) == []


# --- edits that the manifest hides, without a digest ---


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where numbers and truths stand in a value of JSON."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list):
        for position, each in enumerate(value):
            yield from places(each, (*path, position))
    elif isinstance(value, int | float):
        yield path


def changed_at(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    copied = json.loads(json.dumps(value))
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = change(inner[path[-1]])
    return copied


def other_number(value: Any) -> Any:
    """A number that differs in its last digit; the other truth."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else float(f"{value:.15g}") * (1 + 1e-12) + 1e-15


def test_each_number_of_a_record_on_which_a_table_depends(files: dict[str, bytes], tmp_path: Path) -> None:
    record = json.loads(files[RECORD])
    parts = ("windows", "start", "summary", "started_s", "ended_s", "effective_throughput", "compute_fraction")
    parts += ("compute_throughput", "identity_gap", "spread_within_job", "run_s", "exit_code")
    missed = []
    for path in places({key: record[key] for key in parts if key != "exit_code"}):
        change = (lambda seconds: seconds + 60) if path[0] in ("started_s", "ended_s") else other_number
        content = json_text(changed_at(record, path, change)).encode()
        if not found_in(tmp_path / "edited.zip", container.write(renewed({**files, RECORD: content}))):
            missed.append(path)
    assert missed == []


def test_each_number_of_the_windows_and_the_summary_on_the_wire(files: dict[str, bytes], tmp_path: Path) -> None:
    lines = files[WIRE].decode().splitlines(keepends=True)
    missed = []
    for number, line in enumerate(lines):
        head, _, text = line.partition("{")
        event = json.loads("{" + text)
        if event["key"] not in ("hpcml_window", "hpcml_summary", "hpcml_start"):
            continue
        for path in places(event["value"]):
            value = changed_at(event["value"], path, other_number)
            if path[-2:-1] in (("wait_s",), ("h2d_s",), ("busy_s",)) or path == ("loss",):
                value = changed_at(event["value"], path, lambda seconds: seconds + 1e-6)  # rounded in the steps
            if path == ("loss",):
                continue  # no table has it
            edited_line = head + json.dumps({**event, "value": value}) + "\n"
            content = "".join([*lines[:number], edited_line, *lines[number + 1 :]]).encode()
            if not found_in(tmp_path / "edited.zip", container.write(renewed({**files, WIRE: content}))):
                missed.append((event["key"], path))
    assert missed == []


@pytest.mark.parametrize("rank", [0, 1])
def test_each_raw_value_in_a_window(files: dict[str, bytes], tmp_path: Path, rank: int) -> None:
    name = STEPS.format(rank)
    rows = files[name].decode().splitlines()
    missed = []
    for number, row in enumerate(rows[1:], 1):
        cells = row.split(",")
        for column in (0, 1, 2, 3, 4):
            if not cells[1]:
                continue  # of the warm-up
            value = str(int(cells[column]) + 1) if column < 2 else f"{float(cells[column]) + 1e-7:.9f}"
            changed = ",".join([*cells[:column], value, *cells[column + 1 :]])
            content = "\n".join([*rows[:number], changed, *rows[number + 1 :], ""]).encode()
            if not found_in(tmp_path / "edited.zip", container.write(renewed({**files, name: content}))):
                missed.append((number, column))
    assert missed == []


def test_a_rank_with_fewer_steps(files: dict[str, bytes], tmp_path: Path) -> None:
    content = b"".join(files[STEPS.format(1)].splitlines(keepends=True)[:-1])
    said = found_in(tmp_path / "b.zip", container.write(renewed({**files, STEPS.format(1): content})))
    assert said == [f"{STEPS.format('<N>')}: rank 1 has fewer steps than another rank"]


def test_each_cell_of_a_table_and_each_number_of_the_methods(files: dict[str, bytes], tmp_path: Path) -> None:
    at_random = random.Random(19)
    missed = []
    names = ("tables/tables.txt", "tables/tables.md", "tables/tables.csv", "METHODS.md", "README.md", "REPLACED.md")
    for name in names:
        numbers = list(re.finditer(rb"\d+(?:\.\d+)?", files[name]))
        for number in at_random.sample(numbers, min(40, len(numbers))):
            content = files[name][: number.start()] + b"7" + number[0] + files[name][number.end() :]
            if not found_in(tmp_path / "edited.zip", container.write(renewed({**files, name: content}))):
                missed.append((name, number[0]))
    assert missed == []


def test_it_says_which_cell_differs(
    files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = {
        "tables/tables.txt": files["tables/tables.txt"].replace(b"25.4", b"25.9"),
        "tables/tables.csv": files["tables/tables.csv"].replace(b",25.07830415077567,", b",26.07830415077567,", 1),
    }
    path = tmp_path / "edited.zip"
    path.write_bytes(container.write({**files, **tables}))
    assert main(["verify", str(path)]) == 1
    out = capsys.readouterr().out
    assert "tables/tables.csv: it is not the file of MANIFEST: its sha256 differs\n" in out
    assert re.search(
        r"tables\.csv: line \d+, column value: '26\.078\S+' stands there, and '25\.078\S+' by the records", out
    )
    assert "tables/tables.txt: line 4: '25.9' stands there, and '25.4' by the records\n" in out
    assert f"differs: {path} has 4 differences, as above\n" in out


def test_code_is_compared_with_its_name(files: dict[str, bytes], tmp_path: Path) -> None:
    (name,) = (name for name in files if name.startswith("code/"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as packed:
        packed.writestr("__main__.py", "print('trains faster')\n")
    (said,) = found_in(tmp_path / "b.zip", container.write(renewed({**files, name: buffer.getvalue()})))
    assert re.fullmatch(rf"{name}: its members have the hash [0-9a-f]{{12}}", said)


def test_a_file_too_many_and_one_too_few(files: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    added = dict(sorted({**files, "jobs/notes.txt": b"faster"}.items()))
    assert "jobs/notes.txt: MANIFEST does not list it" in found_in(path, container.write(added))
    assert "jobs/notes.txt: it belongs to no run of this bundle" in found_in(path, container.write(renewed(added)))
    less = {name: content for name, content in files.items() if name != STEPS.format(1)}
    assert f"{STEPS.format(1)}: it is missing, and MANIFEST lists it" in found_in(path, container.write(less))
    said = found_in(path, container.write(renewed(less)))
    assert f"{STEPS.format('<N>')}: there are 1 of these files, and the run had 2 ranks" in said
    without_tables = {name: content for name, content in files.items() if name != "tables/tables.csv"}
    assert found_in(path, container.write(renewed(without_tables))) == ["tables/tables.csv: it is missing"]


# --- what is no bundle ---


def zipped(names: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip file as another program makes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as packed:
        for name, content in names.items():
            packed.writestr(zipfile.ZipInfo(name), content, method)
    return buffer.getvalue()


def with_flag(content: bytes) -> bytes:
    """The zip file with the mark of encryption at its last file."""
    at = content.rindex(b"PK\x01\x02") + 8
    return content[:at] + b"\x01" + content[at + 1 :]


def doubled(files: dict[str, bytes]) -> bytes:
    """A zip file in which one file has the name of another one."""
    return container.write({**files, "METHODZ.md": b"x"}).replace(b"METHODZ.md", b"METHODS.md")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda files: b"", "it is no zip file"),
        (lambda files: b"no zip file" * 100, "it is no zip file"),
        (lambda files: container.write(files)[:-100], "the zip file is cut off, or something was added behind its end"),
        (
            lambda files: container.write(files) + b"more",
            "the zip file is cut off, or something was added behind its end",
        ),
        (lambda files: b"#!/bin/sh\n" + container.write(files), "its list of files does not end where it says"),
        (
            lambda files: zipped(files),
            "what the zip file says about MANIFEST (times, rights, sizes) is not what bundle",
        ),
        (lambda files: zipped(files, zipfile.ZIP_DEFLATED), "MANIFEST is compressed, and bundle compresses nothing"),
        (lambda files: zipped({"bomb": b"\0" * 10**7}, zipfile.ZIP_DEFLATED), "bomb is compressed"),
        (
            lambda files: zipped({"../../evil": b"x"}),
            "a file in it is named '../../evil', which could be written outside",
        ),
        (
            lambda files: zipped({"/etc/evil": b"x"}),
            "a file in it is named '/etc/evil', which could be written outside",
        ),
        (lambda files: zipped({"a/../../b": b"x"}), "a file in it is named 'a/../../b'"),
        (lambda files: zipped({"a\\b": b"x"}), "which could be written outside of a folder; nothing was"),
        (
            lambda files: with_flag(container.write(files)),
            "tables/tables.txt is encrypted, and bundle encrypts nothing",
        ),
        (doubled, "the file METHODS.md stands in it twice"),
        (lambda files: container.write({}), "it has no MANIFEST, so it is no bundle"),
        (lambda files: container.write({"MANIFEST": b"abc"}), "MANIFEST: a line of it is not what bundle writes"),
        (
            lambda files: container.write({"MANIFEST": files["MANIFEST"].replace(b"version 1", b"version 2", 1)}),
            "MANIFEST: it is a bundle of version 2, and this suite reads version 1: update the suite",
        ),
    ],
)
def test_a_file_that_is_no_bundle(
    files: dict[str, bytes],
    tmp_path: Path,
    make: Callable[[dict[str, bytes]], bytes],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    path = folder / "file.zip"
    path.write_bytes(make(files))
    assert main(["verify", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path}: ")
    assert sentence in said
    assert said.count("\n") == 1
    assert list(tmp_path.rglob("*")) == [folder, path], "nothing is extracted"


def test_a_list_of_files_that_promises_too_much(tmp_path: Path) -> None:
    """Nothing is read that the sizes of the file do not allow."""
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 60_000, 60_000, 0xFFFFFFF0, 0, 0)
    (said,) = found_in(tmp_path / "b.zip", end)
    assert "its list of files does not end where it says" in said


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "no.zip")]) == 2
    err = capsys.readouterr().err
    assert (
        f"no.zip: there is no such file (python -m reporting bundle latest -o {tmp_path / 'no.zip'} writes one)" in err
    )


def test_a_folder_is_no_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "unpacked bundle"
    folder.mkdir()
    assert main(["verify", str(folder)]) == 2
    said = f"{folder}: this is a folder, and a bundle is one zip file (type the name of the file"
    assert f"error: {said})\n" == capsys.readouterr().err
    (folder / "MANIFEST").write_text("")
    assert main(["verify", str(folder)]) == 2
    assert f"{said}; `cd '{folder}' && sha256sum -c MANIFEST` checks its" in capsys.readouterr().err
    assert main(["verify", "/dev/null"]) == 2
    assert "/dev/null: this is no file, and a bundle is one zip file" in capsys.readouterr().err


def test_a_program_of_the_site_and_ranks_are_followed_from_their_raw_values(tmp_path: Path) -> None:
    found: Verification = verify(session(tmp_path, (COSMOFLOW, MINE, STREAM)).bundle())
    assert found.findings == []
    assert (found.from_steps, found.from_wire, found.from_record) == (2, 0, 1)
    assert found.step_rows == 2 * 14 + 180
    assert found.digest == f"sha256:{hashlib.sha256(contents_of(tmp_path / 'bundle.zip')['MANIFEST']).hexdigest()}"


# --- runs of a device that does not tell waiting from computing ---


@pytest.fixture(scope="module")
def unsplit(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("unsplit")
    return contents_of(session(folder, (RESNET, MINE), change=without_split).bundle())


def test_runs_without_a_split_are_followed_from_their_raw_values(unsplit: dict[str, bytes], tmp_path: Path) -> None:
    assert found_in(tmp_path / "b.zip", container.write(unsplit)) == []
    assert verify(tmp_path / "b.zip").from_steps == 2
    tables = unsplit["tables/tables.txt"].decode()
    assert f"no compute throughput and no compute fraction: {NO_SPLIT}" in tables
    methods = unsplit["METHODS.md"].decode()
    assert f"2 runs without compute fraction and compute throughput: {NO_SPLIT}." in methods
    assert "Each step of each rank was split" not in methods
    assert "column `whole`" in unsplit["README.md"].decode()


@pytest.mark.parametrize(
    ("file", "pattern", "written", "said"),
    [
        (RECORD, rb'"compute_fraction": null', b'"compute_fraction": 0.9', "compute_fraction"),
        (RECORD, rb'"stall_s": null', b'"stall_s": 0.1', "windows"),
        (WIRE, rb', "no_split": "[^"]*"', b"", "window 0 cannot be used"),
        (WIRE, rb'"stall_s": null', b'"stall_s": 0.1', "windows"),
        (STEPS.format(0), rb"\n1,,,,,", b"\n1,0,,,,", "window"),
        (STEPS.format(0), rb"busy,whole\n", b"busy\n", "is no row of"),
    ],
)
def test_an_edit_of_a_run_without_a_split_is_found(
    unsplit: dict[str, bytes], tmp_path: Path, file: str, pattern: bytes, written: bytes, said: str
) -> None:
    changed, count = re.subn(pattern, written, unsplit[file], count=1)
    assert count == 1
    found = found_in(tmp_path / "b.zip", container.write(renewed({**unsplit, file: changed})))
    assert any(said in sentence for sentence in found), found
