"""What test_true.py is, as a ReFrame test."""

import reframe as rfm
from reframe.core.builtins import sanity_function


@rfm.simple_test
class JustTrue(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]  # noqa: RUF012 (variables of the test, which ReFrame copies)
    valid_prog_environs = ["*"]  # noqa: RUF012
    executable = "true"

    @sanity_function
    def it_ended(self):
        return True
