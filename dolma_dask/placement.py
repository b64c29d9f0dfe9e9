"""Where work runs when nobody says: one after another in this process, in threads of it, or in processes.

`choose` estimates when each of them would end and what it would cost, from the stored bytes that are left and the table `COSTS`. An
estimate may be wrong by a factor of two without harm: it only has to tell a second of work from a minute.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Literal, NamedTuple

STARTS_PROCESSES: ContextVar[bool] = ContextVar("starts_processes", default=False)
"""Whether work may go to processes unasked: True for commands, False for Python, where a script without a ``__main__`` guard cannot start any."""


class Cost(NamedTuple):
    """Measured cost of a verb past its start."""

    cpu: float  # CPU-seconds per MB of stored input, gzip, in one process
    locked: float  # share of these under the interpreter lock or else not gained by threads


# CPU: one process on 275 MB of text in 28 .jsonl.gz files (102.6 MB stored), less the same command on 200 documents, median of three, two
# processors of an EPYC (Zen 5). Locked: the square of the share of samples in which the one thread held the interpreter lock (two threads that
# need a lock for a share g of their time end after (1 + g * g) / 2). Only ratios matter: a slower machine starts processes more slowly too.
COSTS = {
    "convert": Cost(0.025, 0.4),
    "tag": Cost(0.022, 0.25),
    "mix": Cost(0.018, 0.35),
    "dedupe": Cost(0.012, 0.5),
    "ragged": Cost(0.75, 0.15),
    "hdf5": Cost(0.75, 0.15),
    "validate": Cost(0.010, 0.4),
}

OTHER = Cost(0.010, 0.4)
"""Taken for every other verb: passes over keys and attributes."""

THREADS_START = 0.1
"""Seconds and CPU-seconds until threads run: the import of Dask."""

PROCESSES_START = 0.6
"""The same for processes: Dask, and a server that imports the package once and forks them."""

PROCESS_START = 0.2
"""CPU-seconds of each process before its first byte: compiled kernels are loaded in each."""

PROCESS_FACTOR = 1.05
"""CPU in processes over CPU in one, past their start."""

NEAR = 1.1
"""Estimated ends up to this factor after the first are as good; the placement with the least CPU among them is taken."""

Name = Literal["synchronous", "threads", "processes"]


def choose(
    verb: str,
    sizes: Sequence[int],
    workers: int,
    *,
    may_start: bool,
    warm: bool = False,
    isolate: bool = False,
) -> Name:
    """Return where work ends soonest, or nearly so with less CPU.

    Parameters
    ----------
    verb : str
        Key of `COSTS`.
    sizes : sequence of int
        Stored bytes of each task.
    workers : int
        Processors to use.
    may_start : bool
        Whether processes may be started.
    warm : bool
        Whether the server that forks them runs already.
    isolate : bool
        Whether the work should not share this process, because it may have killed one.
    """
    if isolate and may_start:
        return "processes"
    cost = COSTS.get(verb, OTHER)
    total = cost.cpu * sum(sizes) / 1e6
    count = min(workers, len(sizes))
    if count < 2:
        return "synchronous"
    spread = max(total / count, cost.cpu * max(sizes) / 1e6)
    ends: dict[Name, tuple[float, float]] = {
        "synchronous": (total, total),
        "threads": (THREADS_START + total * cost.locked + spread * (1 - cost.locked), THREADS_START + total),
    }
    if may_start:
        start = THREADS_START if warm else PROCESSES_START
        ends["processes"] = (
            start + PROCESS_START + PROCESS_FACTOR * spread,
            start + count * PROCESS_START + PROCESS_FACTOR * total,
        )
    soonest = min(wall for wall, _ in ends.values())
    return min((name for name in ends if ends[name][0] <= NEAR * soonest), key=lambda name: ends[name][1])
