"""SIGTERM, as batch systems send it before the end, stops a command as Ctrl-C does: its jobs are cancelled, what is finished is kept."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block on SIGTERM, unless somebody else takes care of it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def stopped(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stopped)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
