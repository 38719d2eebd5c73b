"""JOBS jobs as a ReFrame test; each notes when its job ended, and twice when its figure was checked."""

import os
import re
import time
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, performance_function, run_after, sanity_function


@rfm.simple_test
class Sleeping(rfm.RunOnlyRegressionTest):
    number = parameter(range(int(os.environ["JOBS"])))
    valid_systems = ["*"]  # noqa: RUF012 (variables of the test, which ReFrame copies)
    valid_prog_environs = ["*"]  # noqa: RUF012
    executable = os.environ["JOB"]
    executable_opts = [os.environ["JOB_S"]]  # noqa: RUF012
    reference = {"*": {"throughput": (123.4, -0.1, 0.1, "samples/s")}}  # noqa: RUF012

    @sanity_function
    def it_ended(self):
        return sn.assert_found(r"^ended: ", self.stdout)

    @performance_function("samples/s")
    def throughput(self):
        return sn.extractsingle(r"^throughput: (\S+)", self.stdout, 1, float)

    @run_after("performance")
    def note(self):
        printed = Path(self.stagedir, sn.evaluate(self.stdout)).read_text()
        ended = re.findall(r"^ended: (\S+)", printed, re.MULTILINE)[-1]
        now = time.time()
        with Path(os.environ["NOTES"]).open("a") as notes:
            notes.write(f"{ended} {now} {now}\n")
