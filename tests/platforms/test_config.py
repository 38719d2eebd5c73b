"""Platform files and site.yaml: what is read is what was written, and every mistake is named with its line and key."""

from __future__ import annotations

import datetime
import json
import runpy
from functools import partial
from pathlib import Path

import pytest
import yaml

from platforms import checkout
from platforms.config import schema, yaml_lines
from platforms.config.cluster_values import quantity_of
from platforms.config.keys import ContainerKeys, KubernetesKeys, PolicyKeys, SlurmKeys, StackKeys, VolumeKeys
from platforms.config.schema import Platform, Site, load_site
from platforms.config.values import RESERVED_MARKS
from platforms.job import ConfigError, Layout, Metric, RefusedError
from platforms.schedulers import FILE_KEYS

load_platforms = partial(schema.load_platforms, schedulers=FILE_KEYS)
HERE = Path(schema.__file__).parents[1]
ROOT = HERE.parent
REMOTE = "scheduler: slurm\ndevice: gpu\nlayouts: {default: [1x4]}\nwork_dir: /work/me\n"


def load(folder: Path, text: str, site: Site | None = None, **environ: str) -> Platform:
    """The platform `it` of one file, on a machine without accelerators."""
    (folder / "it.yaml").write_text(text, encoding="utf-8")
    return load_platforms([folder], site, environ=environ, root=folder)["it"]


def mistakes(folder: Path, text: str | bytes, site: Site | None = None) -> list[str]:
    """The problems of one file, without its path."""
    path = folder / "it.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_platforms([folder], site, environ={}, root=folder)
    assert str(caught.value) == "\n".join(caught.value.problems)
    assert all(problem.startswith(f"{path}:") for problem in caught.value.problems)
    return [problem.removeprefix(f"{path}:") for problem in caught.value.problems]


# --- the shipped files ---


def test_the_shipped_platform(tmp_path: Path) -> None:
    local = load_platforms([HERE], environ={}, root=tmp_path)["local"]
    assert (local.scheduler, local.device, local.unit) == ("local", "cpu", "cpu")
    assert local.layout_list() == (Layout(1, 1, "cpu"),)
    assert (local.configurations, local.size, local.mode) == (("gbs32", "tuned"), "quick", "overlap")
    assert (local.time_limit_s, local.start_limit_s, local.max_running) == (3600.0, 43200.0, 1)
    assert local.data_dir == "data"
    assert local.all_marks == ("local",)


def test_the_schema_is_current_and_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = (HERE / "schema.json").read_text(encoding="utf-8")
    again = "run: python -m platforms.config > platforms/schema.json"
    assert json.loads(text) == schema.schema(), again
    assert (HERE / "local.yaml").read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=schema.json\n")
    runpy.run_path(str(HERE / "config/__main__.py"), run_name="__main__")
    assert json.loads(capsys.readouterr().out) == schema.schema()


def test_the_documentation_names_every_key() -> None:
    text = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
    written = {row.split("`")[1] for row in text.splitlines() if row.startswith("| `")}
    parts = {"slurm": SlurmKeys, "container": ContainerKeys, "policy": PolicyKeys}
    parts |= {"stacks": StackKeys, "kubernetes": KubernetesKeys, "kubernetes.volumes": VolumeKeys}
    nested = {f"{part}.{f.alias or name}" for part, model in parts.items() for name, f in model.model_fields.items()}
    assert written == {*schema.schema()["properties"], *Site.model_fields, *nested}


def test_the_documentations_examples_load(tmp_path: Path) -> None:
    blocks = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8").split("```yaml\n")[1:]
    first, platform, site = (block.split("```")[0] for block in blocks)
    (tmp_path / "site.yaml").write_text(site, encoding="utf-8")
    folder = tmp_path / "platforms"
    folder.mkdir()
    (folder / "mine.yaml").write_text(first, encoding="utf-8")
    (folder / "eidf_a100.yaml").write_text(platform, encoding="utf-8")
    loaded = load_platforms([folder], load_site(tmp_path), environ={}, root=tmp_path)
    assert loaded["eidf_a100"].missing == loaded["mine"].missing == ()
    assert "eidf_a100" in load_site(tmp_path).enabled


# --- what is written is what is read ---


