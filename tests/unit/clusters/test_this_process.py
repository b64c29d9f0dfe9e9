"""Dask is imported for its settings only where there are some."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "text, is_loaded",
    [("# jobqueue:\n#   slurm:\n\n  # more\n", False), ("# comment\nscheduler: threads\n", True)],
)
def test_files_of_comments_are_no_settings(tmp_path, monkeypatch, text, is_loaded):
    folder = tmp_path / ".config/dask"
    folder.mkdir(parents=True)
    (folder / "labextension.yaml").write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path))
    code = "import sys\nfrom dolma_dask.clusters.this_process import configured\nprint(configured('scheduler'), 'dask' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["threads" if is_loaded else "None", str(is_loaded)]
