"""Display of how far a verb is: a bar in a terminal and in a notebook, a line every half minute elsewhere.

A thread shows the counts twice a second, so that the clock goes on while no task ends. The passes of a verb share one display; in a notebook the
stages of a pipeline do so too, each pass that is done is a line above the bar, and what is left at the end is one line without times, so that a
stored notebook holds nothing else.
"""

import html
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from dolma_dask.display import counted
from dolma_dask.metering import are_compiling, seen_compilations, watching_compilers

LINE_SECONDS = 30.0
"""Seconds between two plain lines."""

BAR_SECONDS = 0.5
"""Seconds between two moves of a bar."""

COMPILING = "compiling kernels (first run only)"

_MIN_MB = 1_000_000
"""Bytes in all from which on they are shown in whole MB."""

MARK = "dolma-progress"
"""Class of the display in a notebook, by which tools know it."""

_BAR = 20

_MAX_DONE = 6
"""Lines of finished passes above the bar of a notebook; the others are counted."""


class Progress:
    """Counts finished work of so many stored input bytes and shards, pass by pass; this class shows nothing."""

    every = 0.0
    """Seconds between two times that it is shown; 0: never."""

    kernels = 0
    """Kernels that are to be compiled, about, where that is all the work; 0: nobody knows."""

    def __init__(self, verb: str) -> None:
        self.verb = self._title = verb
        self.total_bytes = self.total_shards = self.bytes = self.shards = self._passes = 0
        self.started = self._pass_started = time.monotonic()
        self._stack = ExitStack()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show_on, name="progress", daemon=True)

    def begin(self, stage: str, total_bytes: int, total_shards: int) -> None:
        """Begin a pass: count from 0 to these totals."""
        if self._passes:
            self.turn()
        self._passes += 1
        name = stage.removeprefix(self.verb).strip("-")
        if stage != self.verb or self._passes > 1:
            self._title = f"{self.verb}, pass {self._passes}{f' ({name})' if name else ''}"
        self.total_bytes, self.total_shards = total_bytes, total_shards
        self.bytes = self.shards = 0
        self._pass_started = time.monotonic()
        if self.every and self._passes == 1:
            self._stack.enter_context(watching_compilers())
            self.open()
            self._thread.start()

    @property
    def part(self) -> tuple[float, int]:
        """Work done, and all of it: in bytes, or in shards where there are none; of a pass that compiles `kernels` at least their share."""
        if self.total_bytes:
            return self.bytes, self.total_bytes
        total = max(self.total_shards, 1)
        if not self.kernels:
            return self.shards, total
        compiled = min(seen_compilations() / self.kernels, 0.99)
        return max(self.shards, int(compiled * total * 100) / 100), total

    def end(self) -> None:
        """Show the end of the last pass."""
        if self._thread.is_alive():
            self._ended.set()
            self._thread.join()
            self._stack.close()
            self.close()

    def advance(self, stored_bytes: int, shards: int) -> None:
        """Count finished work, failed shards included."""
        self.bytes += stored_bytes
        self.shards += shards

    def text(self) -> str:
        """Return the line that says how far it is; MB of stored bytes, or kB where there are few."""
        now, done, total = time.monotonic(), self.bytes, self.total_bytes
        scale, unit = (1e6, "MB") if total >= _MIN_MB else (1e3, "kB")
        speed = done / scale / max(now - self._pass_started, 1e-3)
        parts = [f"{self._title}: {self._counted()}"]
        if total:
            parts.append(f"{done / scale:,.0f}/{total / scale:,.0f} {unit}")
        compiles = are_compiling()
        if compiles:
            parts.append(f"{COMPILING}, {seen_compilations():,} so far")
        elif total:
            parts.append(f"{speed:,.1f} {unit}/s")
        parts.append(_clock(now - self.started))
        if 0 < done < total and not compiles:
            parts.append(f"{_clock((total - done) / scale / speed)} left")
        return ", ".join(parts)

    def _counted(self) -> str:
        noun = "task" if self._passes > 1 or not self.total_bytes else "shard"
        return f"{self.shards:,}/{counted(self.total_shards, noun)}"

    def _show_on(self) -> None:
        while not self._ended.wait(self.every):
            with suppress(OSError, ValueError):  # nobody can see it
                self.show()

    def open(self) -> None:
        """Begin to show."""

    def turn(self) -> None:
        """Show that a pass is done; another one begins."""

    def show(self) -> None:
        """Show what has been counted, now and then."""

    def close(self) -> None:
        """Show the end."""


