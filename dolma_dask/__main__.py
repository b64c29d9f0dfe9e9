"""``python -m dolma_dask``, and what the console script calls: imports little before Ctrl-C has its one line."""

import _thread
import gc
import os
import signal
import sys
import time
from types import FrameType

_LATER_SECONDS = 0.01
"""Until Ctrl-C is tried again that fell into the machinery of imports, or into a callback that nothing can leave."""

_SAME_SECONDS = 0.1
"""A Ctrl-C so soon after another is the same one, such as a key that is held down: what it stops is not left half stopped."""

_stopped_at = float("-inf")
"""Time of the last Ctrl-C that stops the command, or is the same one still."""

_ending = False
"""The command has nothing left to stop."""


def entry() -> None:
    """Run the command of this process, and exit with its status."""
    global _ending
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _not_lost
    # NumPy would start a thread for each processor, for products of large matrices, which no command makes
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        gc.disable()  # imports make many objects and free few
        from dolma_dask.cli import import_called, main

        import_called(sys.argv[1:])
        gc.freeze()  # they stay: no later search for cycles looks at them, nor the one at the end
        gc.enable()
        status = main()
        _ending = True
    except KeyboardInterrupt:
        _ending = True  # Python looks for signals at calls, so that none comes before this
        sys.stderr.write("interrupted; run the same command again\n")
        # Ctrl-C in code that an import makes of a text, as of named tuples, leaves a mark by which `python -m` would end by the signal: this takes it away
        exec("")
        status = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Stop the command; within the machinery of imports a little later, since it would lose the exception or keep a lock."""
    global _stopped_at
    if time.monotonic() - _stopped_at < _SAME_SECONDS:
        _stopped_at = time.monotonic()
        return
    if _ending:
        return
    if _loses(frame):
        _interrupt_later()
        return
    _stopped_at = time.monotonic()
    raise KeyboardInterrupt


def _loses(frame: FrameType | None) -> bool:
    """Tell whether exceptions are lost here: in the machinery of imports, or where this Ctrl-C comes before what put it off has returned."""
    if frame and frame.f_code.co_filename.startswith("<frozen importlib."):
        return True
    while frame and frame.f_code is not _interrupt_later.__code__:
        frame = frame.f_back
    return frame is not None


def _interrupt_later() -> None:
    # a thread of threading would wait for its start, and take locks that this one may hold
    _thread.start_new_thread(_interrupt_again, ())


def _interrupt_again() -> None:
    time.sleep(_LATER_SECONDS)
    signal.raise_signal(signal.SIGINT)


def _not_lost(unraisable: "sys.UnraisableHookArgs") -> None:
    """Stop the command after a callback, such as that of a weak reference, which Ctrl-C could not leave."""
    global _stopped_at
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
    elif signal.getsignal(signal.SIGINT) is _interrupt:
        _stopped_at = float("-inf")
        _interrupt_later()


if __name__ == "__main__":
    entry()
