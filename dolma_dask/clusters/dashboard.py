"""The way to Dask's dashboard from the user's own machine, when the scheduler runs on a node of a cluster."""

import getpass
import os
import socket


def tunnel(link: str) -> str:
    """Return the call of ssh that makes a dashboard visible on the user's machine, through the login node, and the address there."""
    host, _, port = link.partition("://")[2].partition("/")[0].rpartition(":")
    login = os.environ.get("SLURM_SUBMIT_HOST") or socket.gethostname()
    return f"ssh -L {port}:{host}:{port} {getpass.getuser()}@{login}, then http://localhost:{port}/status"
