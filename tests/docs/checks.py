"""Checks a command or a block of a page: by the parser that a reader meets, or by running it."""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.util
import io
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path

import pytest
import yaml
from _pytest.config import Config, get_config

from platforms import checkout, command_line
from platforms.__main__ import PROGRAM as PLATFORMS
from platforms.config.schema import Platform, PlatformFile, Site, load_platforms, load_site
from platforms.job import BenchError
from platforms.schedulers import FILE_KEYS
from reporting.__main__ import PROGRAM as REPORTING
from tests.conftest import pytest_addoption
from tests.docs.blocks import ROOT, Block, Command, is_shell, script_of
from tests.docs.exempt import EXTERNAL, FILES, NAMES, NOT_RUN, PARSED_ONLY, PLACEHOLDERS

OURS = {"platforms": PLATFORMS, "reporting": REPORTING}
BASE = {"scheduler": "slurm", "transport": "local", "work_dir": "/w", "device": "gpu", "layouts": {"default": ["1x1"]}}


def wrong_with(command: Command) -> str:
    """What is wrong with a command; "" if its program would understand it."""
    words = [PLACEHOLDERS.get(word, word) for word in command.words]
    if words[0] == "python":
        return _wrong_with_python(words[1:])
    if words[0] == "pytest":
        return _wrong_with_pytest(words[1:])
    if words[0] == "make":
        return _wrong_with_make(words[1:])
    if words[0] in EXTERNAL:
        return ""
    return f"{words[0]!r} is no program that the test knows (tests/docs/exempt.py: EXTERNAL)"


def is_run(command: Command) -> bool:
    """Whether a command reads only the history, so that it can be run over a made one."""
    words = command.words
    if words[:3] != ("python", "-m", "reporting") or len(words) < 4 or words[3] in PARSED_ONLY:
        return False
    return " ".join(words) not in NOT_RUN and not any(word.startswith(("/", "~")) for word in words)


