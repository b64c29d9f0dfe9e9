"""A server of this package's own that forks processes.

`multiprocessing` keeps one server for all. With that one, processes that the user starts from it would inherit our variables and be deaf to
Ctrl-C; ours would lack what we import, if the user's were first; and a fork of this process could start none (`ChildProcessError`). So the way
to start a process is bound to another server here. Cost: a process, started once.
"""

import os
import time
from contextlib import suppress
from multiprocessing import context, forkserver, popen_forkserver
from types import FunctionType, SimpleNamespace
from typing import Any

METHOD = "dolma_dask"
"""Name of its way to start processes, as `multiprocessing.get_context` takes it."""

served: set[str] = set()
"""Variables of the server's environment; empty: none runs. It ends with this process."""

_server: Any = forkserver.ForkServer()


def start(modules: list[str]) -> None:
    """Start the server, with some modules imported, unless it runs."""
    if not served:
        _server.set_forkserver_preload(modules)
        _server.ensure_running()
        served.update(os.environ)


def wait_for_end() -> None:
    """Wait for the end of a server that was killed, a second at most: as long as it is dying it would be asked for processes."""
    if not served:
        return
    until = time.monotonic() + 1
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT  # the next start takes note of its end
    with suppress(ChildProcessError):  # somebody else has taken note
        while not os.waitid(os.P_PID, _server._forkserver_pid, look) and time.monotonic() < until:
            time.sleep(0.01)


def _forget() -> None:
    """Leave the server to the process that this one is a fork of."""
    global _server
    if served:
        os.close(_server._forkserver_alive_fd)  # it would live on for this process
        served.clear()
    _server = forkserver.ForkServer()


os.register_at_fork(after_in_child=_forget)


def _connect(descriptors: list[int]) -> Any:
    return _server.connect_to_new_process(descriptors)


def _on_our_server(launch: Any) -> Any:
    """Return how a process is launched, on our server in place of that of `multiprocessing`."""
    ours = SimpleNamespace(connect_to_new_process=_connect, read_signed=forkserver.read_signed)
    return FunctionType(launch.__code__, {**launch.__globals__, "forkserver": ours})


class _Popen(popen_forkserver.Popen):
    _launch = _on_our_server(vars(popen_forkserver.Popen)["_launch"])


class _Process(context.ForkServerProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802  the name is that of `multiprocessing`
        return _Popen(process_obj)


class _Context(context.ForkServerContext):
    _name = METHOD
    Process = _Process


vars(context)["_concrete_contexts"][METHOD] = _Context()
