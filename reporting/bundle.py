"""A bundle: some runs of a site, as a site of their own, in one `tar.gz`.

| file          | content                                                  |
|---------------|----------------------------------------------------------|
| SHA256SUMS    | the sums of all other files, as `sha256sum -c` reads it  |
| table.csv     | the numbers, a line for each run and metric              |
| site.yaml     | the name of the site that measured, and when nights end  |
| history/      | the lines of these runs                                  |
| runs/<run id> | the folder of each run, as far as it is there            |

So every command reads an unpacked bundle with `--site=DIR`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from platforms.config.schema import Site
from platforms.job import RefusedError
from reporting.history.envelope import Envelope
from reporting.history.reader import run_of
from reporting.history.writer import HistoryWriter
from reporting.tables.history_rows import unjudged_rows
from reporting.tables.tidy import tidy

SUMS = "SHA256SUMS"
TABLE = "table.csv"
SITE = "site.yaml"
HISTORY = "history"  # where every site has its history unless it says otherwise
RUNS = "runs"


def pack(path: Path, envelopes: Sequence[Envelope], site: Site, history: Path, runs: Path) -> list[str]:
    """Write the bundle of these runs, as a whole or not at all.

    Args:
        envelopes: all lines of the chosen runs, which are of this site.
        history: the folder that has their run.json's.
        runs: the folder in which each run has one.

    Returns:
        The ids of the runs whose folder is not there.

    Raises:
        RefusedError: a run.json cannot be read, or SHA256SUMS cannot hold the name of a file.
        OSError: the bundle cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.absolute().parent) as made:
        draft = Path(made)
        _write_history(draft / HISTORY, envelopes, history)
        rows = unjudged_rows(history, envelopes, problems=[])  # their run.json's were read a moment ago
        (draft / TABLE).write_text(tidy(rows, site.night_ends), encoding="utf-8")
        (draft / SITE).write_text(f'name: {json.dumps(site.name)}\nnight_ends: "{site.night_ends:%H:%M}"\n')
        files = {name: draft / name for name in _files_below(draft)}
        missing = []
        for run_id in dict.fromkeys(envelope.key.run_id for envelope in envelopes):
            if not (runs / run_id).is_dir():
                missing.append(run_id)
            for name in _files_below(runs / run_id):
                _refuse_name(runs / run_id, name)
                files[f"{RUNS}/{run_id}/{name}"] = runs / run_id / name
        sums = draft / SUMS
        sums.write_text("".join(f"{_sha256(file)}  {name}\n" for name, file in sorted(files.items())), encoding="utf-8")
        packed = draft / "packed"
        with tarfile.open(packed, "w:gz") as archive:
            for name, file in [(SUMS, sums), *sorted(files.items())]:
                archive.add(file, name, recursive=False, filter=_without_owner)
        packed.replace(path)
    return missing


def _write_history(folder: Path, envelopes: Iterable[Envelope], history: Path) -> None:
    writer = HistoryWriter(folder)
    for envelope in envelopes:
        content = run_of(history, envelope) if envelope.run is not None else None
        writer.write(envelope, content)


def _files_below(folder: Path) -> list[str]:
    """The files of a folder by their relative names. Links are left out: they lead to another place elsewhere."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path.relative_to(folder).as_posix() for path in files]


def _refuse_name(folder: Path, name: str) -> None:
    if not name.isprintable():  # a line break, or bytes that are not UTF-8
        raise RefusedError(f"{folder}: {name!a}: {SUMS} cannot hold this name: rename or remove the file")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(path: Path, folder: Path) -> None:
    """Unpack a bundle into a new folder. The folder is there when all files are, and are those of the sums.

    Raises:
        RefusedError: it is no bundle, a file differs or is missing, or the folder exists.
    """
    if folder.exists():
        raise RefusedError(f"{folder}: it is there already (--to=DIR names another folder)")
    if not folder.absolute().parent.is_dir():
        raise RefusedError(f"{folder}: its parent folder does not exist")
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.absolute().parent) as made:
        draft = Path(made) / "bundle"
        try:
            with tarfile.open(path, "r:gz") as archive:
                for member in _checked(path, archive):
                    _extract(archive, member, draft / member.name)
        except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
            raise RefusedError(f"{path}: it cannot be unpacked: {error}") from None
        _refuse_changes(path, draft)
        draft.rename(folder)


def _checked(path: Path, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The files of an archive. Raises RefusedError for a name outside of the folder, and for what is no file."""
    for member in archive:
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts:
            raise RefusedError(f"{path}: {member.name!r} would lie outside of the folder, so nothing was unpacked")
        if not member.isreg():
            raise RefusedError(f"{path}: {member.name!r} is no file, and a bundle has files only")
        yield member


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = archive.extractfile(member)
    assert source is not None  # a regular file
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file)


def _refuse_changes(path: Path, folder: Path) -> None:
    """Raise RefusedError if the files are not those of the sums."""
    sums = folder / SUMS
    if not sums.is_file():
        raise RefusedError(f"{path}: it has no {SUMS}: it is no bundle (python -m reporting export bundle writes one)")
    expected = {}
    for line in sums.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        expected[name] = digest
    found = set(_files_below(folder)) - {SUMS}
    for name in sorted(found ^ expected.keys()):
        why = f"it is not in {SUMS}" if name in found else "it is missing"
        raise RefusedError(f"{path}: {name}: {why}, so nothing was imported")
    for name, digest in expected.items():
        if _sha256(folder / name) != digest:
            raise RefusedError(f"{path}: {name}: its sha256 is another one than in {SUMS}, so nothing was imported")
