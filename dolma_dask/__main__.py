"""``python -m dolma_dask``, and what the console script calls: imports little before Ctrl-C has its one line."""

import signal
import sys
import threading
from types import FrameType

_LATER_SECONDS = 0.01
"""Until Ctrl-C that fell into the machinery of imports is tried again."""


def entry() -> None:
    """Run the command of this process, and exit with its status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from dolma_dask.cli import main

        status = main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command goes on from here\n")
        status = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to stop
    sys.exit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Stop the command; within the machinery of imports a little later, since it would lose the exception or keep a lock."""
    if frame is None or not frame.f_code.co_filename.startswith("<frozen importlib."):
        raise KeyboardInterrupt
    threading.Timer(_LATER_SECONDS, signal.raise_signal, [number]).start()


if __name__ == "__main__":
    entry()
