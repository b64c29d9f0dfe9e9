"""A notebook in JupyterLab, in a real browser, beside Dask's pane; see `browser` and tools/lab.py."""

import importlib.util
import struct
from urllib.parse import urlsplit

import lab
import nbformat
import pytest
from browser import IN_BROWSER, Browser

from dolma_dask.testing.commands import wait_until

pytestmark = [
    *IN_BROWSER,
    pytest.mark.services,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("jupyterlab", "dask_labextension"))),
        reason="no JupyterLab with Dask's pane; install dolma-dask[notebook]",
    ),
]


def test_a_notebook_runs_beside_the_pane(tmp_path, monkeypatch, startup):
    monkeypatch.setenv("PYTHONSTARTUP", startup)
    notebook = lab.ROOT / "notebooks/01_look_at_a_corpus.ipynb"
    with lab.served(notebook, tmp_path) as address:
        browser = Browser(tmp_path / ".chromium")
        try:
            lab.look(browser, address)
            assert browser.run("window.ran.good")
            shown = browser.run("document.querySelector('.dask-URLInput input').value")
            picture = browser.picture()
            wait_until(
                lambda: (
                    browser.run("1")
                    and [url for url in browser.requests() if url.startswith(f"{shown}individual-")]
                ),
                "the pane to ask Dask for its plots",
            )
            asked = [url for url in browser.requests() if not url.startswith(("data:", "blob:"))]
        finally:
            browser.close()
    assert shown.startswith("http://127.0.0.1:")
    assert {urlsplit(url).hostname for url in asked} <= {"localhost", "127.0.0.1"}
    assert struct.unpack(">II", picture[16:24]) == (1600, 900)
    cells = nbformat.read(tmp_path / notebook.name, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert code[-1].outputs
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
