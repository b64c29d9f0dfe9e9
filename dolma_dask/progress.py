"""How far a stage is: a bar in a terminal and in a notebook, plain lines elsewhere."""

import sys
import time
from typing import Any, Protocol

LINE_SECONDS = 10.0
"""How often a plain line is printed at most."""


class Progress(Protocol):
    """Told about finished work; used as a context manager."""

    def advance(self, stored_bytes: int, shards: int) -> None:
        """Count finished work."""

    def close(self) -> None:
        """Show the end."""


def make_progress(verb: str, total_bytes: int, shards: int, enabled: bool = True) -> Progress:
    """Return the progress display that fits where the program runs.

    Parameters
    ----------
    verb : str
        Shown before the bar.
    total_bytes, shards : int
        Stored input bytes and number of shards that are to be done.
    enabled : bool
        False shows nothing.
    """
    if not enabled or not shards:
        return _Silent()
    if _in_notebook():
        return _Notebook(verb, total_bytes, shards)
    return _Terminal(verb, total_bytes, shards) if sys.stderr.isatty() else _Lines(verb, total_bytes, shards)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class _Silent:
    def advance(self, stored_bytes: int, shards: int) -> None:
        pass

    def close(self) -> None:
        pass


class _Counting:
    def __init__(self, verb: str, total_bytes: int, shards: int) -> None:
        self.verb = verb
        self.total_bytes = total_bytes
        self.total_shards = shards
        self.bytes = 0
        self.shards = 0
        self.started = time.monotonic()

    def advance(self, stored_bytes: int, shards: int) -> None:
        self.bytes += stored_bytes
        self.shards += shards
        self.show()

    def show(self) -> None:
        raise AssertionError("shown by the subclasses")

    def text(self) -> str:
        seconds = max(time.monotonic() - self.started, 1e-3)
        return (
            f"{self.verb}: {self.shards:,}/{self.total_shards:,} shards, {self.bytes / 1e6:,.0f}/{self.total_bytes / 1e6:,.0f} MB, "
            f"{self.bytes / 1e6 / seconds:,.1f} MB/s"
        )


class _Lines(_Counting):
    _shown = 0.0

    def show(self) -> None:
        now = time.monotonic()
        if now - (self._shown or self.started) >= LINE_SECONDS:
            self._shown = now
            sys.stderr.write(self.text() + "\n")

    def close(self) -> None:
        if self._shown:
            sys.stderr.write(self.text() + "\n")


class _Terminal(_Counting):
    def __init__(self, verb: str, total_bytes: int, shards: int) -> None:
        super().__init__(verb, total_bytes, shards)
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
        self._task = self._bar.add_task(verb, total=total_bytes, shards=f"0/{shards:,}")
        self._bar.start()

    def show(self) -> None:
        self._bar.update(self._task, completed=self.bytes, shards=f"{self.shards:,}/{self.total_shards:,}")

    def close(self) -> None:
        self._bar.stop()


class _Notebook(_Counting):
    def __init__(self, verb: str, total_bytes: int, shards: int) -> None:
        super().__init__(verb, total_bytes, shards)
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
