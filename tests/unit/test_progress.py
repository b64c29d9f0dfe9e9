"""What is shown while a stage runs: counts, units, and the display that fits where it runs."""

import io
import sys
import types

import pytest

from dolma_dask import progress
from dolma_dask.progress import make_progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def no_notebook(monkeypatch):
    monkeypatch.setattr(progress, "_in_notebook", lambda: False)


def test_nothing_is_shown_when_disabled_or_idle(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    for shown in (make_progress("tag", 10, 1, False), make_progress("tag", 0, 0)):
        with shown as running:
            running.advance(10, 1)
        assert (running.bytes, running.shards) == (10, 1)
    assert sys.stderr.getvalue() == ""


def test_lines_are_rare_and_end_with_the_total(monkeypatch, no_notebook):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with make_progress("mix", 4_000_000, 4) as running:
        for _ in range(4):
            clock[0] += 6.0
            running.advance(1_000_000, 1)
    assert sys.stderr.getvalue().splitlines() == [
        "mix: 2/4 shards, 2/4 MB, 0.2 MB/s",
        "mix: 4/4 shards, 4/4 MB, 0.2 MB/s",
        "mix: 4/4 shards, 4/4 MB, 0.2 MB/s",
    ]


def test_short_runs_print_no_lines(monkeypatch, no_notebook):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with make_progress("mix", 1, 1) as running:
        running.advance(1, 1)
    assert sys.stderr.getvalue() == ""


def test_little_data_is_shown_in_kilobytes(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    running = progress.Progress("mix", 84_000, 1)
    clock[0] += 2.0
    running.advance(42_000, 0)
    assert running.text() == "mix: 0/1 shard, 42/84 kB, 21.0 kB/s"


def test_bar_in_a_terminal_is_closed_after_an_error(monkeypatch, no_notebook):
    monkeypatch.setattr(sys, "stderr", Terminal())

    def interrupted():
        with make_progress("ragged", 2_000_000, 1200) as running:
            running.advance(1_000_000, 600)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    shown = sys.stderr.getvalue()
    assert "ragged" in shown
    assert "600/1,200 shards" in shown
    assert shown.endswith(("\x1b[?25h", "\n")), "the cursor is there again"


def test_bar_in_a_notebook_is_updated_in_place(monkeypatch):
    shown = []
    display = types.SimpleNamespace(update=lambda page: shown.append(page))
    module = types.SimpleNamespace(HTML=str, display=lambda page, display_id: shown.append(page) or display)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    with make_progress("tag", 100, 2) as running:
        running.advance(50, 1)
    assert "<progress value=0 max=100>" in shown[0]
    assert "<progress value=50 max=100>" in shown[-1]
    assert "1/2 shards" in shown[-1]
