"""Ports that belong to one test."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def reserved_port(port: int = 0) -> socket.socket:
    """A socket that has a port and does not listen: who connects is refused. Only who reuses addresses may listen."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((LOOPBACK, port))
    return reserved
