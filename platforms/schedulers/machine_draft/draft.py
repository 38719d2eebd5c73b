"""Asks a machine over a transport what it is, and turns its answers into the lines of a platform's file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from platforms import transports
from platforms.config.draft import Draft, DraftRequest
from platforms.config.schema import Platform
from platforms.schedulers.machine_draft import lines, questions
from platforms.schedulers.machine_draft.lines import MachineChoices
from platforms.schedulers.machine_draft.machine import Machine
from platforms.schedulers.machine_draft.questions import NoSlurm


def draft_machine(request: DraftRequest, scheduler: str) -> Draft:
    """Ask the machine that the command line names, or that of the platform. Raises BenchError.

    Args:
        scheduler: "slurm", whose login node is asked; or "ssh", for a machine alone.
    """
    platform = request.platform
    partition = request.options.get("partition")
    if platform is not None:
        choices = MachineChoices(
            scheduler, platform.transport, platform.host, platform.ssh_config, platform.login_shell, partition
        )
        machine, choices = ask(choices, platform.name, platform.source)
        partition = partition or request.file.get("slurm.partition")
        choices = replace(choices, partition=partition if partition in machine.partitions else None)
        return Draft(machine.where, lines.lines(machine, choices, ()))
    transport = "local"
    if request.options.get("ssh"):
        transport = request.options.get("transport") or "openssh"
    choices = MachineChoices(
        scheduler,
        transport=transport,
        host=request.options.get("ssh"),
        ssh_config=request.path_of("ssh_config"),
        partition=partition,
        replaces=request.replaces,
    )
    machine, choices = ask(choices, request.name, Path("--ssh"))
    return Draft(machine.where, lines.lines(machine, choices, request.taken_marks))


def ask(choices: MachineChoices, name: str, source: Path) -> tuple[Machine, MachineChoices]:
    """Ask the machine. Returns the choices, too: with `login_shell` where only a login shell finds Slurm.

    Raises NoSlurm where there is no Slurm, and what transports raise.
    """
    try:
        return _ask(choices, name, source), choices
    except NoSlurm as error:
        if choices.login_shell:
            raise
        with_login_shell = replace(choices, login_shell=True)
        try:
            return _ask(with_login_shell, name, source), with_login_shell
        except NoSlurm:
            raise error from None


def _ask(choices: MachineChoices, name: str, source: Path) -> Machine:
    platform = Platform.model_validate(
        {
            "name": name,
            "source": source,
            "scheduler": choices.scheduler,
            "device": "cpu",
            "work_dir": "/",
            "transport": choices.transport,
            "host": choices.host,
            "ssh_config": choices.ssh_config,
            "login_shell": choices.login_shell,
            "layouts": {"default": ("1x1",)},
        }
    )
    transport = transports.connect(platform)
    try:
        if choices.scheduler == "ssh":
            return questions.ask_alone(transport)
        return questions.ask_slurm(transport)
    finally:
        transport.close()