def test_a_committed_value_has_a_direction_and_a_unit(tmp_path: Path) -> None:
    text = "committed: [{test: t, metric: hpl, value: %s, source: contract 3.2}]"
    (found,) = load(tmp_path, text % "at most 5.5e-1 us").committed
    assert (found.value, found.runs) == (Metric(0.55, "us", "lower"), 3)
    for value in ("1500", "1500 GFLOP/s", "at least 0 GB/s", "at least 5"):
        (mistake,) = mistakes(tmp_path, text % value)
        assert mistake == (
            "1: committed[0].value: is no committed value (write at least 1500 GFLOP/s, or at most 5 us)"
        )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:30:00", 5400), ("00:30:00", 1800), ("0:00:45", 45), ("100:00:00", 360000), ("1-12:00:00", 129600),
     ("90m", 5400), ("2h", 7200), ("45s", 45), ("1h30m", 5400), ("1.5h", 5400), ('"1:30:00"', 5400)],
)  # fmt: skip
def test_a_time_is_read_in_every_notation(tmp_path: Path, text: str, seconds: float) -> None:
    assert load(tmp_path, f"time_limit: {text}").time_limit_s == seconds
    assert load(tmp_path, f"start_limit: {text}").start_limit_s == seconds


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("90", "90 of what? (write 90s, 90m, or H:MM:SS as in 1:30:00)"),
        ("1:30", "'1:30' may be hours or minutes (write 1:30:00 or 0:01:30)"),
        ("two hours", "'two hours' is no time"),
        ("0s", "'0s' must be longer than nothing"),
        ("", "nothing is written here"),
        ("true", "needs a time"),
        ("[1h]", "needs a time"),
    ],
)
def test_a_wrong_time_is_refused(tmp_path: Path, text: str, what: str) -> None:
    (problem,) = mistakes(tmp_path, f"size: quick\ntime_limit: {text}\n")
    assert problem.startswith(f"2: time_limit: {what}")


def test_text_stays_text(tmp_path: Path) -> None:
    words = ["on", "yes", "no", "off", "true", "007", "3.10", "1_000", "0x1F", "0o17", "12:30:45", "1e3", "2.50", ".5"]
    words += ["+1", "2026-11-20", "=", "~x", "1.0.0", "-0", "9", "null_", "True", "NULL", ".inf", "9" * 30]
    env = "".join(f"  V{index}: {word}\n" for index, word in enumerate(words))
    assert list(load(tmp_path, f"env:\n{env}").env.values()) == words


def test_both_yaml_readers_understand_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "env: {A: on, B: '1', C: 1, D: \"x\\ty\"}\ntime_limit: 1:30:00\npython: >-\n  a\n  b\nmarks:\n- x\n"
    fast = load(tmp_path, text)
    monkeypatch.setattr(yaml_lines, "_FAST", yaml.BaseLoader)
    assert load(tmp_path, text) == fast
    assert mistakes(tmp_path, "a:\n\tb: 1\n") == ["2: a tab where YAML wants spaces (indent with spaces)"]


def test_numbers_are_numbers(tmp_path: Path) -> None:
    platform = load(tmp_path, "ranks_per_device: 2\nworkers: 0\nthreads_per_rank: auto\npoll_s: 1.5\nmax_running: 3\n")
    assert (platform.ranks_per_device, platform.workers, platform.threads_per_rank) == (2, 0, None)
    assert (platform.poll_s, platform.max_running) == (1.5, 3)
    assert load(tmp_path, "poll_s: 2").poll_s == 2.0


@pytest.mark.parametrize("text", ["on", "'2'", "007", "2.0", "1e1", "0x2", "true", "[2]", "1_0"])
def test_a_wrong_whole_number_is_refused(tmp_path: Path, text: str) -> None:
    (problem,) = mistakes(tmp_path, f"max_running: {text}\n")
    assert problem.startswith("1: max_running: needs a whole number, not ")


def test_a_day_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, "until: 2026-12-31").until == datetime.date(2026, 12, 31)
    for text in ("2026-13-01", "2026", "31.12.2026", "tomorrow"):
        assert "until: is no day" in mistakes(tmp_path, f"until: {text}")[0]


def test_remote_platforms_have_other_defaults(tmp_path: Path) -> None:
    platform = load(tmp_path, REMOTE)
    assert (platform.max_running, platform.poll_s, platform.unit) == (8, 10.0, "gpu")


def test_a_centres_platform_called_like_a_shipped_ones_mark_is_the_one_to_rename(tmp_path: Path) -> None:
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    for folder in (shipped, own):
        folder.mkdir()
    (shipped / "big.yaml").write_text("marks: [v100]\n")
    (own / "v100.yaml").write_text("device: cpu\n")
    with pytest.raises(ConfigError) as caught:
        load_platforms([shipped, own], environ={}, root=tmp_path)
    hint = "rename this file, as campus_v100.yaml, and give it the mark"
    assert caught.value.problems == (f"{own}/v100.yaml:1: its name is a mark of {shipped}/big.yaml ({hint})",)


