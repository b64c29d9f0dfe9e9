"""Display of how far a stage is: a bar in a terminal and in a notebook, plain lines elsewhere."""

import sys
import time
from typing import Any, Self

LINE_SECONDS = 10.0
"""How often a plain line is printed at most."""

_LEAST_MB = 1_000_000
"""Bytes in all from which on they are shown in whole MB."""


class Progress:
    """Counts finished work of so many stored input bytes and shards; this class shows nothing. Used as a context manager."""

    def __init__(self, verb: str, total_bytes: int, total_shards: int) -> None:
        self.verb = verb
        self.total_bytes = total_bytes
        self.total_shards = total_shards
        self.bytes = 0
        self.shards = 0
        self.started = time.monotonic()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def advance(self, stored_bytes: int, shards: int) -> None:
        """Count finished work, failed shards included."""
        self.bytes += stored_bytes
        self.shards += shards
        self.show()

    def text(self) -> str:
        """Return the line that says how far it is; MB of stored bytes, or kB where there are few."""
        seconds = max(time.monotonic() - self.started, 1e-3)
        scale, unit = (1e6, "MB") if self.total_bytes >= _LEAST_MB else (1e3, "kB")
        return (
            f"{self.verb}: {self.shards:,}/{self.total_shards:,} {'shard' if self.total_shards == 1 else 'shards'}, "
            f"{self.bytes / scale:,.0f}/{self.total_bytes / scale:,.0f} {unit}, {self.bytes / scale / seconds:,.1f} {unit}/s"
        )

    def open(self) -> None:
        """Begin to show."""

    def show(self) -> None:
        """Show what has been counted."""

    def close(self) -> None:
        """Show the end."""


def make_progress(verb: str, total_bytes: int, shards: int, enabled: bool = True) -> Progress:
    """Return the progress display that fits where the program runs; one that is not `enabled` shows nothing."""
    return _kind(enabled and shards > 0)(verb, total_bytes, shards)


def _kind(enabled: bool) -> type[Progress]:
    if not enabled:
        return Progress
    if _in_notebook():
        return _Notebook
    return _Terminal if sys.stderr.isatty() else _Lines


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class _Lines(Progress):
    _shown = 0.0

    def show(self) -> None:
        now = time.monotonic()
        if now - (self._shown or self.started) >= LINE_SECONDS:
            self._shown = now
            sys.stderr.write(self.text() + "\n")

    def close(self) -> None:
        if self._shown:
            sys.stderr.write(self.text() + "\n")


class _Terminal(Progress):
    def open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[shards]} shards"),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(self.verb, total=self.total_bytes, shards=self._shards())
        self._bar.start()

    def _shards(self) -> str:
        return f"{self.shards:,}/{self.total_shards:,}"

    def show(self) -> None:
        self._bar.update(self._task, completed=self.bytes, shards=self._shards())

    def close(self) -> None:
        self._bar.stop()


class _Notebook(Progress):
    def open(self) -> None:
        from IPython.display import HTML, display

        self._html: Any = HTML
        self._display: Any = display(self._page(), display_id=True)

    def _page(self) -> Any:
        return self._html(
            f"<progress value={self.bytes} max={max(self.total_bytes, 1)}></progress> {self.text()}"
        )

    def show(self) -> None:
        self._display.update(self._page())

    def close(self) -> None:
        self.show()
