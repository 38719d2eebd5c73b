"""The step of doctor that looks for the data sets."""

from __future__ import annotations

import shlex

from platforms.checkout import ROOT
from platforms.job import RefusedError
from platforms.schedulers import backend_of
from platforms.schedulers.doctor_steps import StepResult, Visit


def data(visit: Visit) -> StepResult:
    """A folder for each benchmark that can run there, as far as it can be seen from where commands run."""
    places = visit.data_folders()
    seen = {what: _seen(visit, folder) for what, folder in places.items()}
    missing = [what for what, word in seen.items() if word == "missing"]
    hidden = [places[what] for what, word in seen.items() if word == "hidden"]
    if missing:
        lacks = ", ".join(f"{what} ({places[what]})" for what in missing)
        make = f"python -m platforms prepare {visit.platform.name}"
        sizes = "".join(f" --size {size}" for size in dict.fromkeys(what.split()[1] for what in missing))
        some = "".join(f" --benchmark {what.split()[0]}" for what in missing) if len(missing) < len(places) else ""
        raise RefusedError(f"no data set of {lacks}; make it: {make}{sizes}{some}{visit.more}")
    if hidden:
        commands_see_data = backend_of(visit.platform).commands_see_data
        who = "compute nodes can see that" if commands_see_data else "a job can see that, with --node"
        return StepResult(f"{', '.join(hidden)}: only {who}", skipped=True)
    return StepResult(", ".join(places) or "no benchmark can run there")


def _seen(visit: Visit, folder: str) -> str:
    if not backend_of(visit.platform).commands_see_data:
        return visit.folders.get(folder, "hidden")
    work = str(visit.platform.work_dir or ROOT)
    parent = work if folder.startswith(f"{work}/") else folder.rpartition("/")[0] or "/"
    script = (
        f"if [ -d {shlex.quote(folder)} ]; then echo there; elif [ -d {shlex.quote(parent)} ]; then echo missing; fi\n"
    )
    return visit.sh(script).stdout.decode(errors="replace").strip() or "hidden"
