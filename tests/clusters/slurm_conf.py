"""The configuration of the test cluster: its nodes, partitions, accounts and limits, as the files that Slurm reads."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from pathlib import Path

CLUSTER = "bench"
ACCOUNT = "z19"
# node names -> their keys in slurm.conf; a port each, in this order
NODES = {
    "cn[1-3]": "Features=rome",
    "cn4": "Features=rome",
    "v100n[1-2]": "Gres=gpu:v100:4 Features=v100",
    "mi210n1": "Gres=gpu:mi210:4 Features=mi210",
    "cs2n1": "Gres=cs:1 Features=cs2",
}
NODE_NAMES = ("cn1", "cn2", "cn3", "cn4", "v100n1", "v100n2", "mi210n1", "cs2n1")
HARDWARE = "CPUs=4 RealMemory=16000 State=UNKNOWN"
PARTITIONS = {
    "standard": "Nodes=cn[1-3] Default=YES DefaultTime=10 MaxTime=1-00:00:00",
    "brief": "Nodes=cn[1-3] DefaultTime=1 MaxTime=2",
    "teaching": "Nodes=cn4 DefaultTime=10 MaxTime=1-00:00:00",
    "gpu": "Nodes=v100n[1-2] DefaultTime=10 MaxTime=1-00:00:00",
    "gpu-mi210": "Nodes=mi210n1 DefaultTime=10 MaxTime=1-00:00:00",
    "cerebras": "Nodes=cs2n1 DefaultTime=10 MaxTime=1-00:00:00",
}
SETTINGS = {
    "ClusterName": CLUSTER,
    "AuthType": "auth/munge",
    "ProctrackType": "proctrack/linuxproc",
    # the nodes claim more than this machine has
    "SlurmdParameters": "config_overrides",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "DefMemPerCPU": 4000,
    "GresTypes": "gpu,cs",
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherFrequency": "task=1",
    "JobAcctGatherParams": "OverMemoryKill",
    "EnforcePartLimits": "ALL",
    "ReturnToService": 2,
    # what is minutes on a real system is seconds here
    "SchedulerParameters": "sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0",
    "KillWait": 3,
    "MessageTimeout": 10,
    "SlurmctldTimeout": 10,
    # a node that is slow, on a busy machine, is not lost
    "SlurmdTimeout": 120,
    # --export=NONE reads the user's login files, on a machine that may be busy
    "GetEnvTimeout": 20,
}
ACCOUNTING = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageHost": "127.0.0.1",
    "AccountingStorageEnforce": "associations,limits,qos",
    "AccountingStorageTRES": "gres/gpu",
    "PreemptType": "preempt/qos",
    "PreemptMode": "CANCEL",
}
# of no effect without `TopologyPlugin=topology/tree`
TOPOLOGY = """SwitchName=leaf1 Nodes=cn[1-2]
SwitchName=leaf2 Nodes=cn[3-4],v100n[1-2],mi210n1,cs2n1
SwitchName=spine1 Switches=leaf[1-2]
"""
# a node of its own partition, so that the reservation takes no place away from the other tests
RESERVATION = "course"
RESERVED_NODE = "cn4"
# what `sacctmgr add qos` is told; a job in `high` takes the place of one in `low`
QOS = ("standard,low", "short MaxWallDurationPerJob=00:20:00")
HIGH_QOS = "high Preempt=low"
USER_QOS = "normal,standard,short,low,high"


def files(folder: Path, port: int, accounting: bool, settings: Mapping[str, str]) -> dict[Path, str]:
    """Every configuration file of the cluster in `folder`, by its path; `settings` are keys of slurm.conf that win."""
    texts = {
        folder / "slurm.conf": slurm_conf(folder, port, accounting, settings),
        folder / "gres.conf": gres_conf(folder),
        # slurmd 22.05 looks for cgroups whatever it is told to use, and its automatic choice dies in a container
        folder / "cgroup.conf": "CgroupPlugin=cgroup/v1\n",
        folder / "topology.conf": TOPOLOGY,
        folder / "task_prolog": "#!/bin/sh\necho export PATH=/usr/local/bin:/usr/bin:/bin\n",
    }
    if accounting:
        texts[folder / "slurmdbd.conf"] = slurmdbd_conf(folder, port)
    return texts


def slurm_conf(folder: Path, port: int, accounting: bool, settings: Mapping[str, str]) -> str:
    keys: dict[str, object] = {**SETTINGS, **places(folder, port)}
    if accounting:
        keys |= {
            **ACCOUNTING,
            "AccountingStoragePort": port + 1,
            # towards slurmdbd this key, not AuthInfo, names the socket of munge
            "AccountingStoragePass": folder / "munge.socket",
        }
    lines = [f"{key}={value}" for key, value in (keys | dict(settings)).items() if value != ""]
    first = port + 2
    for names, more in NODES.items():
        count = len(expand(names))
        ports = f"[{first}-{first + count - 1}]" if count > 1 else first
        lines.append(f"NodeName={names} NodeHostname={own_name()} NodeAddr=127.0.0.1 Port={ports} {HARDWARE} {more}")
        first += count
    lines += [f"PartitionName={name} State=UP {more}" for name, more in PARTITIONS.items()]
    return "\n".join(lines) + "\n"


def places(folder: Path, port: int) -> dict[str, object]:
    """The keys of slurm.conf that say where, and as whom."""
    user = getpass.getuser()
    return {
        "SlurmctldHost": f"{own_name()}(127.0.0.1)",
        "SlurmctldPort": port,
        "CommunicationParameters": loopback_only(),
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthInfo": f"socket={folder / 'munge.socket'}",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool/%n",
        "TmpFS": folder / "spool/%n",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd@%n.pid",
        "SlurmctldLogFile": folder / "log/slurmctld.log",
        "SlurmdLogFile": folder / "log/slurmd@%n.log",
        # slurmd gives a job that brings no environment that of a login, for which it must be root; else it has no PATH
        "TaskProlog": "" if os.geteuid() == 0 else folder / "task_prolog",
    }


def own_name() -> str:
    return socket.gethostname().partition(".")[0]


def loopback_only() -> str:
    """Listen on this host's own address only, where that is loopback: elsewhere no node could be reached."""
    try:
        own = socket.gethostbyname(socket.gethostname())
    except OSError:
        return ""
    return "NoInAddrAny,NoCtldInAddrAny" if own.startswith("127.") else ""


