"""Runs git for a program: no question to a person, no setting for another repository, no secret in sight."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from platforms.job import RefusedError
from platforms.printable import printable

GIT_S = 1800.0  # a server that never repacks searches a large branch for ten minutes before it sends anything
HIDDEN = "***"
# What a hook, or a person's shell, may have set for another repository.
_OF_ANOTHER_REPOSITORY = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_SHALLOW_FILE",
)
_NOISE = ("To ", "Done", "hint:", "Please make sure you have", "and the repository exists", "warning:")


class GitError(RefusedError):
    """A git command has failed.

    Attributes:
        said: what it printed, without secrets.
        sentence: the lines of it that say why, in one line of text.
    """

    def __init__(self, said: str) -> None:
        self.said = said
        lines = [line.strip() for line in said.splitlines() if not line.strip().startswith(_NOISE)]
        useful = [re.sub(r"^(remote|fatal|error): *", "", line) for line in lines]
        self.sentence = printable("; ".join(dict.fromkeys(filter(None, useful))))[:400]
        super().__init__(f"git: {self.sentence}")


def run(
    words: Sequence[str],
    *,
    folder: Path | None = None,
    config: Iterable[tuple[str, str]] = (),
    secrets: Iterable[str] = (),
) -> str:
    """Run git. Returns what it prints.

    Args:
        words: what is typed after `git`. Everybody on this machine can read them while it runs: they hold no secret.
        folder: in which it runs.
        config: settings, which reach git through its environment and no file.
        secrets: texts that are hidden in what a GitError says.

    Raises:
        GitError: it fails, or takes longer than GIT_S.
        RefusedError: git is not installed.
    """
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",  # paths are bytes
            timeout=GIT_S,
            check=False,
            env=environment(config),
        )
    except subprocess.TimeoutExpired:
        raise GitError(f"git {words[0]} took longer than {GIT_S:g} s and timed out") from None
    except FileNotFoundError:
        raise RefusedError("git is not installed, or not in PATH (install it, as in apt install git)") from None
    if done.returncode:
        raise GitError(without(secrets, f"{done.stderr}\n{done.stdout}") or f"git {words[0]}: {done.returncode}")
    return done.stdout


def environment(config: Iterable[tuple[str, str]], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a git command, with settings added to those that it has already."""
    ours = {name: value for name, value in environ.items() if name not in _OF_ANOTHER_REPOSITORY}
    ours |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    if not os.isatty(0):  # a person at a terminal may be asked for the passphrase of a key
        ours.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    count = int(ours.get("GIT_CONFIG_COUNT") or 0)
    for key, value in config:
        ours[f"GIT_CONFIG_KEY_{count}"] = key
        ours[f"GIT_CONFIG_VALUE_{count}"] = value
        count += 1
    ours["GIT_CONFIG_COUNT"] = str(count)
    return ours


def without(secrets: Iterable[str], text: str) -> str:
    """A text in which every secret is hidden."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    return re.sub(r"(\w+://)[^/@\s]+@", r"\1", text)
