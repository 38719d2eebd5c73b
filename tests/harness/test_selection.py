"""What is selected and what may run: nothing is spent by accident."""

from __future__ import annotations

import os
import sys

import pytest

from tests.harness.conftest import TEST, Project

BENCHMARK = """
import pytest

@pytest.mark.workload(benchmark="resnet50")
def test_resnet50(run, record):
    record(run)
"""


def ids(result) -> list[str]:
    return [line for line in result.outlines if "::" in line and " " not in line]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["local-1x1cpu-gbs32", "local-1x1cpu-tuned"]),
        (["--size", "quick", "--mode", "overlap"], ["local-1x1cpu-gbs32", "local-1x1cpu-tuned"]),
        (["--size", "smoke"], ["local-1x1cpu-gbs32-smoke", "local-1x1cpu-tuned-smoke"]),
        (
            ["--mode", "blocking", "--size", "subset", "--configuration", "tuned"],
            ["local-1x1cpu-tuned-subset-blocking"],
        ),
        (["--dtype", "bf16", "--variant", "epcc", "--configuration", "gbs32"], ["local-1x1cpu-gbs32-epcc-bf16"]),
        (["--cache", "as-is", "--configuration", "tuned"], ["local-1x1cpu-tuned"]),
        (["--cache", "cold", "--dtype", "bf16", "--configuration", "gbs32"], ["local-1x1cpu-gbs32-bf16-cold"]),
        (["--preset", "hpdc24"], ["local-1x1cpu-gbs32-subset-blocking-fp32"]),
        (["--preset", "hpdc24", "--size", "smoke"], ["local-1x1cpu-gbs32-smoke-blocking-fp32"]),
    ],
)
def test_ids_are_frozen(project, options, expected):
    """The ids are the keys of years of history: this table may grow and never change."""
    project.write("test_resnet50.py", BENCHMARK)
    result = project.pytest("--collect-only", "-q", *options)
    assert ids(result) == [f"test_resnet50.py::test_resnet50[{case}]" for case in expected]
    assert not project.jobs()


def test_a_platform_that_needs_something_else_for_a_benchmark(project):
    project.write("test_resnet50.py", BENCHMARK)
    project.platform("l40s", "benchmarks: {resnet50: {layouts: [2x4], size: subset}}\nmarks: [nvidia]")
    result = project.pytest("--collect-only", "-q", "-m", "nvidia")
    assert ids(result) == [f"test_resnet50.py::test_resnet50[l40s-2x4gpu-{c}]" for c in ("gbs32", "tuned")]


@pytest.mark.slow
def test_own_parameters_follow_and_override_options(project):
    project.write(
        "test_own.py",
        BENCHMARK.replace("@pytest", "@pytest.mark.parametrize('size', ['smoke', 'quick'])\n@pytest").replace(
            "(run,", "(size, run,"
        ),
    )
    result = project.pytest("--collect-only", "-q", "--configuration", "tuned", "--size", "full")
    assert ids(result) == [f"test_own.py::test_resnet50[local-1x1cpu-tuned-{size}]" for size in ("smoke", "quick")]
    shown = project.pytest("--dry-run", "-k", "smoke and tuned").stdout.str()
    assert "--size smoke" in shown
    assert "--size full" not in shown


@pytest.mark.slow
def test_decompose_reaches_the_command_of_our_own_benchmarks(project):
    project.write("test_own.py", BENCHMARK)
    shown = project.pytest("--dry-run", "--decompose").stdout.str()
    assert " --decompose" in shown


def test_a_mistyped_mark_is_an_error(project):
    project.job_test()
    project.platform("l40s")
    project.refuses("-m", "l40z", says="*there is no mark 'l40z'; did you mean l40s?*")


@pytest.mark.slow
@pytest.mark.parametrize(
    "named",
    [
        ["-m", "l40s"],
        ["-m", "nvidia and not local"],
        ["--platform", "l40s"],
        ["test_mine.py::test_it[l40s-1x2gpu]"],
    ],
)
def test_enabled_and_named_runs(project, named):
    project.job_test()
    project.platform("l40s", "marks: [nvidia]")
    project.pytest(*named).assert_outcomes(passed=1)


