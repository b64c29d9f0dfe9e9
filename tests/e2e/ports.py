"""Ports of this machine for servers of tests, which may be stopped and started again: nobody else gets them meanwhile."""

import random
import socket

FIRST, LAST, BLOCK = 20_000, 32_000, 8
"""Ports below those that systems give to whoever asks for any: else an outgoing connection of another process, or of the client that looks for the
server, may have the server's."""

_held: list[socket.socket] = []


def held_ports(count: int) -> list[int]:
    """Return free ports, fewer than `BLOCK`, that are of this process until it ends: it keeps the first of their block, which whoever calls this asks for."""
    for first in random.sample(range(FIRST, LAST, BLOCK), (LAST - FIRST) // BLOCK):
        guard, *others = (_bound(first + number) for number in range(1 + count))
        for each in filter(None, others):
            each.close()
        if guard is not None and None not in others:
            _held.append(guard)
            return [*range(first + 1, first + 1 + count)]
        if guard is not None:
            guard.close()
    raise OSError(f"no {1 + count} free ports in a row from {FIRST} to {LAST}")


def _bound(port: int) -> socket.socket | None:
    """Return a socket that has a port; None if another has it."""
    one = socket.socket()
    try:
        one.bind(("", port))
    except OSError:
        one.close()
        return None
    return one
