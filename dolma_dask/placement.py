"""Default place of work: one after another in this process, in threads of it, or in processes.

`choose` estimates when each of them would end and what it would cost, from the stored bytes that are left and the table `COSTS`. An
estimate may be wrong by a factor of two without harm: it only has to tell a second of work from a minute.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

PROCESS_START = 0.2
"""CPU-seconds of each process before its first byte: compiled kernels are loaded in each."""

PROCESS_FACTOR = 1.05
"""CPU in processes over CPU in one, past their start."""


class Cost(NamedTuple):
    """Measured cost of a verb past its start."""

    cpu: float  # CPU-seconds per MB of stored input, gzip, in one process
    locked: float  # share of them under the interpreter lock, which threads do not gain
    waits: bool = False  # it waits for others more than it computes: threads, however many
    start: float = PROCESS_START
    factor: float = PROCESS_FACTOR


TOKENS = "tokens"
"""Cost of encoding by the tokenizers library, which has threads of its own."""

# `benchmarks.bench_placement` and the same for convert and validate, 275 MB of text (98 MB stored, 28 files), on a quiet machine with two cores.
# CPU: one process, less its start-up. Locked: what the speed of two threads past their start leaves, 2 / speed - 1.
# sign and signals: 1.4 and 2 times the CPU of tag beside them, attach 0.4 (of documents and tables); shares under the lock are taken from tag and convert.
# transform 1.9 times mix beside it, with a function that does little; all that it adds is under the lock.
# mix and dedupe: what blocks of 4 MiB and views of kept rows left of the figures of then.
# Only ratios matter: a slower machine also starts processes more slowly.
COSTS = {
    "download": Cost(0.004, 0.3, waits=True),
    "convert": Cost(0.014, 0.3),
    "tag": Cost(0.021, 0.2),
    "sign": Cost(0.030, 0.2),
    "signals": Cost(0.042, 0.2),
    "attach": Cost(0.009, 0.3),
    "mix": Cost(0.014, 0.3),
    "mix-sort": Cost(0.019, 0.15),  # per MB of the pieces that it reads; of 235 MB of text
    "quantiles-select": Cost(0.004, 0.1),  # per MB of values: 0.002 without groups, 0.005 with 40
    "transform": Cost(0.034, 0.6),
    "dedupe": Cost(0.008, 0.45),
    TOKENS: Cost(0.65, 0.15),  # what `ragged` and `hdf5` make of texts, by the tokenizers library
    # By the fast engine; each process opens the tokenizer and fills the engine's cache of words anew, as each thread does.
    "tokens-fast": Cost(0.037, 0.3, start=0.4, factor=1.05),
    "hdf5": Cost(0.004, 0.3),  # per MB of rows
    "validate": Cost(0.014, 0.35),
    "schema": Cost(0.043, 0.8),  # of 7.5 MB stored; objects of Python all the way
}

OTHER = Cost(0.010, 0.4)
"""Taken for every other verb: passes over keys and attributes."""

TEXT_PER_STORED = 2.8
"""MB of text in a MB of gzip, where `COSTS` were measured."""

THREADS_START = 0.1
"""Seconds and CPU-seconds until threads run: the import of Dask."""

PROCESSES_START = 0.6
"""The same for processes: Dask, and a server that imports the package once and forks them."""

NEAR = 1.1
"""Estimated ends up to this factor after the first are as good; the placement with the least CPU among them is taken."""

NEAR_SECONDS = 0.2
"""So are ends up to so many seconds after it, which nobody sees: threads that save them take as many CPU-seconds more."""

Name = Literal["synchronous", "threads", "processes"]


def cost_of(verb: str | Cost) -> Cost:
    """Return the cost of a verb; that of `OTHER` for one that is not in the table."""
    return verb if isinstance(verb, Cost) else COSTS.get(verb, OTHER)


def dearer(verb: str | Cost, locked: float) -> Cost:
    """Return the cost of a verb that computes more: so many CPU-seconds per MB of text, all of them under the interpreter lock."""
    cost, more = cost_of(verb), locked * TEXT_PER_STORED
    cpu = cost.cpu + more
    return cost._replace(cpu=cpu, locked=(cost.cpu * cost.locked + more) / cpu)


def choose(
    verb: str | Cost,
    sizes: Sequence[int],
    workers: int,
    *,
    may_start: bool = True,
    warm: bool = False,
    isolate: bool = False,
) -> Name:
    """Return where work ends soonest, or nearly so with less CPU.

    Parameters
    ----------
    verb : str or Cost
        Key of `COSTS`, or what the work costs.
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
    cost = cost_of(verb)
    if cost.waits and min(workers, len(sizes)) > 1:
        return "threads"
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
            start + cost.start + cost.factor * spread,
            start + count * cost.start + cost.factor * total,
        )
    soonest = min(wall for wall, _ in ends.values())
    latest = max(NEAR * soonest, soonest + NEAR_SECONDS)
    return min((name for name in ends if ends[name][0] <= latest), key=lambda name: ends[name][1])
