"""What network cards say of themselves: trees of files under /sys, and variables, as systems show them.

The trees are no copies. The names of files and the forms of their contents are those of: mlx5 on InfiniBand (HDR) and
on Ethernet (RoCE): the kernel's ABI/stable/sysfs-class-infiniband, ABI/testing/sysfs-class-net and the plugin
infiniband of influxdata/telegraf; Slingshot: HewlettPackard/shs-cxi-driver at 04b26e57, cass_sysfs.c (properties), and
HPE's shs-docs, which strip "@" and what follows from a telemetry file. The values of Slurm's variables have the forms
that jobs have printed: `node` and `switch.switch.node`; `block.node` is that of topology/block.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from models.node_network import counters, network, place

PORT, CXI = "sys/class/infiniband/mlx5_0/ports/1", "sys/class/cxi/cxi0/device"
TREE = {
    "sys/class/net/lo": {"operstate": "unknown"},
    "sys/class/net/br0": {"operstate": "up"},  # it has no device
    "sys/class/net/eth1": {"operstate": "down", "device/vendor": "0x8086"},
    "sys/class/net/eth0": {"operstate": "up", "type": "1", "speed": "25000"},
    "sys/class/net/eth0/device/infiniband/mlx5_2": {"fw_ver": "22.39.1002"},
    "sys/class/net/eth0/statistics": {"rx_errors": "0", "tx_errors": "1", "rx_dropped": "17"},
    "sys/class/net/ib0": {"operstate": "up", "type": "32", "speed": "-1", "device/vendor": "0x15b3"},
    "sys/class/infiniband/mlx5_0": {"fw_ver": "20.31.1014"},
    PORT: {"state": "4: ACTIVE", "rate": "200 Gb/sec (4X HDR)", "link_layer": "InfiniBand"},
    f"{PORT}/counters": {"symbol_error": "2", "port_xmit_wait": "4294967295", "port_rcv_data": "9000000000"},
    f"{PORT}/hw_counters": {"out_of_sequence": "5", "np_cnp_sent": "N/A (no PMA)"},
    f"{CXI}/properties": {"speed": "200000", "link": "1"},
    f"{CXI}/uc": {"qspi_blob_version": "1.5.53"},
    f"{CXI}/telemetry": {"hni_pcs_uncorrected_cw": "812@17.01", "hni_rx_paused_0": "3@17.02", "hni_rx_paused_7": "4@9"},
}


@pytest.fixture
def root(tmp_path: Path) -> str:
    for folder, files in TREE.items():
        for name, text in files.items():
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text(f"{text}\n")
    return str(tmp_path)


def test_cards_that_are_up_and_ports_are_shown_with_rate_and_firmware(root: str) -> None:
    ethernet = {"rate_gbit_s": 25, "firmware": "22.39.1002", "state": "up", "link_layer": "Ethernet"}
    infiniband = {"rate_gbit_s": 200, "firmware": "20.31.1014", "state": "ACTIVE", "link_layer": "InfiniBand"}
    slingshot = {"rate_gbit_s": 200, "firmware": "1.5.53", "state": "up", "link_layer": "Slingshot"}
    assert network(root) == [
        {"name": "eth0", **ethernet},
        {"name": "ib0", "state": "up", "link_layer": "InfiniBand"},
        {"name": "mlx5_0/1", **infiniband},
        {"name": "cxi0", **slingshot},
    ]


def test_counters_of_errors_and_congestion_are_flat(root: str) -> None:
    of_eth0 = {"eth0 rx_errors": 0, "eth0 tx_errors": 1, "eth0 rx_dropped": 17}
    of_port = {"mlx5_0/1 symbol_error": 2, "mlx5_0/1 port_xmit_wait": 4294967295, "mlx5_0/1 out_of_sequence": 5}
    of_cxi0 = {"cxi0 hni_pcs_uncorrected_cw": 812, "cxi0 hni_rx_paused": 7}  # paused: all traffic classes
    assert counters(root) == {**of_eth0, **of_port, **of_cxi0}


def test_a_machine_without_cards_says_nothing(tmp_path: Path) -> None:
    assert network(str(tmp_path)) == []
    assert counters(str(tmp_path)) == {}


@pytest.mark.parametrize(
    ("address", "pattern", "expected"),
    [
        ("sh4.isw-16.n5", "switch.switch.node", {"switch": "sh4.isw-16"}),
        ("b3.n5.cluster.example", "block.node", {"block": "b3"}),
        ("n5", "node", {}),
        ("", "", {}),
        ("n5", "", {}),
    ],
)
def test_slurm_tells_the_switch_or_the_block(address: str, pattern: str, expected: dict[str, str]) -> None:
    environ = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
    assert place(environ) == expected
    assert place({}) == {}
