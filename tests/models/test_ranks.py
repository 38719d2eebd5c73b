"""How ranks find each other's nodes."""

import socket

import pytest

from models.ranks import interface_towards


def outward():
    """This machine's own address towards others; None on one without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))  # RFC 5737: documentation, nobody's
        except OSError:
            return None
        return route.getsockname()[0]


def test_the_interface_is_the_one_by_which_the_host_is_reached():
    own = outward()
    if own is None:
        pytest.skip("this machine has no network")
    names = {name for _, name in socket.if_nameindex()} - {"lo"}
    assert interface_towards("192.0.2.1", 9) in names
    assert interface_towards(own, 9) in names  # rank 0 itself, though the kernel sends that by the loopback


@pytest.mark.parametrize("address", ["127.0.0.1", "no-such-host.invalid", "::1"])
def test_no_interface_is_named_where_none_can_be_told(address):
    assert interface_towards(address, 9) is None
