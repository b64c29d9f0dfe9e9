"""What a job is made of: the steps that its passes yield, and what it says of itself. `dolma_dask.engine.job` does them."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from msgspec import Struct

from dolma_dask.engine.plan import Plan, Stage, Task
from dolma_dask.engine.runs import Ran
from dolma_dask.engine.workdir import WorkDir
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import Input
from dolma_dask.journal import Record
from dolma_dask.options.groups import RunOptions
from dolma_dask.results.summary import Summary


class Pass(Struct, frozen=True):
    """Tasks whose outputs and journal lie in the work folder; answered with its `Ran`."""

    stage: Stage
    tasks: Sequence[Task]
    reads: Sequence[Record] = ()  # of earlier passes, whose staging files it reads
    max_bad_fraction: float = 1.0
    quarantine: str = ""  # folder of bad records below `_quarantine`, if it is not the verb's
    notes: tuple[str, ...] = ()

    def plan(self, work: WorkDir) -> Plan:
        """Return it as a plan."""
        return Plan(
            stage=self.stage,
            root=work.url,
            tasks=self.tasks,
            params={},
            writes=("",),
            is_staging=True,
            max_bad_fraction=self.max_bad_fraction,
            quarantine=files.join(work.root, f"{layout.QUARANTINE}/{self.quarantine or work.verb}"),
            notes=self.notes,
        )


class Gather(Struct, frozen=True):
    """Tasks that only read; answered with their results in order."""

    stage: Any
    tasks: Sequence[Task]


class Announce(Struct, frozen=True):
    """A record for the journal of the job's verb, on disk before the next step."""

    record: Record
    root: str = ""  # of another job that has begun; empty: of this one


class Free(Struct, frozen=True):
    """Records of a pass whose staging files no later pass reads."""

    stage_verb: str
    records: Sequence[Record]


Step = Plan | Pass | Gather | Announce | Free | Callable[[RunOptions], Any]
"""A plan writes below the job's root with the verb's own journal; it is answered with its `Ran`. A function is called in this process, and answered with
what it returns.
"""

Passes = Generator[Step, Any, Ran]

S_co = TypeVar("S_co", bound=Summary, covariant=True)


class Job(Protocol[S_co]):
    """A verb whose result depends on all shards."""

    @property
    def verb(self) -> str:
        """Name of the verb, and of its journal."""
        ...

    @property
    def root(self) -> str:
        """Root of what it writes."""
        ...

    @property
    def name(self) -> str:
        """Name of what is made: jobs of one verb and name below one root exclude each other; empty: it needs no work folder."""
        ...

    @property
    def key(self) -> str:
        """Digest of what was requested."""
        ...

    @property
    def inputs(self) -> Sequence[Input]:
        """All files that the result depends on."""
        ...

    @property
    def record(self) -> str | None:
        """Unit of the dataset-wide record, which is valid under `key` while the inputs are the same; None: the job has none."""
        ...

    @property
    def writes(self) -> Sequence[str]:
        """Prefixes of the files that the dataset-wide record names."""
        ...

    def outputs(self, known: Record | None, overwrite: bool) -> Plan | None:
        """Return the plan of what must exist; None: something is missing that no plan tells. Refuse what is in the way.

        Parameters
        ----------
        known : Record or None
            The dataset-wide record, if it is valid.
        overwrite : bool
            Whether files that the verb did not make are replaced.
        """
        ...

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Make what is missing, and return the outcome of the last plan."""
        ...

    def summarize(self, ran: Ran, known: Record | None) -> S_co:
        """Return the summary of a run; `known` is the dataset-wide record as it is now."""
        ...


class MapJob(Struct, frozen=True):
    """A plan alone as a job without work folder, so that it can share a reading with others."""

    plan: Plan

    name: ClassVar[str] = ""
    key: ClassVar[str] = ""
    inputs: ClassVar[Sequence[Input]] = ()
    record: ClassVar[None] = None
    writes: ClassVar[Sequence[str]] = ()

    @property
    def verb(self) -> str:
        """Name of the verb."""
        return self.plan.verb

    @property
    def root(self) -> str:
        """Root of what it writes."""
        return self.plan.root

    def outputs(self, known: Record | None, overwrite: bool) -> Plan:
        """Return the plan."""
        return self.plan

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Run the plan."""
        ran: Ran = yield self.plan
        return ran

    def summarize(self, ran: Ran, known: Record | None) -> Summary:
        """Return the summary of the run."""
        return ran.summary