STACKS = """\
container: {runtime: apptainer, image: /images/cuda12.sif, mounts: [/nvme]}
modules: [cuda/12]
env: {A: platform, B: platform}
arguments: [--seed, 7]
stacks:
  today: {}
  cuda13:
    image: /images/cuda13.sif
    modules: [cuda/13]
    python: python3.13
    setup: [ulimit -l unlimited, 'echo "${HOME}"']
    env: {B: stack, C: "${D}"}
    arguments: []
    code: v2.1
"""


def test_a_stack_takes_the_place_of_what_it_names(tmp_path: Path) -> None:
    platform = load(tmp_path, REMOTE + STACKS)
    stack = platform.with_stack("cuda13")
    assert stack.container == ContainerKeys(runtime="apptainer", image="/images/cuda13.sif", mounts=("/nvme",))
    assert (stack.modules, stack.python, stack.arguments) == (("cuda/13",), "python3.13", ())
    assert stack.setup == ("ulimit -l unlimited", 'echo "${HOME}"')
    assert stack.env == {"A": "platform", "B": "stack", "C": "${D}"}
    assert (stack.stack, stack.stacks["cuda13"].code, stack.source) == ("cuda13", "v2.1", platform.source)


def test_a_stack_without_keys_is_the_platform_as_it_is(tmp_path: Path) -> None:
    platform = load(tmp_path, REMOTE + STACKS)
    assert platform.with_stack("today").model_dump() == platform.model_dump()
    assert (platform.stack, platform.with_stack("today").stack) == (None, "today")
    assert platform.with_stack(None) is platform


def test_a_stack_names_the_image_of_pods(tmp_path: Path) -> None:
    pods = (
        "scheduler: kubernetes\ndevice: gpu\nlayouts: {default: [1x1]}\ndata_dir: /data\nkubernetes: {image: a/b:1}\n"
    )
    platform = load(tmp_path, pods + "stacks: {new: {image: a/b:2}}\n")
    assert platform.with_stack("new").kubernetes.image == "a/b:2"
    assert mistakes(tmp_path, pods + "stacks:\n  new: {image: a/b, modules: [x]}\n") == [
        "7: stacks.new.modules: means nothing to scheduler kubernetes (remove it; see `kubernetes:`)"
    ]


def test_an_unknown_stack_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    platform = load(tmp_path, REMOTE + STACKS)
    with pytest.raises(ConfigError, match=r"it\.yaml: stacks: there is no stack 'cuda14' \(did you mean 'cuda13'\?\)"):
        platform.with_stack("cuda14")
    with pytest.raises(ConfigError, match=r"no stack 'new' \(it has none: write `stacks: \{new: …\}`\)"):
        load(tmp_path, REMOTE).with_stack("new")


def test_mistakes_in_stacks_have_their_lines(tmp_path: Path) -> None:
    text = "stacks:\n  Big: {}\n  a: {modul: [x]}\n  b:\n    modules: [x]\n    image: i\n    env: {A B: 1}\n"
    assert mistakes(tmp_path, text) == [
        "2: stacks.Big: 'Big' is no name (small letters, digits and _, beginning with a letter)",
        "3: stacks.a.modul: unknown key (did you mean 'modules'?)",
        "5: stacks.b.modules: is not for this machine (remove it, or name another scheduler)",
        "6: stacks.b.image: is not for this machine (remove it, or name another scheduler)",
        "7: stacks.b.env.A B: 'A B' is no name of an environment variable",
    ]
    no_container = "stacks: {a: {image: i, python: '${oops}'}}\n"
    assert mistakes(tmp_path, REMOTE + no_container) == [
        "5: stacks.a.python: ${oops} is never filled in (write ${site.oops}, a value of site.yaml)",
        "5: stacks.a.image: there is no container whose image it replaces (write `container:`, or remove the line)",
    ]


# --- mistakes ---