class _Lines(Progress):
    every = LINE_SECONDS

    def show(self) -> None:
        sys.stderr.write(self.text() + "\n")


class _Terminal(Progress):
    every = BAR_SECONDS

    def open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            BarColumn(_BAR),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            auto_refresh=False,
        )
        self._task = self._bar.add_task(self.text())
        self._bar.start()

    def show(self) -> None:
        self._bar.update(
            self._task,
            completed=self.part[0],
            total=self.part[1],
            description=self.text(),
            refresh=True,
        )

    def close(self) -> None:
        self.show()
        self._bar.stop()


class _Notebook(Progress):
    every = BAR_SECONDS

    def open(self) -> None:
        self._page = _page.get() or _Page()
        self.show()

    def turn(self) -> None:
        self._page.done.append(
            f"{self._title}: {self._counted()}, {_clock(time.monotonic() - self._pass_started)}"
        )

    def show(self) -> None:
        value, most = self.part
        self._page.show(self.text(), f"<progress value={value} max={most}></progress> ")

    def close(self) -> None:
        self.turn()
        self._page.verbs += 1
        if self._page is not _page.get():
            self._page.end(self._outcome())

    def _outcome(self) -> str:
        """Return the line that stays."""
        if self.shards < self.total_shards:
            return f"{self._title}: ended after {self._counted()}"
        passes, shards = counted(self._passes, "pass", "passes"), counted(self.total_shards, "shard")
        return f"{self.verb}: {passes if self._passes > 1 else shards}"


class _Page:
    """A display of a notebook: a line for each pass that is done, and the bar of the present one."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.verbs = 0  # that have ended
        self._display: Any = None

    def show(self, text: str, bar: str = "") -> None:
        """Show the present line below those that are done."""
        hidden = len(self.done) - _MAX_DONE
        above = [f"and {hidden:,} before", *self.done[-_MAX_DONE:]] if hidden > 0 else self.done
        lines = "".join(f"<div>{html.escape(line)}</div>" for line in above)
        self._put(
            {"text/html": f"<div class='{MARK}'>{lines}{bar}{html.escape(text)}</div>", "text/plain": text}
        )

    def end(self, text: str) -> None:
        """Leave one line; nothing if nothing was shown."""
        if self._display is not None:
            self.done = []
            self.show(text)

    def _put(self, page: dict[str, str]) -> None:
        from IPython.display import display

        if self._display is None:
            self._display = display(page, raw=True, display_id=True)
        else:
            self._display.update(page, raw=True)


_page: ContextVar[_Page | None] = ContextVar("notebook_page", default=None)


@contextmanager
def one_page(title: str) -> Iterator[None]:
    """Let all verbs that run in the block share one display of a notebook; elsewhere each has its own."""
    page = _Page()
    token = _page.set(page)
    try:
        yield
    finally:
        _page.reset(token)
        page.end(f"{title}: {counted(page.verbs, 'stage')}")


class _Shared:
    """The display of all passes of a verb, opened by the first that has something to show."""

    def __init__(self, verb: str, stack: ExitStack) -> None:
        self._verb, self._stack = verb, stack
        self._open: Progress | None = None

    def get(self, enabled: bool) -> Progress:
        if not enabled:
            return Progress(self._verb)
        if self._open is None:
            self._open = _kind()(self._verb)
            self._stack.callback(self._open.end)
        return self._open


_shared: ContextVar[_Shared | None] = ContextVar("shared_progress", default=None)


@contextmanager
def one_display(verb: str) -> Iterator[None]:
    """Let everything that runs in the block share one display; inside of such a block another one changes nothing."""
    if _shared.get() is not None:
        yield
        return
    with ExitStack() as stack:
        token = _shared.set(_Shared(verb, stack))
        try:
            yield
        finally:
            _shared.reset(token)


@contextmanager
def progress_of(stage: str, total_bytes: int, shards: int, enabled: bool = True) -> Iterator[Progress]:
    """Show how far a pass is, in the way that fits where the program runs; nothing if it is not `enabled` or has nothing to do."""
    with one_display(stage):
        shared = _shared.get()
        assert shared is not None
        progress = shared.get(enabled and shards > 0)
        progress.begin(stage, total_bytes, shards)
        yield progress


def _kind() -> type[Progress]:
    if _in_notebook():
        return _Notebook
    return _Terminal if sys.stderr.isatty() else _Lines


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _clock(seconds: float) -> str:
    """Write a duration as ``0:07``, ``12:34`` or ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
