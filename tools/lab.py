"""Start JupyterLab with the notebooks and Dask's pane; `make lab` does that.

    python tools/lab.py                                     for people: it opens a browser, or prints the address
    python tools/lab.py --picture docs/images/jupyterlab.png   run a notebook in a browser without a window, and keep what it shows

In the pane, the magnifying glass finds the dashboard of the cluster that the open notebook has started; each button opens a plot of it as a tab.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 240
"""Seconds to wait for a server, and for all cells of a notebook."""


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
    own |= {"JUPYTER_DATA_DIR": folder / ".data", "IPYTHONDIR": folder / ".ipython", "TMPDIR": folder}
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
            server.wait(SECONDS)


def _address(server: subprocess.Popen[bytes], folder: Path) -> str:
    deadline = time.monotonic() + SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        for file in (folder / ".runtime").glob("jpserver-*.json"):
            with suppress(ValueError):  # half of it is written
                return str(json.loads(file.read_text())["url"])
        time.sleep(0.1)
    raise TimeoutError(f"JupyterLab did not start: {(folder / '.log').read_text()[-2000:]}")


def look(browser: Any, address: str) -> None:
    """Open a notebook beside Dask's pane, run all cells, connect the pane to the notebook's cluster, open two plots of it, and save the notebook."""
    browser.open(address, width=1600)
    browser.wait_for("window.jupyterapp?.started")
    browser.run("jupyterapp.restored")
    browser.wait_for("window.book = [...jupyterapp.shell.widgets('main')].find(widget => widget.context)")
    browser.wait_for("book.context.sessionContext.session?.kernel?.status === 'idle'")
    browser.run("for (const id of ['dask-dashboard-launcher', book.id]) jupyterapp.shell.activateById(id)")
    browser.run(
        "void jupyterapp.commands.execute('notebook:run-all-cells').then(good => {window.ran = {good}})"
    )
    browser.wait_for("window.ran", seconds=SECONDS)
    browser.run("document.querySelector('.dask-URLInput jp-button').click()")
    for name, place in (("Compute Time Per Key", "split-right"), ("Workers Memory", "split-bottom")):
        browser.wait_for(f"document.querySelector({BUTTON % name!r})")
        browser.run(f"document.querySelector({BUTTON % name!r}).click()")
        browser.wait_for(
            f"window.plot = [...jupyterapp.shell.widgets('main')].find(widget => widget.title.label === '{name}')"
        )
        browser.run(
            f"jupyterapp.shell.add(plot, 'main', {{mode: '{place}', ref: (window.upper ?? book).id}}); void (window.upper = plot)"
        )
        browser.wait_for("plot.node.querySelector('iframe')?.src")
    browser.run("book.context.save()")


SHOWN = "book.content.widgets.findIndex(cell => cell.model.getMetadata('tags')?.includes('gallery'))"
BUTTON = ".dask-DashboardListing-item button[value='%s']"


def take_picture(notebook: Path, to: Path) -> None:
    """Run a notebook, and keep a picture of JupyterLab with a figure of it in view."""
    sys.path.insert(0, str(ROOT / "tests/e2e"))
    from browser import Browser

    with tempfile.TemporaryDirectory() as folder, served(notebook, Path(folder)) as address:
        browser = Browser(Path(folder) / ".chromium")
        try:
            look(browser, address)
            browser.run(f"book.content.scrollToItem({SHOWN}, 'start')")
            time.sleep(3)  # plots of the dashboard move once a second
            to.write_bytes(browser.picture())
        finally:
            browser.close()


def main() -> None:
    """Start JupyterLab, or take its picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--picture", type=Path, help="PNG to write; needs Chromium")
    options = parser.parse_args()
    if options.picture:
        take_picture(ROOT / "notebooks/01_look_at_a_corpus.ipynb", options.picture)
    else:
        first = "--LabApp.default_url=/lab/tree/notebooks/00_first_steps.ipynb"
        words = command(ROOT, first, "-y")  # Ctrl-C ends it without a question
        os.execv(words[0], words)


if __name__ == "__main__":
    main()