def expand(names: str) -> list[str]:
    """`cn[1-3]` as three names."""
    stem, bracket, numbers = names.partition("[")
    if not bracket:
        return [names]
    low, _, high = numbers.rstrip("]").partition("-")
    return [f"{stem}{number}" for number in range(int(low), int(high) + 1)]


def gres_conf(folder: Path) -> str:
    """Fake devices. Slurm wants a character device behind each name, and a link to /dev/null is one."""
    return (
        f"NodeName=v100n[1-2] Name=gpu Type=v100 File={folder}/dev/nvidia[0-3] Flags=nvidia_gpu_env\n"
        f"NodeName=mi210n1 Name=gpu Type=mi210 File={folder}/dev/amd[0-3] Flags=amd_gpu_env\n"
        "NodeName=cs2n1 Name=cs Count=1\n"
    )


def slurmdbd_conf(folder: Path, port: int) -> str:
    keys = {
        "DbdHost": "localhost",
        "DbdAddr": "127.0.0.1",
        "DbdPort": port + 1,
        "SlurmUser": getpass.getuser(),
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder / 'munge.socket'}",
        "CommunicationParameters": loopback_only(),
        "PidFile": folder / "slurmdbd.pid",
        "LogFile": folder / "log/slurmdbd.log",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": getpass.getuser(),
        "StorageLoc": "slurm_acct_db",
    }
    return "".join(f"{key}={value}\n" for key, value in keys.items() if value != "")
