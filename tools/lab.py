"""Start JupyterLab with the notebooks and Dask's pane; `make lab` does that.

    python tools/lab.py                                     for people: it opens a browser, or prints the address
    python tools/lab.py --picture docs/images/jupyterlab.png   run a notebook in a browser without a window, and keep what it shows

In the pane, the magnifying glass finds the dashboard of the cluster that the open notebook has started; each button opens a plot of it as a tab.
"""

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 120
"""How long to wait for a server, and for all cells of a notebook."""


def command(root: Path, *options: str) -> list[str]:
    """Return the call that starts JupyterLab in a folder; the administrator of a machine has to allow it."""
    administrator = ["--allow-root"] if os.geteuid() == 0 else []
    return [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={root}", *administrator, *options]


@contextmanager
def served(notebook: Path, folder: Path) -> Iterator[str]:
    """Serve a copy of a notebook without outputs from a folder of its own, and give the address that opens it."""
    book = nbformat.read(notebook, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(book, folder / notebook.name)
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    settings = folder / ".settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(quiet))
    own = {"JUPYTERLAB_SETTINGS_DIR": folder / ".settings", "JUPYTER_RUNTIME_DIR": folder / ".runtime"}
    own |= {"JUPYTER_CONFIG_DIR": folder / ".config", "JUPYTERLAB_WORKSPACES_DIR": folder / ".workspaces"}
    own |= {"IPYTHONDIR": folder / ".ipython", "TMPDIR": folder}
    token = secrets.token_hex(16)
    options = ("--no-browser", "--expose-app-in-browser", "--port=0", f"--IdentityProvider.token={token}")
    with (folder / ".log").open("w") as log:
        server = subprocess.Popen(
            command(folder, *options),
            env=os.environ | {name: str(value) for name, value in own.items()},
            stdout=log,
            stderr=log,
        )
        try:
            yield f"{_address(server, folder)}lab/tree/{notebook.name}?token={token}"
        finally:
            server.terminate()
            server.wait(30)


def _address(server: subprocess.Popen[bytes], folder: Path) -> str:
    deadline = time.monotonic() + SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        for file in (folder / ".runtime").glob("jpserver-*.json"):
            return str(json.loads(file.read_text())["url"])
        time.sleep(0.1)
    raise TimeoutError(f"JupyterLab did not start: {(folder / '.log').read_text()[-2000:]}")
