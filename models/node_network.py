"""What a node's network cards say of themselves, read from /sys, and what the environment says of the node's place.

Ethernet and IPoIB cards are in sys/class/net, the ports of InfiniBand and RoCE adapters in sys/class/infiniband, HPE's
Slingshot adapters in sys/class/cxi (each is also a card of sys/class/net, as hsn0).
Sources: the kernel's Documentation/ABI, stable/sysfs-class-infiniband and testing/sysfs-class-net; the counters of its
driver mlx5; HewlettPackard/shs-cxi-driver, cass_sysfs.c, and the counters that HPE's documents and Open MPI count as
errors.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, Mapping, Optional, Tuple

from models.host import read_text

NET_COUNTERS = ("rx_errors", "tx_errors", "rx_dropped")
PORT_COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_xmit_discards",
    "port_xmit_wait",  # ticks in which data could not be sent for want of credits: congestion
)
ADAPTER_COUNTERS = ("np_cnp_sent", "rp_cnp_handled", "out_of_sequence", "packet_seq_err", "local_ack_timeout_err")
SLINGSHOT_COUNTERS = (
    "hni_pcs_uncorrected_cw",
    "hni_llr_tx_replay_event",
    "hni_llr_rx_replay_event",
    "pct_spt_timeouts",
    "pct_sct_timeouts",
    "pct_retry_srb_requests",
    "pct_trs_rsp_nack_drops",
)
SLINGSHOT_PAUSES = ("hni_rx_paused", "hni_tx_paused")  # of each of eight traffic classes: hni_rx_paused_0, …
LINK_LAYERS = {"1": "Ethernet", "32": "InfiniBand"}  # ARPHRD_ETHER, ARPHRD_INFINIBAND of linux/if_arp.h


def network(root: str = "/") -> List[Dict[str, object]]:
    """Return each physical card that is up and each port of an adapter: name, rate_gbit_s, firmware, state, link_layer.

    The name is the system's, as `eth0`, `mlx5_0/1` (adapter and port), `cxi0`. What is not known is absent.
    """
    found = [_card(root, name) for name in _cards(root)]
    found += [_port(root, adapter, port) for adapter, port in _ports(root)]
    found += [_slingshot(root, name) for name in _names(root, "sys/class/cxi")]
    return [{key: value for key, value in each.items() if value is not None} for each in found]


def counters(root: str = "/") -> Dict[str, int]:
    """Return the counters of errors and of congestion, as "mlx5_0/1 port_xmit_wait".

    They count since a card was reset, so the caller takes the difference of two readings. A negative difference says
    that the card was reset between them. A counter of InfiniBand may have stopped at its highest value.
    """
    files = {}  # of each counter
    for name in _cards(root):
        files.update({f"{name} {each}": [f"sys/class/net/{name}/statistics/{each}"] for each in NET_COUNTERS})
    for adapter, port in _ports(root):
        folder = f"sys/class/infiniband/{adapter}/ports/{port}"
        files.update({f"{adapter}/{port} {each}": [f"{folder}/counters/{each}"] for each in PORT_COUNTERS})
        files.update({f"{adapter}/{port} {each}": [f"{folder}/hw_counters/{each}"] for each in ADAPTER_COUNTERS})
    for name in _names(root, "sys/class/cxi"):
        folder = f"sys/class/cxi/{name}/device/telemetry"
        files.update({f"{name} {each}": [f"{folder}/{each}"] for each in SLINGSHOT_COUNTERS})
        files.update({f"{name} {each}": [f"{folder}/{each}_{i}" for i in range(8)] for each in SLINGSHOT_PAUSES})
    counted = {}
    for key, paths in files.items():
        counts = [re.match(r"\d+", read_text(root, path)) for path in paths]  # Slingshot adds "@" and a time
        known = [int(count[0]) for count in counts if count]
        if known:
            counted[key] = sum(known)
    return counted


def place(environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """Return the switches or blocks above this node, as Slurm tells them to a job: {"switch": "spine1.leaf16"}.

    The outermost comes first. {} where Slurm knows of no topology, and outside of Slurm. SLURM_TOPOLOGY_ADDR has a name
    for each word of SLURM_TOPOLOGY_ADDR_PATTERN, as `switch.switch.node` (sbatch(1)).
    """
    words = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    names = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".", len(words) - 1)  # the node's name may have dots
    found: Dict[str, str] = {}
    for word, name in zip(words, names):
        if name and word not in ("", "node"):
            found[word] = f"{found[word]}.{name}" if word in found else name
    return found


def _card(root: str, name: str) -> Dict[str, object]:
    folder = f"sys/class/net/{name}"
    adapters = _names(root, f"{folder}/device/infiniband")
    firmwares = [_line(root, f"{folder}/device/infiniband/{adapter}/fw_ver") for adapter in adapters]
    return {
        "name": name,
        "rate_gbit_s": _gbit(_line(root, f"{folder}/speed")),
        "firmware": firmwares[0] if firmwares else _line(root, f"{folder}/device/uc/qspi_blob_version"),
        "state": _line(root, f"{folder}/operstate"),
        "link_layer": LINK_LAYERS.get(str(_line(root, f"{folder}/type"))),
    }


def _port(root: str, adapter: str, port: str) -> Dict[str, object]:
    folder = f"sys/class/infiniband/{adapter}/ports/{port}"
    rate = re.match(r"([\d.]+) Gb/sec", read_text(root, f"{folder}/rate"))  # "200 Gb/sec (4X HDR)"
    state = re.match(r"\d+: (\w+)", read_text(root, f"{folder}/state"))  # "4: ACTIVE"
    return {
        "name": f"{adapter}/{port}",
        "rate_gbit_s": float(rate[1]) if rate else None,
        "firmware": _line(root, f"sys/class/infiniband/{adapter}/fw_ver"),
        "state": state[1] if state else None,
        "link_layer": _line(root, f"{folder}/link_layer"),
    }


def _slingshot(root: str, name: str) -> Dict[str, object]:
    folder = f"sys/class/cxi/{name}/device"
    return {
        "name": name,
        "rate_gbit_s": _gbit(_line(root, f"{folder}/properties/speed")),
        "firmware": _line(root, f"{folder}/uc/qspi_blob_version"),
        "state": {"1": "up", "0": "down"}.get(str(_line(root, f"{folder}/properties/link"))),
        "link_layer": "Slingshot",
    }


def _gbit(megabit: Optional[str]) -> Optional[float]:
    """Return Gbit/s for Mbit/s; None for -1 or 0, by which a driver says that it does not know."""
    return int(megabit) / 1000 if megabit and megabit.isdigit() and megabit != "0" else None


def _cards(root: str) -> List[str]:
    """Return the cards that are up and physical; lo, a bridge, a VLAN have no device."""
    folder = "sys/class/net"
    up = [name for name in _names(root, folder) if _line(root, f"{folder}/{name}/operstate") == "up"]
    return [name for name in up if os.path.exists(os.path.join(root, folder, name, "device"))]


def _ports(root: str) -> List[Tuple[str, str]]:
    folder = "sys/class/infiniband"
    return [(name, port) for name in _names(root, folder) for port in _names(root, f"{folder}/{name}/ports")]


def _names(root: str, folder: str) -> List[str]:
    try:
        return sorted(os.listdir(os.path.join(root, folder)))
    except OSError:
        return []


def _line(root: str, path: str) -> Optional[str]:
    return read_text(root, path).strip() or None
