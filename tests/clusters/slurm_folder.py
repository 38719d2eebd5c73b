"""What lies in the test cluster's folder before its daemons start: configuration, keys, fake devices, the database."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from tests.clusters.slurm_conf import ACCOUNT, CLUSTER, HIGH_QOS, NODE_NAMES, QOS, USER_QOS
from tests.clusters.slurm_daemons import ClusterError

LONGEST_SOCKET = 100


class Site(Protocol):
    """As much of a cluster as filling its database takes."""

    folder: Path

    def ask(self, *argv: str) -> str:
        """A command that must succeed: its output."""
        ...


def prepare(folder: Path, files: Mapping[Path, str]) -> None:
    """Everything but the database, as far as it is not there. Raises ClusterError when sockets cannot lie there."""
    if len(str(folder / "mariadb.socket")) > LONGEST_SOCKET:
        raise ClusterError(f"{folder}: the path is too long for a Unix socket; name a shorter folder")
    for name in ("log", "run", "state", "dev", *(f"spool/{node}" for node in NODE_NAMES)):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in (f"dev/{kind}{number}" for kind in ("nvidia", "amd") for number in range(4)):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to("/dev/null")
    for path, text in files.items():
        write_private(path, text.encode())
    (folder / "task_prolog").chmod(0o700)
    if not (folder / "munge.key").exists():
        write_private(folder / "munge.key", os.urandom(128))


def write_private(path: Path, content: bytes) -> None:
    """slurmdbd and munged refuse to read what others may read."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def filled(folder: Path) -> Path:
    """It exists once the accounting is complete; made half-way, it is made anew."""
    return folder / "mariadb/filled"


def make_database(site: Site) -> None:
    """MariaDB's own tables. What slurmctld knows of an older database goes with it."""
    for name in ("mariadb", "state"):
        shutil.rmtree(site.folder / name, ignore_errors=True)
    (site.folder / "state").mkdir()
    options = ["--no-defaults", f"--datadir={site.folder / 'mariadb'}", f"--user={getpass.getuser()}"]
    options.append(f"--tmpdir={site.folder}")  # a server that starts removes what others have in the same one
    options += ["--skip-test-db", "--innodb-flush-method=nosync", "--innodb-log-file-size=8M"]
    site.ask("mariadb-install-db", *options)


def fill_database(site: Site) -> None:
    """QOS, account and user. A change is a third of a second of waiting, so those of a stage are made at once."""
    user = getpass.getuser()
    stages = [
        [*(f"add qos {each}" for each in QOS), f"add cluster {CLUSTER}"],
        [f"add qos {HIGH_QOS}", f"add account {ACCOUNT} Cluster={CLUSTER}"],
        [f"add user {user} Account={ACCOUNT} QOS={USER_QOS} DefaultQOS=normal"],
        [f"modify user {user} set DefaultAccount={ACCOUNT}"],
    ]
    with ThreadPoolExecutor() as pool:
        for stage in stages:
            list(pool.map(lambda change: site.ask("sacctmgr", "-i", *change.split()), stage))
    filled(site.folder).touch()
