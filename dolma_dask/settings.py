"""What the way of calling decides: the command line runs on a LocalCluster, Python calls in threads, unless told otherwise."""

from contextvars import ContextVar

DEFAULT_SCHEDULER: ContextVar[str] = ContextVar("default_scheduler", default="threads")
"""Scheduler of a verb when none is asked for, no client is active and Dask's configuration names none.

Threads from Python, because a script without a ``__main__`` guard cannot start processes.
"""
