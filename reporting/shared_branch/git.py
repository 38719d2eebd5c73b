"""Runs git for a program: no question to a person, no hook and no setting of another repository, no secret in sight."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from platforms.job import RefusedError
from platforms.printable import printable

GIT_S = 600.0
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


class GitError(Exception):
    """A git command has failed. `said` is what it printed, without secrets."""

    def __init__(self, said: str) -> None:
        self.said = said
        super().__init__(said)

    @property
    def sentence(self) -> str:
        """The lines that say why, in one line of text."""
        lines = [line.strip() for line in self.said.splitlines()]
        useful = [re.sub(r"^(remote|fatal|error): *", "", line) for line in lines if line and not _is_noise(line)]
        return printable("; ".join(dict.fromkeys(filter(None, useful))))[:400]


def _is_noise(line: str) -> bool:
    return line.startswith(
        ("To ", "Done", "hint:", "Please make sure you have", "and the repository exists", "warning:")
    )


def run(
    words: Sequence[str],
    *,
    folder: Path | None = None,
    config: Iterable[tuple[str, str]] = (),
    secrets: Iterable[str] = (),
    content: bytes | None = None,
) -> bytes:
    """Run git and return what it prints.

    Args:
        words: what is typed after `git`. Everybody on this machine can read them while it runs: they hold no secret.
        folder: in which it runs.
        config: settings, which reach git through its environment and no file.
        secrets: texts that are hidden in what a GitError says.
        content: for its standard input.

    Raises:
        GitError: it fails, or takes longer than GIT_S.
        RefusedError: git is not installed.
    """
    return _done(words, folder, config, secrets, content).stdout


def talk(words: Sequence[str], folder: Path, config: Iterable[tuple[str, str]], secrets: Iterable[str]) -> str:
    """Run git and return what it and the server say, as `run` does."""
    secrets = tuple(secrets)
    return without(secrets, _done(words, folder, config, secrets, None).stderr.decode(errors="replace"))


def _done(
    words: Sequence[str],
    folder: Path | None,
    config: Iterable[tuple[str, str]],
    secrets: Iterable[str],
    content: bytes | None,
) -> subprocess.CompletedProcess[bytes]:
    command = ["git", *(["-C", str(folder)] if folder is not None else []), *words]
    try:
        done = subprocess.run(
            command,
            input=content,
            stdin=subprocess.DEVNULL if content is None else None,
            capture_output=True,
            timeout=GIT_S,
            check=False,
            env=environment(config),
        )
    except subprocess.TimeoutExpired:
        raise GitError(f"git {words[0]} took longer than {GIT_S:g} s and timed out") from None
    except FileNotFoundError:
        raise RefusedError("git is not installed, or not in PATH (install it, as in apt install git)") from None
    if done.returncode:
        said = (done.stderr + b"\n" + done.stdout).decode(errors="replace")
        raise GitError(without(secrets, said) or f"git {words[0]} ended with {done.returncode}")
    return done


def environment(config: Iterable[tuple[str, str]], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a git command, with settings added to those that it has already."""
    ours = {name: value for name, value in environ.items() if name not in _OF_ANOTHER_REPOSITORY}
    ours |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    if not os.isatty(0):  # a person at a terminal may be asked for the passphrase of a key
        ours.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    first = int(ours.get("GIT_CONFIG_COUNT") or 0)
    count = first
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