@pytest.mark.slow
@pytest.mark.parametrize("named", [["-m", "not p100"], ["-m", "local or not p100"], ["-k", "l40s"], []])
def test_not_named_does_not_run(project, named):
    project.job_test()
    project.platform("l40s", "marks: [nvidia]")
    project.write("site/platforms/p100.yaml", "scheduler: local\ndevice: gpu\nlayouts: {default: [1x2]}\n")
    project.pytest(*named)
    assert not [job for job in project.jobs() if "l40s" in job]


@pytest.mark.parametrize(
    "named", [["-m", "l40s"], ["--platform", "l40s"], ["test_mine.py::test_it[l40s-1x2gpu]"], ["-m", "campus"]]
)
def test_named_and_not_enabled_is_a_usage_error_with_what_to_type(project, named):
    project.job_test()
    project.platform("l40s", "marks: [campus]", enabled=False)
    result = project.pytest(*named)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*l40s is not enabled on this site*",
            "*python -m platforms enable l40s --site=*/site",
            "*pytest --platform l40s *",
        ]
    )
    assert not project.jobs()


@pytest.mark.parametrize("verbosity", [[], ["-q"]])
def test_dry_run_shows_the_job_and_submits_nothing(project, verbosity):
    project.job_test("words=a'b $HOME")
    project.platform("l40s", enabled=False)
    result = project.pytest("-m", "l40s", "--dry-run", *verbosity)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*test_mine.py::test_it[[]l40s-1x2gpu[]]*", "*program.py*", "*dry run: 1 job* rendered, none submitted*"]
    )
    assert not project.jobs()


@pytest.mark.parametrize("option", ["--collect-only", "--setup-plan", "--setup-only", "--fixtures", "--markers"])
def test_nothing_is_submitted_by_looking(project, option):
    project.job_test()
    result = project.pytest(option)
    assert result.ret == 0
    assert not project.jobs()
    assert not (project.path / "site/history").exists()