def run(command: Command, site: Path) -> str:
    """Run a command over the site. Returns what is wrong with it; "" if it ends with 0, or with 1 for bad news."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = command_line.run(REPORTING, [*command.words[3:], f"--site={site}"])
    return "" if code in (0, 1) else f"exit code {code}: {out.getvalue()[-400:]}"


# --- parsers ----------------------------------------------------------------------------------------------------------


def _wrong_with_python(words: Sequence[str]) -> str:
    if words[0] == "-m" and words[1] in OURS:
        program = OURS[words[1]]
        return _refused(lambda: command_line.parsed(program, words[2:]))
    if words[:2] == ["-m", "models"]:
        models = importlib.import_module("models.command_line")
        return _refused(lambda: models.parser().parse_args(words[2:]))
    if words[0] == "-m":
        return "" if importlib.util.find_spec(words[1]) else f"there is no module {words[1]}"
    script = ROOT / words[0]
    if not script.is_file():
        return f"there is no {words[0]}"
    source = script.read_text(encoding="utf-8")
    unknown = [word for word in words[1:] if word.startswith("--") and f'"{word.partition("=")[0]}"' not in source]
    return f"{words[0]} has no {unknown[0]}" if unknown else ""


def _refused(parse: Callable[[], object]) -> str:
    """What a parser says against a command."""
    out = io.StringIO()
    try:
        with redirect_stderr(out), redirect_stdout(out):
            parse()
    except SystemExit as error:
        return "" if error.code == 0 else out.getvalue().strip().splitlines()[-1]
    except Exception as error:  # models raises its own
        return str(error)
    return ""


@cache
def _pytest() -> Config:
    """A pytest with our plugin, which has collected nothing."""
    config = get_config([], ())
    config.pluginmanager.load_setuptools_entrypoints("pytest11")
    with suppress(ValueError):  # it is there already
        config.pluginmanager.import_plugin("harness.plugin")
    pytest_addoption(config._parser)  # of `pytest tests`
    return config


@cache
def known_marks() -> frozenset[str]:
    """The names and marks of the platforms that come with the suite."""
    marks = set(checkout.file_names(ROOT / "site"))
    for path in (ROOT / "platforms").glob("*.yaml"):
        marks |= {path.stem, *(yaml.safe_load(path.read_text(encoding="utf-8")).get("marks") or ())}
    return frozenset(marks)


def _wrong_with_pytest(words: Sequence[str]) -> str:
    config = _pytest()
    out = io.StringIO()
    try:
        with redirect_stderr(out):
            options = config._parser.parse(list(words), namespace=copy.copy(config.option))
    except (pytest.UsageError, SystemExit) as error:
        return f"{error} {out.getvalue()}".strip().splitlines()[-1]
    for name in re.findall(r"[a-z]\w*", options.markexpr or ""):
        if name not in known_marks() | NAMES.keys() | {"and", "or", "not"}:
            return f"-m {options.markexpr}: no platform has the mark {name} (tests/docs/exempt.py: NAMES)"
    for word in options.file_or_dir:
        file = word.partition("::")[0]
        if not (ROOT / file).exists() and file not in FILES:
            return f"there is no {file} (tests/docs/exempt.py: FILES)"
    return ""


@cache
def _make(words: tuple[str, ...]) -> str:
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else ""


def _wrong_with_make(words: Sequence[str]) -> str:
    return _make(tuple(words))


# --- blocks -----------------------------------------------------------------------------------------------------------


def wrong_with_block(block: Block) -> str:
    """What is wrong with a block as a whole; "" if nothing is, or if it is a text that is only shown."""
    if is_shell(block):
        script = "\n".join(line for _number, line in script_of(block))
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        return done.stderr.strip()
    if block.language == "python":
        try:
            ast.parse(block.text)
        except SyntaxError as error:
            return f"line {block.line + (error.lineno or 1) - 1}: {error.msg}"
    if block.language == "json" and "…" not in block.text:
        try:
            json.loads(block.text)
        except ValueError as error:
            return str(error)
    if block.language in ("yaml", "yml") or _looks_like_our_yaml(block):
        return _wrong_with_yaml(block)
    return ""


def _looks_like_our_yaml(block: Block) -> bool:
    if block.language or not re.match(r"[a-z_]+:( |\n)", block.text):
        return False
    try:
        content = yaml.safe_load(block.text)
    except yaml.YAMLError:
        return False
    return isinstance(content, dict) and all(str(key) in PlatformFile.model_fields for key in content)


def _wrong_with_yaml(block: Block) -> str:
    text = re.sub(r", …(?=[\]}])", "", block.text)
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        return str(error)
    for content in documents:
        if isinstance(content, dict) and "apiVersion" not in content:
            return wrong_with_settings(content, text)
    return ""


def wrong_with_settings(content: Mapping[str, object], text: str) -> str:
    """What the schema says of a platform's file, a part of one, or a site.yaml. Other YAML is only loaded.

    A block is of a file if half of its keys are.
    """
    keys = {str(key) for key in content}
    of_site = {field.alias or name for name, field in Site.model_fields.items()}
    of_platform = {field.alias or name for name, field in Platform.model_fields.items()} | {"extends", "kubernetes"}
    if len(keys & of_site) > len(keys & of_platform):
        return _refused_file("site.yaml", text)
    is_pipeline = any(isinstance(job, dict) and "script" in job for job in content.values())
    if is_pipeline or 2 * len(keys & of_platform) < len(keys):
        return ""
    missing = {key: value for key, value in BASE.items() if key not in keys and "scheduler" not in keys}
    return _refused_file("platforms/example.yaml", (yaml.safe_dump(missing) if missing else "") + text)


def _refused_file(name: str, text: str) -> str:
    """What is wrong with a file of a site."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        try:
            if name == "site.yaml":
                load_site(path.parent)
            else:
                load_platforms(
                    [path.parent], Site(values={"project": "p0"}), schedulers=FILE_KEYS, environ={}, root=ROOT
                )
        except BenchError as error:
            return str(error).replace(str(path), name)
    return ""


def run_block(block: Block, folder: Path) -> str:
    """Run a shell or pandas snippet that reads the history below `folder`. Returns what is wrong with it."""
    if block.language == "sh" and "jq" in block.text and shutil.which("jq"):
        done = subprocess.run(["bash", "-ec", block.text], cwd=folder, capture_output=True, text=True)
        return "" if done.returncode == 0 and done.stdout else f"exit code {done.returncode}: {done.stderr}"
    return ""
