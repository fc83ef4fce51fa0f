"""Ports of this host."""

from __future__ import annotations

import socket


def port_free(host: str, port: int) -> bool:
    """Whether nobody listens on a local port."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((host, port))
        except OSError:
            return False
    return True
