"""What all tests of data sets share."""

from __future__ import annotations

import os

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the other cores have workers of their own