def test_all_mistakes_of_all_files_at_once(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("device: gppu\n")
    (tmp_path / "third.yaml").write_text("- a list\n")
    text = "layout: {default: [1x4]}\nsize: huge\nlayouts:\n  default: [1X4]\ntime_limit: 5\nmarks: [other]\n"
    (tmp_path / "it.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_platforms([tmp_path], environ={}, root=tmp_path)
    assert [problem.removeprefix(f"{tmp_path}/") for problem in caught.value.problems] == [
        "it.yaml:1: layout: unknown key (did you mean 'layouts'?)",
        "it.yaml:2: size: 'huge' is not one of smoke, quick, subset, full",
        "it.yaml:4: layouts.default[0]: '1X4' is no layout: write nodes x devices per node, as in 1x4",
        "it.yaml:5: time_limit: 5 of what? (write 5s, 5m, or H:MM:SS as in 1:30:00)",
        f"it.yaml:6: marks[0]: 'other' is the platform of {tmp_path}/other.yaml (choose another mark)",
        "other.yaml:1: device: 'gppu' is not one of auto, cpu, gpu, ipu, csx (did you mean gpu?)",
        "third.yaml:1: this is no mapping (write `key: value` lines)",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "1: the file is empty"),
        ("just words", "1: this is no mapping"),
        ("\n- 1\n", "2: this is no mapping"),
        ("a:\n\tb: 1\n", "2: a tab where YAML wants spaces"),
        ("size: quick\nmode: [\n", "not YAML: while parsing"),
        ("slurm: {account: ${site.project}, qos: a}\n", ' a text with braces needs quotes: "${…}"'),
        ("modules: [${site.module}]\n" + "#" * 9000, ' a text with braces needs quotes: "${…}"'),
        ("python: a: b\n", "1: not YAML: mapping values are not allowed"),
        ("size: quick\n---\nsize: quick\n", "2: not YAML: "),
        ("size: quick\npython: a\x07b\n", "2: a control character (U+0007)"),
        (b"size: quick\npython: caf\xe9\n", "2: byte 0xe9 is not UTF-8 (save the file as UTF-8)"),
        ("env: " + "{a: " * 900 + "}" * 900, "1: nested too deeply"),
        ("# " + "x" * 2_000_000, "1: 2,000,002 bytes are too many"),
    ],
)
def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path, text: str | bytes, problem: str) -> None:
    assert any(problem in found for found in mistakes(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("size: quick\nmode: overlap\nsize: smoke\n", "3: size: written twice, first in line 1 (keep one of them)"),
        ("env:\n  A: 1\n  A: 1\n", "3: env.A: written twice, first in line 2 (keep one of them)"),
        ("benchmarks:\n  deepcam: {workers: 1}\n  deepcam: {workers: 2}\n", "3: benchmarks.deepcam: written twice"),
        ("env: &a {A: 1}\nunsupported:\n  <<: *a\n", "3: unsupported.<<: merging is not used here"),
        ("? [a]\n: 1\n", "1: a key must be one word"),
        ("size: !quick quick\n", "1: size: tags such as !quick are not used here"),
        ("python: !!python/name:os.system x\n", "1: python: tags such as tag:yaml.org,2002:python/name:os.system"),
        ("env: &a {A: *a}\n", "1: nested too deeply, or an alias (`*name`) that contains itself"),
        ("size:\nmode: overlap\n", "1: size: nothing is written here (write a value, or remove the line)"),
        ("name: other\n", "1: name: cannot be set (a platform has the name of its file)"),
        ("time_limit_s: 60\n", "1: time_limit_s: unknown key (did you mean 'time_limit'?)"),
        ("colour: red\n", "1: colour: unknown key (known: arguments, benchmarks, cannot_run, committed, co"),
        ("benchmarks:\n  deepcam:\n    device: gpu\n", "3: benchmarks.deepcam.device: unknown key (known: arguments,"),
        ("benchmarks:\n  deepcam:\n    layouts: 4x2\n", "3: benchmarks.deepcam.layouts: needs a list, as in [a, b],"),
        ("benchmarks: [deepcam]\n", "1: benchmarks: needs lines of `key: value`, not a list"),
        ("benchmarks: {DeepCAM: {}}\n", "1: benchmarks.DeepCAM: 'DeepCAM' is no name"),
        ("layouts: [1x4]\n", "1: layouts: needs lines of `key: value`, not a list"),
        ("layouts: {big: [1x4]}\n", "1: layouts: has no set `default` (write default: [1x4])"),
        ("layouts: {default: []}\n", "1: layouts.default: is empty (write at least one)"),
        ("layouts: {default: [0x4]}\n", "1: layouts.default[0]: '0x4' is no layout"),
        ("layouts: {default: [1x4, 1x4]}\n", "1: layouts.default: 1x4 is written twice (keep one)"),
        ("configurations: [tuned, quick]\n", "1: configurations[1]: 'quick' is not one of gbs32, tuned"),
        ("configurations: tuned\n", "1: configurations: needs a list, as in [a, b], not 'tuned'"),
        ("device: rocm\n", "1: device: 'rocm' is not one of ours (write gpu)"),
        ("launcher: mpirun\n", "1: launcher: 'mpirun' is not one of ours (on Slurm write srun"),
        ("max_running: 0\n", "1: max_running: '0' is too small (at least 1)"),
        ("poll_s: 0\n", "1: poll_s: '0' is too small (more than 0)"),
        ("replaces: yes\n", "1: replaces: needs true or false, not 'yes'"),
        ("data_dir: '  '\n", "1: data_dir: is empty"),
        ("env: {A-B: 1}\n", "1: env.A-B: 'A-B' is no name of an environment variable"),
        ("env: {A: [1]}\n", "1: env.A: needs a text"),
        ("unsupported:\n  cosmoflow: {source: x}\n", "2: unsupported.cosmoflow.reason: is missing"),
        ("unsupported:\n  cosmoflow:\n    why: x\n", "3: unsupported.cosmoflow.why: unknown key"),
        ("unsupported: {cosmoflow: true}\n", "1: unsupported.cosmoflow: needs the reason"),
        ("size: quick\ncannot_run: true\n", "2: cannot_run: needs the reason (write {reason: …, source: …}, or remove"),
        ("cannot_run: {reason: x, sauce: y}\n", "1: cannot_run.sauce: unknown key (did you mean 'source'?)"),
        ("marks: [A100]\n", "1: marks[0]: 'A100' is no name (small letters, digits and _"),
        ("marks: [a100, a100]\n", "1: marks: a100 is written twice"),
        ("scheduler: slurm\nlayouts: {default: [1x4]}\n", "1: device: auto looks at this machine only (write cpu,"),
        ("scheduler: slurm\ndevice: gpu\n", "1: layouts: is missing (write layouts: {default: [1x4]})"),
        ("scheduler: slurm\ndevice: gpu\nlayouts: {default: [1x4]}\n", "1: work_dir: is missing"),
        (REMOTE + "transport: openssh\n", "1: host: is missing (write the login node as ssh knows it)"),
        (REMOTE.replace("/work/me", "work"), "4: work_dir: 'work' is no absolute path (write one that login and"),
        (REMOTE + "slurm: {acount: z19}\n", "5: slurm.acount: unknown key (did you mean 'account'?)"),
        (REMOTE + "container: {runtime: docker, image: x}\n", "5: container.runtime: 'docker' is not one of"),
        (REMOTE + "container: {runtime: pyxis}\n", "5: container.image: is missing"),
        (REMOTE + "policy: {forbidden: {mem: no}}\n", "5: policy.forbidden.mem: 'mem' is no option"),
        (REMOTE.replace("slurm", "ssh") + "slurm: {account: a}\n", "5: slurm: means nothing to scheduler ssh"),
        ("host: archer2\n", "1: host: is not for this machine (remove it, or name another scheduler)"),
        (REMOTE + "benchmarks:\n  deepcam: {layouts: [auto]}\n", "6: benchmarks.deepcam.layouts[0]: auto looks at"),
    ],
)
def test_each_mistake_names_line_and_key(tmp_path: Path, text: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in mistakes(tmp_path, text)), mistakes(tmp_path, text)


