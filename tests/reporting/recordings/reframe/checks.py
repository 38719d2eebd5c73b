"""The ReFrame tests that record.py runs. They print numbers of a fixed sequence, and run on any machine.

RECORDING_NIGHT says which number of the sequence. From night 26 on `stream` and `solver` are 6 % slower.
"""

# ruff: noqa: F821, RUF012 (ReFrame defines names in its class bodies)

import os

import reframe as rfm
import reframe.utility.sanity as sn

NIGHT = int(os.environ.get("RECORDING_NIGHT", "0"))
WOBBLE = (0, 7, -4, 3, -8, 5, 1, -6, 8, -2)  # in thousandths


def level(base):
    slower = 0.94 if NIGHT >= 26 else 1.0
    return base * slower * (1 + WOBBLE[NIGHT % len(WOBBLE)] / 1000)


@rfm.simple_test
class stream(rfm.RunOnlyRegressionTest):
    """Three metrics, each with other bounds: only below, both, and none at all."""

    size = parameter(["small", "large"])
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"

    @run_before("run")
    def set_output(self):
        factor = 1 if self.size == "small" else 2
        triad, copy, latency = level(800 * factor), level(700 * factor), 1500 / level(800)
        self.executable_opts = [f"triad {triad:.2f} copy {copy:.2f} latency {latency:.4f}"]

    reference = {
        "generic:default": {
            "triad": (800, -0.5, None, "GB/s"),
            "copy": (700, -0.6, 1.5, "GB/s"),
            "latency": (2, None, 0.5, "us"),
        },
        "twopart": {"triad": (800, -0.5, None, "GB/s"), "latency": (2, None, 0.5, "us")},
    }

    @sanity_function
    def has_printed(self):
        return sn.assert_found("triad", self.stdout)

    @performance_function("GB/s")
    def triad(self):
        return sn.extractsingle(r"triad (\S+)", self.stdout, 1, float)

    @performance_function("GB/s")
    def copy(self):
        return sn.extractsingle(r"copy (\S+)", self.stdout, 1, float)

    @performance_function("us")
    def latency(self):
        return sn.extractsingle(r"latency (\S+)", self.stdout, 1, float)


@rfm.simple_test
class solver(rfm.RunOnlyRegressionTest):
    """A time, and a count without a unit and a reference. In the nights 4 and 30 it misses its reference."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"
    reference = {"*": {"elapsed": (10, None, 0.2, "s")}}

    @run_before("run")
    def set_output(self):
        seconds = 20 if NIGHT in (4, 30) else 100 / level(10)
        self.executable_opts = [f"elapsed {seconds:.3f} iterations {1000 + NIGHT % 3}"]

    @sanity_function
    def has_printed(self):
        return sn.assert_found("elapsed", self.stdout)

    @performance_function("s")
    def elapsed(self):
        return sn.extractsingle(r"elapsed (\S+)", self.stdout, 1, float)

    @performance_function("")
    def iterations(self):
        return sn.extractsingle(r"iterations (\S+)", self.stdout, 1, float)


@rfm.simple_test
class insane(rfm.RunOnlyRegressionTest):
    """Its sanity always fails."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"
    executable_opts = ["rate 5"]

    @sanity_function
    def never(self):
        return sn.assert_found("no such word", self.stdout)

    @performance_function("GB/s")
    def rate(self):
        return sn.extractsingle(r"rate (\S+)", self.stdout, 1, float)


@rfm.simple_test
class skipped(rfm.RunOnlyRegressionTest):
    """It skips itself."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "true"

    @run_after("setup")
    def give_up(self):
        self.skip("no such device here")

    @sanity_function
    def always(self):
        return True