@pytest.mark.parametrize(
    "mark", ["skip(reason='no')", "skipif(True, reason='no')", "skipif('1 + 1 == 2', reason='no')", "xfail(run=False)"]
)
def test_a_test_that_is_skipped_costs_no_job(project, mark):
    project.job_test()
    path = project.path / "test_mine.py"
    path.write_text(path.read_text().replace("def test_it", f"@pytest.mark.{mark}\ndef test_it"))
    assert project.pytest().ret == 0
    assert not project.jobs()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("BatchNorm does not compile", "BatchNorm does not compile"),
        ("{reason: it does not compile, source: 'a paper'}", "it does not compile (source: a paper)"),
    ],
)
@pytest.mark.slow
def test_known_not_to_run_there_is_skipped_with_the_reason(project, written, shown):
    project.write("test_resnet50.py", BENCHMARK)
    project.platform("csx", f"unsupported:\n  resnet50: {written}\n")
    result = project.pytest("-m", "csx", "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines([f"*csx: {shown}"])
    project.pytest("-m", "csx", "--dry-run").stdout.fnmatch_lines([f"would be skipped: csx: {shown}", "*models-*.pyz*"])
    assert not project.jobs()


CANNOT_RUN = "cannot_run: {reason: its software is too old, source: its documentation}\n"


@pytest.mark.slow
def test_a_platform_that_cannot_run_our_benchmarks_runs_a_users_own_command(project):
    project.write("test_resnet50.py", BENCHMARK)
    project.job_test(name="test_own.py")
    project.platform("old", CANNOT_RUN)
    result = project.pytest("-m", "old", "-rs")
    result.assert_outcomes(skipped=2, passed=1)
    why = "its software is too old (source: its documentation)"
    result.stdout.fnmatch_lines([f"*old: none of the suite's benchmarks can run: {why}"])
    assert project.jobs() == ["test_own-test_it-old-1x2gpu"]


@pytest.mark.slow
def test_the_dry_run_of_a_platform_that_cannot_run_shows_the_reason_in_place_of_scripts(project):
    project.write("test_resnet50.py", BENCHMARK)
    project.job_test(name="test_own.py")
    project.platform("old", CANNOT_RUN, enabled=False)
    result = project.pytest("-m", "old", "--dry-run")
    result.stdout.fnmatch_lines(
        [
            "old: the suite's benchmarks cannot run there, so they are skipped: its software is too old (source: *)",
            "*test_own.py::test_it[[]old-1x2gpu[]]*",
            "*program.py*",
            "would be skipped: old: none of the suite's benchmarks can run: its software is too old (source: *)",
            "no script is shown, since its job could not run there; --try-unsupported shows it all the same",
            "*dry run: 1 job rendered, 2 without a script, none submitted*",
        ]
    )
    result.stdout.no_fnmatch_line("*train resnet50*")
    tried = project.pytest("-m", "old", "--dry-run", "--try-unsupported")
    tried.stdout.fnmatch_lines(
        ["would be tried, although its platform's file says that it cannot run: *too old*", "*models-*.pyz*"]
    )


@pytest.mark.slow
def test_xdist_is_refused_with_job_tests(project):
    project.job_test()
    project.refuses("-n", "1", says="*does not go with job tests*")


REPEATER = """
def pytest_addoption(parser, pluginmanager):
    parser.addoption("--reruns", type=int)
    parser.addoption("--count", type=int, default=1)
    parser.addini("retries", "how often", default=0)
    for name in %s:
        pluginmanager.register(type(name, (), {})(), name)
def pytest_configure(config):
    config.addinivalue_line("markers", "flaky: again")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plugin", "word", "said"),
    [
        ("rerunfailures", "--reruns=1", "reruns (of the plugin rerunfailures)"),
        ("pytest-retry", "-oretries=2", "retries (of the plugin pytest-retry)"),
        ("repeat", "--count=2", "count (of the plugin repeat)"),
        ("flaky", "flaky", "flaky (of the plugin flaky)"),
        ("repeat", "--count=1", ""),
        ("flaky", "--reruns=1", ""),  # somebody's own option of that name
    ],
)
def test_a_plugin_that_runs_tests_again_is_refused_with_job_tests(project, plugin, word, said):
    project.job_test("exit=1")
    project.write("conftest.py", REPEATER % [plugin])
    if not word.startswith("-"):
        path = project.path / "test_mine.py"
        path.write_text(path.read_text().replace("def test_it", f"@pytest.mark.{word}\ndef test_it"))
    words = [word] if word.startswith("-") else []
    if said:
        project.refuses(*words, says=f"ERROR: {said} does not go with job tests such as test_mine.py::*leave it out*")
        project.write("test_plain.py", "def test_plain(): pass\n")
        assert project.pytest(*words, "test_plain.py").ret == 0
    else:
        assert project.pytest(*words).ret == pytest.ExitCode.TESTS_FAILED
        assert project.jobs()


def test_max_device_hours(project):
    project.job_test()
    project.platform("l40s", "time_limit: 2h")
    project.write("site/site.yaml", "enabled: [l40s]\nmax_device_hours: 3\n")
    project.refuses("-m", "l40s", says="*4.0 device-hours*max_device_hours: 3*")


@pytest.mark.slow
def test_site_options_and_mistakes_in_them(project):
    project.write("test_resnet50.py", BENCHMARK)
    project.write("site/site.yaml", "options: {size: smoke, configuration: tuned}\n")
    assert ids(project.pytest("--collect-only", "-q")) == ["test_resnet50.py::test_resnet50[local-1x1cpu-tuned-smoke]"]
    assert ids(project.pytest("--collect-only", "-q", "--size", "full")) == [
        "test_resnet50.py::test_resnet50[local-1x1cpu-tuned-full]"
    ]
    project.write("site/site.yaml", "options: {size: tiny}\n")
    result = project.pytest("--collect-only")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*site.yaml: options: size: 'tiny' is none of smoke, quick, subset, full*"])


@pytest.mark.slow
def test_a_workload_that_nobody_reads_is_an_error(project):
    project.write("test_wrong.py", "import pytest\n@pytest.mark.workload(command=['true'])\ndef test_it(): pass\n")
    result = project.pytest()
    assert result.ret != 0
    (result.stdout if "ERROR" in result.stdout.str() else result.stderr).fnmatch_lines(["*without the fixture `run`*"])
    assert not project.jobs()


def test_layouts_by_the_name_of_their_set(project):
    project.job_test()
    project.platform("l40s", "marks: [nvidia]")
    project.write(
        "site/platforms/wide.yaml", "scheduler: local\ndevice: gpu\nlayouts: {default: [1x1], paper: [1x4, 1x8]}\n"
    )
    project.write("site/site.yaml", "enabled: [l40s, wide]\n")
    shown = ids(project.pytest("--collect-only", "-q", "-m", "wide", "--layouts", "paper"))
    assert shown == ["test_mine.py::test_it[wide-1x4gpu]", "test_mine.py::test_it[wide-1x8gpu]"]
    result = project.pytest("--collect-only", "--layouts", "papers")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no platform has a set 'papers'; there are: default, large, *paper*"])


@pytest.mark.parametrize(("enabled", "words"), [(True, []), (True, ["--dry-run", "-q"]), (False, [])])
def test_that_a_machine_has_ended_is_said_with_its_successor(project, enabled, words):
    project.job_test()
    project.platform("p100", "until: 2024-12-31\nsuccessor: l40s", enabled=enabled)
    result = project.pytest("-m", "p100", *words)
    if enabled:
        result.assert_outcomes(skipped=1 if not words else 0)
    assert not project.jobs()
    said = result.stdout if enabled else result.stderr
    said.fnmatch_lines(["*p100: this machine ended on 2024-12-31*; use l40s*"])


@pytest.mark.slow
def test_values_that_nobody_has_set(project, monkeypatch):
    project.job_test()
    project.platform("l40s", "env: {ACCOUNT: '${site.account}'}")
    shown = project.pytest("-m", "l40s", "--dry-run")
    shown.stdout.fnmatch_lines(["*export ACCOUNT='<account: set in site.yaml>'*", "missing: account"])
    project.refuses("-m", "l40s", says="*l40s: account not set, so nothing was submitted. Write `values: {account: *")
    monkeypatch.setenv("HPC_ML_BENCH_ACCOUNT", "z043")
    project.pytest("-m", "l40s").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("options", "tuned", "gbs32"), [([], "--dtype fp16", ""), (["--dtype", "bf16"], "--dtype bf16", "--dtype bf16")]
)
@pytest.mark.slow
def test_a_platforms_dtype_is_that_of_its_tuned_jobs(project, options, tuned, gbs32):
    project.write("test_resnet50.py", BENCHMARK)
    project.platform("p100", "dtype: fp16")
    for configuration, expected in (("tuned", tuned), ("gbs32", gbs32)):
        shown = project.pytest("-m", "p100", "--dry-run", "--configuration", configuration, *options).stdout.str()
        words = shown.replace("\\\n", " ").split()
        found = " ".join(words[words.index("--dtype") : words.index("--dtype") + 2]) if "--dtype" in words else ""
        assert found == expected


def test_another_machine_than_this_one_is_refused_with_its_name(project):
    project.job_test()
    project.platform("here")
    result = project.pytest("-m", "here", "--nodes=n07")
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*here is one machine, {os.uname().nodename}, and the job asks for n07*"])
    assert project.jobs() == []


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("", "needs either benchmark='resnet50' or command=*"),
        ("command=[]", "command is a list of words"),
        ("command='echo hi'", "command is a list of words"),
        ("manifset=5, command=['true']", "'manifset' is no option; known: *manifest*"),
        ("'resnet50'", "takes keywords only"),
        ("command=['true'], context=5", "context is a text"),
        ("command=['true'], time_limit='soon'", "time_limit: *"),
    ],
)
@pytest.mark.slow
def test_a_wrong_mark_is_one_sentence(project, mark, said):
    """And no way there through pytest; the other tests of a session are named, and none of them runs."""
    project.write("test_mine.py", f"import pytest\n\n@pytest.mark.workload({mark})\ndef test_it(run): pass\n")
    result = project.pytest()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"test_mine.py::test_it: @pytest.mark.workload: {said}*"])
    result.stdout.no_fnmatch_line("*pluggy/*")


@pytest.mark.slow
def test_a_benchmark_that_does_not_exist_is_one_sentence(project):
    project.write("test_mine.py", BENCHMARK.replace("resnet50", "resnet51"))
    result = project.pytest()
    result.stdout.fnmatch_lines(["*there is no benchmark 'resnet51' (did you mean 'resnet50'?)*"])
    assert project.jobs() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("in_mark", "in_file"), [(", arguments=['--sed', '7']", ""), ("", "arguments: [--sed, '7']\n")]
)
def test_arguments_that_the_job_would_refuse_are_refused_before_it_waits_in_a_queue(project, in_mark, in_file):
    project.write("test_mine.py", BENCHMARK.replace('"resnet50"', f'"resnet50"{in_mark}'))
    project.platform("here", f"replaces: false\n{in_file}")
    run = project.pytest("--platform=here", "--size=smoke")
    run.stderr.fnmatch_lines(["*would refuse `arguments:`*unrecognized arguments: --sed 7*Nothing was submitted"])
    dry = project.pytest("--platform=here", "--dry-run")
    assert dry.ret == pytest.ExitCode.USAGE_ERROR
    dry.stdout.fnmatch_lines(["would be refused: *--sed 7*"])
    assert project.jobs() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [("--dtype=fp32", "--dtype fp32: the device"), ("--configuration=gbs32", "--configuration gbs32: *")],
)
def test_what_devices_with_a_compiler_cannot_do_is_refused_before_a_job_waits(project, words, said):
    project.write("test_mine.py", BENCHMARK)
    text = "scheduler: local\ndevice: csx\nlayouts: {default: [1x1]}\nconfigurations: [tuned]\n"
    project.write("site/platforms/here.yaml", text)
    project.write("site/site.yaml", "enabled: [here]\n")
    for dry in ([], ["--dry-run"]):
        run = project.pytest("--platform=here", "--size=smoke", words, *dry)
        assert run.ret == pytest.ExitCode.USAGE_ERROR
        run.stderr.fnmatch_lines([f"*its job would refuse what it is asked for: --device csx does not take {said}*"])
    assert project.jobs() == []


IPUS = """
scheduler: local
device: ipu
devices_per_replica: %d
replicas_per_rank: 1
layouts: {default: [1x%d]}
configurations: [tuned]
%s
"""


@pytest.mark.slow
def test_a_net_that_cannot_be_cut_for_so_many_ipus_is_refused_before_a_job_waits(project):
    project.write("test_mine.py", BENCHMARK)
    known = "unsupported: {resnet50: {reason: no pipeline, source: a paper}}"
    project.write("site/platforms/here.yaml", IPUS % (4, 4, known))
    project.write("site/site.yaml", "enabled: [here]\n")
    run = project.pytest("--platform=here", "--size=smoke", "--try-unsupported")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    others = "Without --try-unsupported it is skipped, and the others run"
    run.stderr.fnmatch_lines([f"*it is not known where to cut resnet50 for 4 IPUs*Nothing was submitted. {others}*"])
    assert project.jobs() == []
    project.write("site/platforms/here.yaml", IPUS % (2, 2, ""))
    project.pytest("--platform=here", "--size=smoke", "--dry-run").stdout.fnmatch_lines(["*1 job rendered*"])


@pytest.mark.slow
def test_a_test_that_passes_and_records_nothing_is_named(project):
    project.write("test_mine.py", TEST.replace("record(run)", "pass") % ([],))
    result = project.pytest()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["test_mine.py::test_it*: nothing is recorded, since record(run) was not called"])


@pytest.mark.slow
def test_garbage_is_collected_again_once_the_tests_are_known(project):
    project.write("test_gc.py", "import gc\n\ndef test_it():\n    assert gc.isenabled()\n")
    project.pytest_process("test_gc.py").assert_outcomes(passed=1)


BAD_FILE = """scheduler: kubernetes
device: gpu
marks: [blue]
layouts: {default: [1x1]}
data_dir: /data
kubernetes: {memory: 512mi}
"""


@pytest.mark.slow
def test_a_platform_whose_file_has_a_mistake_stops_nobody_else(project: Project) -> None:
    project.job_test()
    project.write("site/platforms/bad.yaml", BAD_FILE)
    project.write("site/site.yaml", "enabled: [bad]\n")
    for expression in ("local", "local and not bad"):
        result = project.pytest("-m", expression)
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["not loaded: bad: */bad.yaml:6: kubernetes.memory: '512mi' is no quantity*"])


@pytest.mark.parametrize(
    "words", [["-m", "bad"], ["-m", "bad or local"], ["--platform=bad"], ["test_mine.py::test_it[bad-1x1gpu]"]]
)
def test_a_platform_whose_file_has_a_mistake_is_refused_by_its_name(project: Project, words: list[str]) -> None:
    project.job_test()
    project.write("site/platforms/bad.yaml", BAD_FILE)
    project.refuses(*words, says="*/bad.yaml:6: kubernetes.memory: '512mi' is no quantity*")


def test_a_mark_that_only_a_file_with_a_mistake_has_leads_to_the_mistake(project: Project) -> None:
    project.job_test()
    project.write("site/platforms/bad.yaml", BAD_FILE)
    result = project.pytest("-m", "blue")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*there is no mark 'blue'*", "not loaded: bad: */bad.yaml:6: *"])


def test_a_histogram_without_pygal_is_refused_before_anything_is_submitted(project, monkeypatch):
    """At the end pytest-benchmark would raise an ImportError: no table, and nothing saved."""
    monkeypatch.setitem(sys.modules, "pygal", None)  # as if it were not installed
    project.job_test()
    said = "*--benchmark-histogram draws with pygal, which is not installed*pip install*"
    project.refuses("--benchmark-histogram=drawn", says=said)


@pytest.mark.parametrize("gate", ["on", "require"])
def test_two_gates_are_refused_before_the_jobs(project, gate):
    project.job_test()
    said = f"ERROR: --gate={gate} and --benchmark-compare-fail are two gates*"
    project.refuses(f"--gate={gate}", "--benchmark-compare", "--benchmark-compare-fail=mean:5%", says=said)


@pytest.mark.parametrize("name", ["latest", "", "a/b", "..", "-x", "x" * 101])
def test_a_run_id_that_can_be_no_folder_is_refused(project, name):
    project.job_test()
    project.refuses(f"--run-id={name}", says=f"*--run-id: {name!r} can be no name of a run*")
    assert not list(project.path.glob("runs/*/*"))


@pytest.mark.parametrize("dry", [True, False])
def test_what_the_sites_rules_forbid_is_never_submitted(project, dry):
    project.platform("strict", "time_limit: 2h\npolicy: {max_time: 1h}\n")
    project.job_test()
    result = project.pytest("-m", "strict", *["--dry-run"] * dry)
    said = "*the site's rules forbid it: *strict.yaml: policy: max_time*"
    if dry:
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([said])
    else:
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines([said])
    assert list(project.path.glob("runs/*/*/pid")) == []


@pytest.mark.parametrize("dry", [pytest.param(False, marks=pytest.mark.slow, id="run"), pytest.param(True, id="dry")])
def test_a_job_that_cannot_be_rendered_is_one_tests_refusal(project, dry):
    project.platform("bad", "replicas_per_rank: 8\n")
    project.platform("good")
    project.write("site/site.yaml", "enabled: [bad, good]\n")
    project.job_test()
    result = project.pytest("-m", "bad or good", *["--dry-run"] * dry)
    said = "bad: replicas_per_rank: is for ipu and csx"
    if dry:
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: test_mine.py::test_it[[]bad-1x2gpu[]]: {said}*"])
        result.stdout.fnmatch_lines(["exec *", "*dry run: 1 job rendered, 1 without a script, none submitted*"])
    else:
        result.assert_outcomes(passed=1, errors=1)
        result.stdout.fnmatch_lines([f"*{said}*"])
