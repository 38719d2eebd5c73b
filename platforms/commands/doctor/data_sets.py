"""The step of doctor that looks for the data sets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from platforms.checkout import ROOT
from platforms.job import RefusedError
from platforms.schedulers import backend_of
from platforms.schedulers.doctor_steps import StepResult, Visit


def data(visit: Visit) -> StepResult:
    """Check that the data set of each benchmark is there, as far as commands see its folder."""
    folders = visit.data_folders()
    missing = []
    hidden = []
    for data_set, folder in folders.items():
        presence = _presence(visit, folder)
        if presence == "missing":
            missing.append(data_set)
        elif presence == "hidden":
            hidden.append(folder)
    if missing:
        names = ", ".join(f"{data_set} ({folders[data_set]})" for data_set in missing)
        prepare = _prepare_command(visit, missing, all_missing=len(missing) == len(folders))
        raise RefusedError(f"no data set of {names}; make it: {prepare}")
    if hidden:
        if backend_of(visit.platform).commands_see_data:
            reason = "only compute nodes can see that"
        else:
            reason = "only a job can see that, with --node"
        return StepResult(f"{', '.join(hidden)}: {reason}", skipped=True)
    return StepResult(", ".join(folders) or "no benchmark can run there")


def _prepare_command(visit: Visit, missing: Sequence[str], *, all_missing: bool) -> str:
    """Write the command that makes the missing data sets, which are named as in `resnet50 quick`."""
    words = [f"python -m platforms prepare {visit.platform.name}"]
    sizes = dict.fromkeys(data_set.split()[1] for data_set in missing)
    words += [f"--size {size}" for size in sizes]
    if not all_missing:
        words += [f"--benchmark {data_set.split()[0]}" for data_set in missing]
    return " ".join(words) + visit.more


def _presence(visit: Visit, folder: str) -> str:
    """Tell whether a data set's folder is "there", "missing" or "hidden" from where commands run."""
    if not backend_of(visit.platform).commands_see_data:
        return visit.folders.get(folder, "hidden")
    work = str(visit.platform.work_dir or ROOT)
    if folder.startswith(f"{work}/"):
        parent = work
    else:
        parent = folder.rpartition("/")[0] or "/"
    script = (
        f"if [ -d {shlex.quote(folder)} ]; then echo there; elif [ -d {shlex.quote(parent)} ]; then echo missing; fi\n"
    )
    return visit.sh(script).stdout.decode(errors="replace").strip() or "hidden"
