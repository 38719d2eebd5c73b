"""Start-up without the garbage collector.

What is imported and collected stays until the end. To look through it for garbage again and again takes a tenth of the
time until the first test, so pytest.ini loads this module before all others of ours.
"""

from __future__ import annotations

import gc

import pytest

gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
