"""Displays while a verb runs: counts, units, phases, and the display that fits where it runs."""

import io
import os
import re
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import nbformat
import pytest

import notebooks
from dolma_dask import metering, progress
from dolma_dask.engine import inputs_of
from dolma_dask.engine.fold import fold
from dolma_dask.io import files
from dolma_dask.options.groups import RunOptions
from dolma_dask.progress import one_display, one_page, progress_of


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def no_notebook(monkeypatch):
    monkeypatch.setattr(progress, "_in_notebook", lambda: False)


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests turn."""
    hands = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: hands[0])
    return hands


@pytest.mark.parametrize(("enabled", "shards"), [(False, 1), (True, 0)])
def test_nothing_is_shown_when_disabled_or_idle(monkeypatch, enabled, shards):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_of("tag", 10, shards, enabled) as running:
        running.advance(10, 1)
    assert (running.bytes, running.shards) == (10, 1)
    assert sys.stderr.getvalue() == ""


class Shown(progress.Progress):
    """A display that a test looks through: `seen` gets each line."""

    every = 0.01
    seen = None

    def show(self):
        self.seen(self)


def compiling_until(shown):
    """Return a stage that compiles until the display has shown it."""

    class Compiling:  # in a function: other processes could not import it
        verb = "read"

        def start(self):
            return ""

        def count(self, piece):
            limit = time.monotonic() + 60
            with metering.compiling():
                while not Path(shown).exists():
                    if time.monotonic() > limit:
                        raise TimeoutError("nothing was shown")
                    time.sleep(0.01)
            return piece.name

    return Compiling()


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes", "cluster"])
def test_the_display_says_that_kernels_are_compiled_anywhere(tmp_path, monkeypatch, no_notebook, scheduler):
    (tmp_path / "a").write_bytes(b"a")
    shown = tmp_path / "shown"

    def look(display):
        if progress.COMPILING in display.text():
            shown.touch()

    monkeypatch.setattr(Shown, "seen", staticmethod(look))
    monkeypatch.setattr(progress, "_kind", lambda: Shown)
    piece = types.SimpleNamespace(name="a", inputs=inputs_of(str(tmp_path), files.list_files(str(tmp_path))))
    options = RunOptions(scheduler=scheduler, workers=1)
    assert fold(compiling_until(str(shown)), [piece], options) == "a"
    assert shown.exists()


def test_compilers_are_seen_as_long_as_they_compile():
    assert not metering.are_compiling()
    with metering.watching_compilers():
        assert not metering.are_compiling()
        with metering.compiling():
            with metering.compiling():  # a kernel that another one calls
                assert metering.are_compiling()
            assert metering.are_compiling()
        assert not metering.are_compiling()


def test_marks_of_killed_processes_are_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(metering.tempfile, "gettempdir", lambda: str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for owner in (str(gone.pid), str(os.getppid()), "nobody"):
        (tmp_path / f"dolma-dask-compiling-{owner}").touch()
    with metering.watching_compilers():
        left = {path.name.rpartition("-")[2] for path in tmp_path.iterdir()}
    assert left == {str(os.getppid()), "nobody", metering.caller()}


def test_a_bar_moves_by_the_kernels_that_are_compiled():
    display = progress.Progress("warm-up")
    display.kernels = 4
    display.begin("warm-up", 0, 2)
    with metering.watching_compilers():
        assert display.part == (0, 2)
        for _ in range(3):
            with metering.compiling():
                shown = display.text()
        assert display.part == (1.5, 2)
        assert f"{progress.COMPILING}, 3 so far" in shown
        with metering.compiling():
            pass
        assert display.part[0] < 2, "not done before it is"
    display.advance(0, 2)
    assert display.part == (2, 2)


def test_lines_come_while_nothing_ends(monkeypatch, no_notebook):
    """A log file shows that the program lives."""
    shown, written = threading.Event(), io.StringIO()
    monkeypatch.setattr(progress._Lines, "every", 0.01)
    monkeypatch.setattr(written, "write", lambda line: (io.StringIO.write(written, line), shown.set()))
    monkeypatch.setattr(sys, "stderr", written)
    with progress_of("mix", 4_000_000, 4):
        assert shown.wait(60)
    assert written.getvalue().splitlines()[0] == "mix: 0/4 shards, 0/4 MB, 0.0 MB/s, 0:00"


def test_short_runs_print_no_lines(monkeypatch, no_notebook):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_of("mix", 1, 1) as running:
        running.advance(1, 1)
    assert sys.stderr.getvalue() == ""


def test_a_line_has_shards_bytes_speed_and_both_times(clock):
    running = progress.Progress("mix")
    running.begin("mix", 84_000, 1)
    clock[0] += 62.0
    running.advance(42_000, 0)
    assert running.text() == "mix: 0/1 shard, 42/84 kB, 0.7 kB/s, 1:02, 1:02 left"
    running.begin("mix-sort", 0, 3)
    clock[0] += 3600
    running.advance(0, 1)
    assert running.text() == "mix, pass 2 (sort): 1/3 tasks, 1:01:02"


def test_bar_in_a_terminal_is_closed_after_an_error(monkeypatch, no_notebook):
    monkeypatch.setattr(sys, "stderr", Terminal())

    def interrupted():
        with progress_of("ragged", 2_000_000, 1200) as running:
            running.advance(1_000_000, 600)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    shown = sys.stderr.getvalue()
    assert "ragged: 600/1,200 shards, 1/2 MB" in shown
    assert shown.endswith(("\x1b[?25h", "\n")), "the cursor is there again"


def test_passes_of_a_verb_share_one_bar(monkeypatch, no_notebook):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with one_display("dedupe"):
        for stage in ("dedupe-scatter", "dedupe"):
            with progress_of(stage, 10, 2) as running:
                running.advance(10, 2)
    shown = sys.stderr.getvalue()
    assert shown.count("\x1b[?25h") == 1
    assert "dedupe, pass 1 (scatter): 0/2 shards" in shown
    assert "dedupe, pass 2: 2/2 tasks" in shown


def test_bar_in_a_notebook_is_updated_in_place(monkeypatch):
    shown = []
    display = types.SimpleNamespace(update=lambda page, raw: shown.append(page))
    module = types.SimpleNamespace(display=lambda page, raw, display_id: shown.append(page) or display)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    with one_page("run <p>.yaml"), one_display("dedupe"):
        for stage, size in (("dedupe-scatter", 100), ("dedupe", 200)):
            with progress_of(stage, size, 2) as running:
                running.advance(50, 1)
                running.show()
                running.advance(0, 1)
    assert "<progress value=0 max=100>" in shown[0]["text/html"]
    assert "<div>dedupe, pass 1 (scatter): 2/2 shards, 0:00</div>" in shown[-2]["text/html"]
    assert "<progress value=50 max=200></progress> " in shown[-2]["text/html"]
    assert shown[-1] == {
        "text/html": "<div class='dolma-progress'>run &lt;p&gt;.yaml: 1 stage</div>",
        "text/plain": "run <p>.yaml: 1 stage",
    }


NOTEBOOK = """
import dolma_dask as dk
here = {{"scheduler": "synchronous", "workers": 1}}
dk.{call}
"""


@pytest.mark.slow
def test_a_stored_notebook_holds_one_line_of_progress_and_no_time(tmp_path):
    """A real kernel: bars of all passes and stages become one line; a failure says how far it came."""
    (tmp_path / "v0/documents").mkdir(parents=True)
    lines = '{"id":"a","text":"some words","source":"s"}\n{"id":"b","text":"some words","source":"s"}\n'
    (tmp_path / "v0/documents/a.jsonl").write_text(lines)
    (tmp_path / "p.yaml").write_text(
        "stages:\n- tag: {dataset: v0, taggers: [char_length_v1]}\n- dedupe: {dataset: v0}\n"
    )
    calls = (
        "run('p.yaml', **here)",
        "run('p.yaml', **here)",
        "dedupe('v0', name='near', how='fuzzy', **here)",
    )
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(NOTEBOOK.format(call=call)) for call in calls]
    )
    notebooks.run_cells(book, str(tmp_path), 120, os.environ)
    shown = [
        [out["data"]["text/plain"] for out in cell.outputs if out.output_type == "display_data"]
        for cell in book.cells
    ]
    assert shown[:2] == [["run p.yaml: 2 stages"], []]
    (line,) = shown[2]
    assert re.fullmatch(r"dedupe: \d+ passes", line)
    assert [cell.outputs[-1].output_type for cell in book.cells] == ["execute_result"] * 3