def test_an_avalanche_of_aliases_ends(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert any("far too many values" in problem for problem in mistakes(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize("mark", sorted(RESERVED_MARKS))
def test_a_mark_that_means_something_already_is_refused(tmp_path: Path, mark: str) -> None:
    assert mistakes(tmp_path, f"marks: [{mark}]\n")[0].startswith(f"1: marks[0]: '{mark}' already means something")


def test_an_alias_may_be_used(tmp_path: Path) -> None:
    platform = load(tmp_path, "benchmarks:\n  deepcam: &same {workers: 3}\n  cosmoflow: *same\n")
    assert platform.for_benchmark("cosmoflow").workers == platform.for_benchmark("deepcam").workers == 3


@pytest.mark.parametrize("name", ["A100.yaml", "a-100.yaml", "1a.yaml", "skip.yaml", "benchmark.yaml", "a.b.yaml"])
def test_the_name_of_the_file_is_a_mark(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("size: quick\n")
    with pytest.raises(ConfigError, match=r"the name of the file is the platform's name: .* \(rename the file\)"):
        load_platforms([tmp_path], environ={}, root=tmp_path)


def test_a_file_that_would_not_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("size: quick\n")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / ".hidden.yaml").write_text("rubbish")
    (tmp_path / "schema.json").write_text("{}")
    with pytest.raises(ConfigError) as caught:
        load_platforms([tmp_path], environ={}, root=tmp_path)
    assert caught.value.problems == (
        f"{tmp_path}/a.yml:1: would not be read (rename it to a.yaml)",
        f"{tmp_path}/folder.yaml:1: cannot be read: Is a directory",
    )


def test_a_missing_folder_has_no_platforms(tmp_path: Path) -> None:
    assert load_platforms([tmp_path / "nowhere"], environ={}, root=tmp_path) == {}
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_platforms([tmp_path / "file"], environ={}, root=tmp_path)


def test_a_scheduler_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(REMOTE.replace("slurm", "slrum"))
    with pytest.raises(ConfigError, match=r"it.yaml:1: scheduler: there is no scheduler 'slrum' \(did you mean"):
        load_platforms([tmp_path], environ={}, root=tmp_path)


# --- two folders ---


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    (tmp_path / "shipped").mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "shipped" / "local.yaml").write_text("size: quick\n")
    return [tmp_path / "shipped", tmp_path / "site"]


def test_a_site_may_replace_a_platform_only_when_it_says_so(folders: list[Path]) -> None:
    mine = folders[1] / "local.yaml"
    mine.write_text("size: smoke\n")
    with pytest.raises(ConfigError) as caught:
        load_platforms(folders, environ={}, root=folders[1])
    (problem,) = caught.value.problems
    assert problem.startswith(f"{mine}:1: {folders[0]}/local.yaml is a platform of the same name")
    assert "`replaces: true`" in problem
    mine.write_text("size: smoke\nreplaces: true\n")
    local = load_platforms(folders, environ={}, root=folders[1])["local"]
    assert (local.size, local.source) == ("smoke", mine)


def test_replaces_without_an_earlier_file_is_refused(folders: list[Path]) -> None:
    (folders[1] / "mine.yaml").write_text("size: smoke\nreplaces: true\n")
    with pytest.raises(ConfigError, match=r"mine.yaml:2: replaces: there is no earlier mine.yaml to replace"):
        load_platforms(folders, environ={}, root=folders[1])


# --- the site ---


def test_no_site_is_an_empty_site(tmp_path: Path) -> None:
    assert load_site(tmp_path / "nowhere") == load_site(tmp_path) == Site()
    (tmp_path / "site.yaml").write_text("# enabled: [a100]\n")
    assert load_site(tmp_path) == Site()


def test_a_site_is_read(tmp_path: Path) -> None:
    text = "enabled: [a100, v100]\nmax_device_hours: 8\noptions: {size: quick, windows: 5, x: 1.5, on: true, v: 1:30}\n"
    (tmp_path / "site.yaml").write_text(text + "values: {account: 007, project: on}\n")
    site = load_site(tmp_path)
    assert (site.enabled, site.max_device_hours) == (("a100", "v100"), 8.0)
    assert site.options == {"size": "quick", "windows": 5, "x": 1.5, "on": True, "v": "1:30"}
    assert [type(value) for value in site.options.values()] == [str, int, float, bool, str]
    assert site.values == {"account": "007", "project": "on"}


def test_the_keys_of_the_history_have_defaults(tmp_path: Path) -> None:
    assert (Site().name, Site().history, Site().night_ends) == ("site", None, datetime.time(12))
    (tmp_path / "site.yaml").write_text("name: campus\nhistory: /shared/history\nnight_ends: 6:30\n")
    site = load_site(tmp_path)
    assert (site.name, site.history, site.night_ends) == ("campus", "/shared/history", datetime.time(6, 30))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("enable: [a100]\n", "1: enable: unknown key (did you mean 'enabled'?)"),
        ("enabled: a100\n", "1: enabled: needs a list, as in [a, b], not 'a100'"),
        ("enabled: [A100]\n", "1: enabled[0]: 'A100' is no name"),
        ("max_device_hours: -1\n", "1: max_device_hours: '-1' is too small (at least 0)"),
        ("max_device_hours: 8h\n", "1: max_device_hours: needs a number, not '8h'"),
        ("options: {size: [a]}\n", "1: options.size: needs one value, not a list or a mapping"),
        ("values: {a b: 1}\n", "1: values.a b: 'a b' is no name"),
        ("history: $HOME/h\n", "1: history: '$HOME/h' has a $, and variables are not filled in here"),
        ("history: ''\n", "1: history: is empty (write a text, or remove the line)"),
        ("night_ends: 12\n", "1: night_ends: '12' is no time of day (write HH:MM, as in 12:00)"),
        ("night_ends: [12:00]\n", "1: night_ends: needs a time of day (as in 12:00)"),
        ("values: {db_password: x}\n", "1: values.db_password: looks like a secret"),
        ("enabled: [a]\nenabled: [b]\n", "2: enabled: written twice"),
        ("just words\n", "1: this is no mapping"),
    ],
)
def test_mistakes_in_a_site_name_line_and_key(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_site(tmp_path)
    (found,) = caught.value.problems
    assert found.startswith(f"{tmp_path}/site.yaml:{problem}")


def test_site_values_are_filled_in(tmp_path: Path) -> None:
    text = "data_dir: /work/${site.project}/data\npython: ${site.python}\nworkers: ${site.n}\n"
    text += "env: {A: '${site.n}', B: '${HOME}'}\n"
    platform = load(tmp_path, text, Site(values={"project": "p1", "python": "py", "n": "2"}), HPC_ML_BENCH_PYTHON="env")
    assert (platform.data_dir, platform.python, platform.workers) == ("/work/p1/data", "env", 2)
    assert platform.env == {"A": "2", "B": "${HOME}"}
    assert platform.missing == ()


def test_missing_site_values_stay_readable_and_are_listed(tmp_path: Path) -> None:
    platform = load(tmp_path, "data_dir: /${site.project}/${site.user}/${site.project}\n")
    assert platform.data_dir == "/<project: set in site.yaml>/<user: set in site.yaml>/<project: set in site.yaml>"
    assert platform.missing == ("project", "user")


def test_site_values_that_do_not_fit_are_not_quoted(tmp_path: Path) -> None:
    text = "size: ${site.size}\nworkers: ${site.n}\ntime_limit: ${site.t}\nmode: ${site.hush}\n"
    text += "layouts: {default: ['${site.hush}']}\n"
    assert mistakes(tmp_path, text, Site(values={"n": "hush", "t": "hush", "hush": "hush"})) == [
        "1: size: ${site.size} is not set (write it under `values:` in site.yaml)",
        "2: workers: needs a whole number, not the value of ${site.…}",
        "3: time_limit: the value of ${site.…} does not fit here",
        "4: mode: the value of ${site.…} is not one of overlap, blocking",
        "5: layouts.default[0]: the value of ${site.…} does not fit here",
    ]


@pytest.mark.parametrize(
    "key", ["HF_TOKEN", "DbPassword", "api_key", "AWS_SECRET_ACCESS_KEY", "API-KEY", "CREDENTIALS", "pgpassword"]
)
def test_secrets_never_reach_yaml(tmp_path: Path, key: str) -> None:
    problems = mistakes(tmp_path, f"env:\n  {key}: hunter2\n")
    assert "looks like a secret, and secrets never reach YAML (write ${site.key}" in problems[0]
    assert not any("hunter2" in problem for problem in problems)


def test_a_key_that_only_looks_like_a_secret_is_allowed(tmp_path: Path) -> None:
    text = (
        "env: {TOKENIZERS_PARALLELISM: false, MAX_TOKENS: 5, TOKEN_FILE: /run/t, SECRET_NAME: s, A_TOKEN: '${site.hf}'}"
    )
    assert load(tmp_path, text, HPC_ML_BENCH_HF="abc").env["A_TOKEN"] == "abc"


def test_the_name_of_a_secret_is_allowed(tmp_path: Path) -> None:
    cluster = "scheduler: kubernetes\ndevice: cpu\ndata_dir: /data\nlayouts: {default: [1x1]}\n"
    cluster += "kubernetes: {image: x/y:1, cpu: 1, memory: 1Gi, image_pull_secrets: [regcred]}\n"
    found = load(tmp_path, cluster + "policy: {avoid: {secretKeyRef: no secrets of the cluster}}\n")
    assert found.kubernetes.image_pull_secrets == ("regcred",)
    assert found.policy.avoid == {"secretKeyRef": "no secrets of the cluster"}


# --- what a platform says ---


def test_overrides_of_a_benchmark(tmp_path: Path) -> None:
    text = """
scheduler: slurm
device: gpu
work_dir: /work/me
workers: 4
layouts: {default: [1x4], large: [2x4, 4x4]}
arguments: [--seed, 1]
benchmarks:
  deepcam:
    layouts: [4x2]
    ranks_per_device: 4
    threads_per_rank: 6
    time_limit: 2h
    configurations: [tuned]
    dtype: bf16
    size: smoke
    launcher: srun
    data_dir: /d
    workers: auto
    arguments: [--no-augment]
"""
    general = load(tmp_path, text)
    own = general.for_benchmark("deepcam")
    assert (own.ranks_per_device, own.threads_per_rank, own.time_limit_s, own.dtype) == (4, 6, 7200.0, "bf16")
    assert (own.configurations, own.size, own.launcher, own.data_dir) == (("tuned",), "smoke", "srun", "/d")
    assert (own.workers, own.arguments) == (None, ("--no-augment",))
    assert (own.start_limit_s, own.device, own.name) == (general.start_limit_s, "gpu", "it")
    assert general.for_benchmark("resnet50") is general.for_benchmark(None) is general
    assert own.for_benchmark("deepcam") == own
    assert [str(layout) for layout in general.layout_list("deepcam")] == ["4x2gpu"]
    assert [str(layout) for layout in general.layout_list("deepcam", "large")] == ["2x4gpu", "4x4gpu"]
    assert [str(layout) for layout in general.layout_list()] == ["1x4gpu"]
    with pytest.raises(ConfigError, match=r"layouts: there is no set 'larg' \(did you mean 'large'\?\)"):
        general.layout_list(None, "larg")


def test_a_platform_written_in_code() -> None:
    platform = Platform(name="mine", time_limit=5.0, start_limit=7)
    with pytest.raises(ValueError, match="frozen"):
        platform.size = "full"  # type: ignore[misc]
    assert (platform.time_limit_s, platform.start_limit_s, platform.unit) == (5.0, 7.0, "cpu")
    assert platform.layout_list() == (Layout(1, 1, "cpu"),)


def test_auto_is_what_this_machine_has(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for number in range(4):
        (tmp_path / "dev" / f"nvidia{number}").write_text("")
    text = "layouts: {default: [auto, 1x1], one: [1x1]}\nbenchmarks: {deepcam: {layouts: [auto]}}\n"
    gpu = load(tmp_path, text)
    assert (gpu.device, gpu.layouts["default"]) == ("gpu", (Layout(1, 4, "gpu"), Layout(1, 1, "gpu")))
    assert [str(layout) for layout in gpu.layout_list("deepcam")] == ["1x4gpu"]
    cpu = load(tmp_path, text + "device: cpu\n")
    assert cpu.layouts["default"] == cpu.layouts["one"] == (Layout(1, 1, "cpu"),)
    assert load(tmp_path, text, CUDA_VISIBLE_DEVICES="").device == "cpu"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("benchmarks: {resnet: {size: smoke}}",
         "4: benchmarks.resnet: there is no benchmark 'resnet' (did you mean 'resnet50'?)"),
        ("unsupported: {weather: too new}",
         "4: unsupported.weather: there is no benchmark 'weather' (known: cosmoflow, resnet50)"),
        ("data_dir: '${nope}'", "4: data_dir: ${nope} is never filled in (write ${site.nope}, a value of site.yaml)"),
        ("data_dir: 'x${env.My-Key}'",
         "4: data_dir: ${env.My-Key} is never filled in (write ${site.my_key}, a value of site.yaml)"),
        ("data_dir: '${site.nope'", "4: data_dir: '${site.nope' has no closing brace (write ${site.key})"),
    ],
)  # fmt: skip
def test_a_key_that_means_nothing_is_a_mistake(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "it.yaml"
    head = "device: cpu\nsetup: ['export A=${HOME/a/b}']\nscheduler: ssh\n"
    path.write_text(f"{head}{text}\nlayouts: {{default: [1x1]}}\nwork_dir: /w\n")
    with pytest.raises(ConfigError) as caught:
        load_platforms([tmp_path], None, benchmarks=["resnet50", "cosmoflow"], environ={}, root=tmp_path)
    assert list(caught.value.problems) == [f"{path}:{said}"]


@pytest.mark.parametrize("written", ["/work/me/", "//work/me", "/work/./me//", "/work///me/."])
def test_a_folder_of_a_platform_has_one_spelling(tmp_path: Path, written: str) -> None:
    assert load(tmp_path, REMOTE.replace("/work/me", written)).work_dir == "/work/me"


def test_a_sites_value_may_contain_dollar_braces(tmp_path: Path) -> None:
    assert load(tmp_path, "env: {A: '${site.a}'}", Site(values={"a": "${b}"})).env == {"A": "${b}"}


def test_a_reason_may_have_a_source_and_is_one_printable_line(tmp_path: Path) -> None:
    text = (
        'unsupported:\n  resnet50: a text\n  deepcam: {reason: "it\\n\\n  is large", source: a paper}\n'
        'cannot_run: {reason: "\\e[31mtoo old"}\n'
    )
    found = load(tmp_path, text)
    assert {name: str(obstacle) for name, obstacle in found.unsupported.items()} == {
        "resnet50": "a text",
        "deepcam": "it is large (source: a paper)",
    }
    assert str(found.cannot_run) == "?[31mtoo old"
    assert found.obstacle("deepcam") == (
        "none of the suite's benchmarks can run: ?[31mtoo old; it is large (source: a paper)"
    )


@pytest.mark.parametrize("quantity", ["512mi", "64K", "1ki", "2ni"])
def test_a_unit_that_kubernetes_has_not_is_no_quantity(quantity: str) -> None:
    with pytest.raises(ValueError, match=f"'{quantity}' is no quantity"):
        quantity_of(quantity)


def test_a_command_finds_a_sound_platform_beside_one_with_mistakes(tmp_path: Path) -> None:
    (tmp_path / "platforms").mkdir()
    (tmp_path / "platforms/bad.yaml").write_text("scheduler: local\ndevise: gpu\n")
    _, platforms = checkout.load(tmp_path)
    assert checkout.find("local", platforms).name == "local"
    with pytest.raises(ConfigError, match=r"bad\.yaml:2: devise: unknown key"):
        checkout.find("bad", platforms)
    with pytest.raises(RefusedError, match="there is no platform 'baad'"):
        checkout.find("baad", platforms)
