"""An exchange as a job of its own, for tests and benchmarks of emitters and reducers."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from dolma_dask.engine import Input, Passes, Ran, Task, WorkDir, run_job
from dolma_dask.exchange import Emitter, Exchanged, Limits, Reducer, Shuffle, exchange
from dolma_dask.exchange.staged import DEFAULT
from dolma_dask.journal import Record
from dolma_dask.options.groups import RunOptions
from dolma_dask.results.summary import Summary


class ExchangeJob(Struct, frozen=True):
    """Runs one exchange and collects something of its outcome before the work folder is removed."""

    root: str
    emitter: Emitter
    tasks: Sequence[Task]
    reducer: Reducer
    shards: int
    collect: Callable[[Exchanged], Any]
    shuffle: Shuffle = "files"
    limits: Limits = DEFAULT
    name: str = "test"
    key: str = "key"

    verb: ClassVar[str] = "exchange"
    record: ClassVar[None] = None
    writes: ClassVar[Sequence[str]] = ()
    inputs: ClassVar[Sequence[Input]] = ()

    def outputs(self, known: Record | None, overwrite: bool) -> None:
        """Leave it to the passes."""

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Exchange, then collect."""
        exchanged = yield from exchange(
            work,
            self.emitter,
            self.tasks,
            self.reducer,
            shards=self.shards,
            shuffle=self.shuffle,
            limits=self.limits,
        )
        return Ran(Collected(self.verb, self.root, value=self.collect(exchanged)), {})

    def summarize(self, ran: Ran, known: Record | None) -> "Collected":
        """Return the summary with what was collected."""
        assert isinstance(ran.summary, Collected)
        return ran.summary


class Collected(Summary, frozen=True):
    """Summary of an `ExchangeJob`."""

    value: Any = None


def run_exchange(job: ExchangeJob, options: RunOptions) -> Any:
    """Run an exchange, and return what was collected."""
    return run_job(job, options).value
