"""A machine that commands reach is asked what it is, and its answers become the lines of a platform's file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from platforms import transports
from platforms.config.draft import Draft, DraftRequest
from platforms.config.schema import Platform
from platforms.schedulers.machine_draft import lines, questions
from platforms.schedulers.machine_draft.lines import Wish
from platforms.schedulers.machine_draft.machine import Machine
from platforms.schedulers.machine_draft.questions import NoSlurm


def draft_machine(request: DraftRequest, scheduler: str) -> Draft:
    """Ask the machine that the command line names, or that of the platform. Raises BenchError.

    Args:
        scheduler: "slurm", whose login node is asked; or "ssh", for a machine alone.
    """
    platform = request.platform
    if platform is None:
        wish = Wish(
            scheduler,
            transport=(request.options.get("transport") or "openssh") if request.options.get("ssh") else "local",
            host=request.options.get("ssh"),
            ssh_config=request.path_of("ssh_config"),
            partition=request.options.get("partition"),
            replaces=request.replaces,
        )
        machine, wish = ask(wish, request.name, Path("--ssh"))
        return Draft(machine.where, lines.lines(machine, wish, request.taken_marks))
    partition = request.options.get("partition")
    wish = Wish(scheduler, platform.transport, platform.host, platform.ssh_config, platform.login_shell, partition)
    machine, wish = ask(wish, platform.name, platform.source)
    partition = partition or request.file.get("slurm.partition")
    wish = replace(wish, partition=partition if partition in machine.partitions else None)
    return Draft(machine.where, lines.lines(machine, wish, ()))


def ask(wish: Wish, name: str, source: Path) -> tuple[Machine, Wish]:
    """What the machine says; and the wish, with `login_shell` where it turned out that only that finds Slurm.

    Raises NoSlurm where there is none, and what transports raise.
    """
    if wish.scheduler == "ssh":
        return _asked(wish, name, source), wish
    try:
        return _asked(wish, name, source), wish
    except NoSlurm as error:
        if wish.login_shell:
            raise
        other = replace(wish, login_shell=True)
        try:
            return _asked(other, name, source), other
        except NoSlurm:
            raise error from None


def _asked(wish: Wish, name: str, source: Path) -> Machine:
    keys = {"name": name, "source": source, "scheduler": wish.scheduler, "device": "cpu", "work_dir": "/"}
    keys |= {"transport": wish.transport, "host": wish.host, "ssh_config": wish.ssh_config}
    layouts = {"default": ("1x1",)}
    platform = Platform.model_validate({**keys, "login_shell": wish.login_shell, "layouts": layouts})
    transport = transports.connect(platform)
    try:
        return questions.ask_alone(transport) if wish.scheduler == "ssh" else questions.ask_slurm(transport)
    finally:
        transport.close()
