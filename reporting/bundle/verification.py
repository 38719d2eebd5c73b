"""Verifies a bundle without a network: its files by its manifest, and every cell of its tables by its raw values."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platforms.job import RefusedError
from platforms.results.gates import part
from platforms.rundir.job_folder import RENDERED
from reporting.bundle import manifest
from reporting.bundle.container import BundleFile, Damaged
from reporting.bundle.guide import METHODS, README, REPLACED, Contents, readme_text, replaced_text
from reporting.bundle.methods import methods_text
from reporting.bundle.packing import folder_of, json_text
from reporting.bundle.recomputed import Difference, flat_window, of_record, of_steps, of_windows, of_wire, wire_of
from reporting.bundle.records import (
    CONTENTS,
    LINE,
    LOG,
    RUN_JSON,
    STEPS,
    TABLES,
    WIRE,
    RunRecord,
    line_text,
    parsed_line,
    shown_tables,
    table_files,
)
from reporting.bundle.steps import LONGEST_LINE, all_steps, rows_of

MOST_JSON = 64 << 20  # bytes of a file that is read as a whole
MOST_CODE = 64 << 20
MOST_RANKS = 100_000
LONGEST_WIRE = 1 << 16
UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    ZeroDivisionError,
    RecursionError,
)


@dataclass(frozen=True)
class Discrepancy:
    """A value that is not what it must be.

    Attributes:
        file: in the bundle, and the place in it.
        said: what stands there, and what must.
    """

    file: str
    said: str


@dataclass
class Verification:
    """What was found. Without findings the bundle is identical with what can be computed from its raw values.

    Attributes:
        digest: of the bundle.
        cells: how many cells of tables were computed again.
        from_steps, from_wire, from_record: how many runs from their raw values on, from what the job reported on, and
            from their record on.
        without_digest: no digest was given, so that nothing says whether it is the bundle that was published.
    """

    digest: str
    files: int
    without_digest: bool
    cells: int = 0
    step_rows: int = 0
    from_steps: int = 0
    from_wire: int = 0
    from_record: int = 0
    commit: str | None = None
    findings: list[Discrepancy] = field(default_factory=list)

    def add(self, file: str, found: Iterable[Difference]) -> None:
        for each in found:
            where = f"{file}: {each.place}" if each.place else file
            self.findings.append(Discrepancy(where, f"{each.found} stands there, and {each.expected}"))


def verify(path: Path, digest: str | None = None) -> Verification:
    """Verify a bundle. Its files are read in place, and nothing is written.

    Args:
        digest: the one that was printed, as in `sha256:…`.

    Raises:
        RefusedError: it is no bundle, or is damaged so that it cannot be read.
        OSError: it cannot be read.
    """
    try:
        box = BundleFile(path)
    except Damaged as error:
        raise RefusedError(f"{path}: {error}") from None
    with box:
        return _verified(path, box, digest)


def _verified(path: Path, box: BundleFile, digest: str | None) -> Verification:
    if manifest.NAME not in box.entries:
        raise RefusedError(f"{path}: it has no {manifest.NAME}, so it is no bundle")
    try:
        text = box.read(manifest.NAME, MOST_JSON)
        listed = manifest.parsed_manifest(text)
    except (manifest.LaterVersion, ValueError) as error:
        raise RefusedError(f"{path}: {manifest.NAME}: {error}") from None
    found = Verification(manifest.digest(text), len(listed), digest is None)
    if zlib.crc32(text) != box.entries[manifest.NAME].crc:
        found.findings.append(Discrepancy(manifest.NAME, "its checksum in the zip file is another one"))
    if digest is not None and digest.lower().removeprefix("sha256:") != found.digest.removeprefix("sha256:"):
        said = (
            f"the digest of this bundle is {found.digest}, and {digest} was given: it is another bundle, or was edited"
        )
        found.findings.append(Discrepancy(manifest.NAME, said))
    _check_files(box, listed, found)
    _check_values(box, found)
    return found


def _check_files(box: BundleFile, listed: Mapping[str, manifest.Listed], found: Verification) -> None:
    names = [name for name in box.entries if name != manifest.NAME]
    for name in sorted({*names, *listed}):
        if name not in box.entries:
            found.findings.append(Discrepancy(name, f"it is missing, and {manifest.NAME} lists it"))
            continue
        if name not in listed:
            found.findings.append(Discrepancy(name, f"{manifest.NAME} does not list it"))
            continue
        hashed, crc, size = hashlib.sha256(), 0, 0
        for chunk in box.chunks(name):
            hashed.update(chunk)
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
        if size != listed[name].size:
            found.findings.append(Discrepancy(name, f"it has {size} bytes, and {listed[name].size} in {manifest.NAME}"))
        elif hashed.hexdigest() != listed[name].sha256:
            found.findings.append(Discrepancy(name, f"it is not the file of {manifest.NAME}: its sha256 differs"))
        elif crc != box.entries[name].crc:
            found.findings.append(Discrepancy(name, "its checksum in the zip file is another one"))
    if names != sorted(names) or next(iter(box.entries)) != manifest.NAME:
        found.findings.append(
            Discrepancy(manifest.NAME, "the files do not stand in the order in which bundle writes them")
        )


# --- values ---


def _check_values(box: BundleFile, found: Verification) -> None:
    try:
        contents = Contents.from_json(json.loads(box.read(CONTENTS, MOST_JSON)))
        folders = {str(folder): [str(said) for said in missing] for folder, missing in contents.runs.items()}
    except UNREADABLE as error:
        found.findings.append(Discrepancy(CONTENTS, f"it cannot be read: {_sentence(error)}"))
        return
    found.commit = contents.commit
    records: list[RunRecord] = []
    files = {manifest.NAME, CONTENTS, README, REPLACED, METHODS, *TABLES}
    for folder, missing in folders.items():
        record = _record(box, folder, missing, found)
        if record is not None:
            records.append(record)
            files.update(_files_of(record, box))
            _check_run(box, record, found)
    files.update(_check_code(box, records, found))
    for name in box.entries:
        if name not in files:
            found.findings.append(Discrepancy(name, "it belongs to no run of this bundle"))
    if len(records) == len(folders):
        _check_tables(box, records, found)
        _check_texts(box, contents, records, found)


def _record(box: BundleFile, folder: str, missing: Sequence[str], found: Verification) -> RunRecord | None:
    """A run as its files say it; None, with a finding, if they cannot be read."""
    file = f"{folder}/{LINE}"
    try:
        text = box.read(file, MOST_JSON)
        envelope = parsed_line(text)
        if line_text(envelope).encode() != text:
            raise ValueError("a value of it is not as bundle writes it")
        content: dict[str, Any] = {}
        file = f"{folder}/{RUN_JSON}"
        if file in box.entries:
            text = box.read(file, MOST_JSON)
            content = json.loads(text)
            if json_text(content).encode() != text:
                raise ValueError("a value of it is not as bundle writes it")
        scripts = [f"{folder}/{name}" for name in RENDERED if f"{folder}/{name}" in box.entries]
        script = box.read(scripts[0], MOST_JSON).decode("utf-8", "replace") if scripts else ""
        ranks = 0
        while ranks < MOST_RANKS and f"{folder}/{STEPS.format(rank=ranks)}" in box.entries:
            ranks += 1
        record = RunRecord(folder, content, envelope, ranks, f"{folder}/{WIRE}" in box.entries, script, tuple(missing))
        _ = record.run.effective_throughput  # so that a record which cannot be read is found here
    except UNREADABLE as error:
        found.findings.append(Discrepancy(file, f"it cannot be read: {_sentence(error)}"))
        return None
    if folder.rstrip("+") != folder_of(envelope):
        found.findings.append(
            Discrepancy(f"{folder}/{LINE}", f"its run, test or attempt are those of {folder_of(envelope)}")
        )
    return record


def _sentence(error: BaseException) -> str:
    return f"the key {error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__


def _files_of(record: RunRecord, box: BundleFile) -> Iterator[str]:
    for name in (LINE, RUN_JSON, WIRE, LOG, *RENDERED, *(STEPS.format(rank=rank) for rank in range(record.ranks))):
        if f"{record.folder}/{name}" in box.entries:
            yield f"{record.folder}/{name}"


def _check_run(box: BundleFile, record: RunRecord, found: Verification) -> None:
    if not record.content:
        found.from_record += 1
        return
    file = f"{record.folder}/{RUN_JSON}"
    windows = [flat_window(window) for window in record.content["windows"]]
    summary = record.content["summary"]
    try:
        found.add(file, of_windows(record.content))
        found.add(f"{record.folder}/{LINE}", of_record(record))
        if record.has_wire:
            file = f"{record.folder}/{WIRE}"
            wire = wire_of(box.lines(file, LONGEST_WIRE))
            found.add(f"{record.folder}/{RUN_JSON}", of_wire(wire, record))
            windows = [flat_window(window) for _index, window in sorted(wire.windows.items())]
            summary = wire.summary
        if record.ranks:
            file = f"{record.folder}/{STEPS.format(rank='<N>')}"
            size = part(part(record.content, "start"), "world").get("size")
            if size is not None and size != record.ranks:
                found.findings.append(
                    Discrepancy(file, f"there are {record.ranks} of these files, and the run had {size} ranks")
                )
            steps = all_steps([_rows(box, record, rank) for rank in range(record.ranks)])
            found.step_rows += record.ranks * steps.optimizer_steps
            found.add(f"{record.folder}/{WIRE if record.has_wire else RUN_JSON}", of_steps(steps, windows, summary))
    except UNREADABLE as error:
        found.findings.append(Discrepancy(file, _sentence(error)))
    if record.ranks:
        found.from_steps += 1
    elif record.has_wire:
        found.from_wire += 1
    else:
        found.from_record += 1


def _rows(box: BundleFile, record: RunRecord, rank: int) -> Iterator[Any]:
    name = f"{record.folder}/{STEPS.format(rank=rank)}"
    try:
        yield from rows_of(box.lines(name, LONGEST_LINE))
    except ValueError as error:
        raise ValueError(f"rank {rank}: {error}") from None


def _check_code(box: BundleFile, records: Sequence[RunRecord], found: Verification) -> set[str]:
    """Whether the archives are those that their names say. Returns the names of those that runs used."""
    used = {str(part(record.content, "start").get("code")) for record in records}
    names = {f"code/models-{code}.pyz" for code in used}
    for name in sorted(names & box.entries.keys()):
        try:
            code = content_hash(box.read(name, MOST_CODE))
        except (ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
            found.findings.append(Discrepancy(name, f"it cannot be read: {error}"))
            continue
        if name != f"code/models-{code}.pyz":
            found.findings.append(Discrepancy(name, f"its members have the hash {code}"))
    return names


def content_hash(archive: bytes) -> str:
    """The hash of a code archive's members, as `platforms/rundir/code_archive.py` defines it.

    Raises ValueError and zipfile's errors for a file that is no archive of ours.
    """
    hashed = hashlib.sha256()
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        members = {member.filename: member for member in packed.infolist()}
        if any(member.compress_type or member.file_size > len(archive) for member in members.values()):
            raise ValueError("a member of it is compressed, and none of ours is")
        for name in sorted(members):
            content = packed.read(name)
            hashed.update(f"{len(name)} {name} {len(content)} ".encode() + content)
    return hashed.hexdigest()[:12]


# --- tables and texts ---


def _check_tables(box: BundleFile, records: Sequence[RunRecord], found: Verification) -> None:
    try:
        expected = table_files(records)
        tables = shown_tables(records)
    except UNREADABLE as error:
        found.findings.append(Discrepancy(TABLES[0], f"the tables cannot be made again: {_sentence(error)}"))
        return
    found.cells += 2 * sum(len(row) for table in tables for row in table.rows)  # as text and as Markdown
    for name, text in expected.items():
        stored = _text(box, name, found)
        if stored is None:
            continue
        if name.endswith(".csv"):
            rows = list(csv.reader(io.StringIO(text)))
            found.cells += len(rows[0]) * (len(rows) - 1)
            found.findings.extend(_cells(name, stored, rows))
        if stored != text and not any(finding.file.startswith(f"{name}:") for finding in found.findings):
            found.findings.extend(_lines(name, stored, text))


def _cells(name: str, stored: str, expected: list[list[str]]) -> Iterator[Discrepancy]:
    """Which cells of a CSV file are not those that were computed again."""
    try:
        rows = list(csv.reader(io.StringIO(stored)))
    except csv.Error as error:
        yield Discrepancy(name, f"it cannot be read: {error}")
        return
    if len(rows) != len(expected) or not rows or rows[0] != expected[0]:
        return
    for line, (row, wanted) in enumerate(zip(rows[1:], expected[1:], strict=True), 2):
        for column, cell, value in zip(expected[0], row, wanted, strict=False):
            if cell != value:
                yield Discrepancy(
                    f"{name}: line {line}, column {column}", f"{cell!r} stands there, and {value!r} by the records"
                )


def _lines(name: str, stored: str, expected: str) -> Iterator[Discrepancy]:
    """The first line of a text that is not the one that was made again, and the words in which it differs."""
    there, wanted = stored.split("\n"), expected.split("\n")
    for line, (one, other) in enumerate(zip(there, wanted, strict=False), 1):
        if one != other:
            yield Discrepancy(f"{name}: line {line}", _words(one, other))
            return
    yield Discrepancy(name, f"it has {len(there) - 1} lines, and {len(wanted) - 1} by the records")


def _words(one: str, other: str) -> str:
    found, wanted = (re.split(r"  +| \| ", line) for line in (one, other))
    if len(found) == len(wanted):
        pairs = [(cell, value) for cell, value in zip(found, wanted, strict=True) if cell != value]
        if len(pairs) == 1:
            return f"{pairs[0][0][:200]!r} stands there, and {pairs[0][1][:200]!r} by the records"
    return f"{one[:200]!r} stands there, and {other[:200]!r} by the records"


def _check_texts(box: BundleFile, contents: Contents, records: Sequence[RunRecord], found: Verification) -> None:
    expected = {CONTENTS: json.dumps(contents.as_json(), indent=1) + "\n"}
    try:
        expected[README] = readme_text(contents, records)
        expected[REPLACED] = replaced_text(contents)
        expected[METHODS] = methods_text(records, contents.unfinished)
    except UNREADABLE as error:
        found.findings.append(Discrepancy(METHODS, f"it cannot be made again: {_sentence(error)}"))
    for name, text in expected.items():
        stored = _text(box, name, found)
        if stored is not None and stored != text:
            found.findings.extend(_lines(name, stored, text))


def _text(box: BundleFile, name: str, found: Verification) -> str | None:
    try:
        return box.read(name, MOST_JSON).decode()
    except KeyError:
        if not any(finding.file == name for finding in found.findings):
            found.findings.append(Discrepancy(name, "it is missing"))
    except ValueError as error:
        found.findings.append(Discrepancy(name, f"it cannot be read: {error}"))
    return None
