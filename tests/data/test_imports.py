"""What writes data sets, and what reads HDF5, imports no torch: a login node may have none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATORS = ", ".join(f"models.data.synthetic_{name}" for name in ("cosmoflow", "deepcam", "gpt", "resnet50"))


@pytest.mark.slow
def test_neither_torch_nor_h5py_is_imported_before_it_is_needed() -> None:
    code = f"import sys, models.data.hdf5, {GENERATORS}; print(sorted({{'torch', 'h5py'}} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT) == "[]\n"
