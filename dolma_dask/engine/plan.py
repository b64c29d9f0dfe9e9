"""Plans: tasks with their inputs and outputs."""

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from msgspec import Struct

import dolma_dask
from dolma_dask.dataset import Dataset
from dolma_dask.formats import layout
from dolma_dask.io.files import Input
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record, Unit
from dolma_dask.options.records import budget
from dolma_dask.ownership import dataset_notes


class Readable(Protocol):
    """Files that are read together: a shard with its attributes, or a token shard. Small; goes to workers."""

    @property
    def name(self) -> str: ...  # for progress and failures
    @property
    def inputs(self) -> tuple[Input, ...]: ...


class Task(Struct, frozen=True, gc=False):
    """One shard's work."""

    shard: str  # path relative to ``documents/``
    units: tuple[Unit, ...]  # what it makes; only those that are left reach ``run_shard``
    inputs: tuple[Input, ...]  # what it reads
    work: Any = None  # what only the stage knows; must pickle
    staged_bytes: int = 0  # what it reads besides, left by an earlier pass

    @property
    def bytes(self) -> int:
        """Stored bytes of all that it reads."""
        return sum(item.info.bytes for item in self.inputs) + self.staged_bytes

    @classmethod
    def of(cls, pieces: Sequence[Readable], *units: Unit) -> Self:
        """Return the work of reading some pieces together, which are its ``work``."""
        inputs = tuple(item for piece in pieces for item in piece.inputs)
        return cls(group_name([piece.name for piece in pieces]), units, inputs, tuple(pieces))

    @property
    def unit(self) -> Unit:
        """The only unit."""
        (unit,) = self.units
        return unit

    @property
    def listed(self) -> tuple[InputRecord, ...]:
        """Inputs as they were listed, for the record of what looks at slices of them and knows no checksum."""
        return tuple(InputRecord(one.info.path, one.info.bytes, one.info.stamp, "") for one in self.inputs)

    def record(
        self, files: Sequence[FileRecord] = (), inputs: Sequence[InputRecord] = (), rows: int = 0, **more: Any
    ) -> Record:
        """Return the record of its only unit; `more` are further fields."""
        unit = self.unit
        return Record(unit.name, self.shard, unit.key, tuple(inputs), tuple(files), rows, **more)


T = TypeVar("T")


class LazyTasks(Sequence[Task], Generic[T]):
    """Tasks of items that are held anyway, each made when it is looked at: a million of them take a gigabyte.

    An outline is the same task without its work, for who looks at units and inputs alone.
    """

    def __init__(
        self, items: Sequence[T], make: Callable[[T], Task], outline: Callable[[T], Task] | None = None
    ) -> None:
        self._items, self._make, self._outline = items, make, outline or make

    @property
    def outlines(self) -> Iterator[Task]:
        """Outlines of all tasks."""
        return map(self._outline, self._items)

    def outline(self, at: int) -> Task:
        """Return the outline of one task."""
        return self._outline(self._items[at])

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Task]:
        return map(self._make, self._items)

    @overload
    def __getitem__(self, at: int) -> Task: ...
    @overload
    def __getitem__(self, at: slice) -> "LazyTasks[T]": ...
    def __getitem__(self, at: int | slice) -> "Task | LazyTasks[T]":
        if isinstance(at, slice):
            return LazyTasks(self._items[at], self._make, self._outline)
        return self._make(self._items[at])


def outlines(tasks: Sequence[Task]) -> Iterable[Task]:
    """Return tasks of which only units and inputs are looked at."""
    return tasks.outlines if isinstance(tasks, LazyTasks) else tasks


def chosen(
    tasks: Sequence[Task], numbers: Sequence[int], change: Callable[[Task], Task] | None = None
) -> Sequence[Task]:
    """Return some of the tasks, perhaps changed, in the order of their numbers; lazy ones stay so."""
    change = change or (lambda task: task)
    if not isinstance(tasks, LazyTasks):
        return [change(tasks[at]) for at in numbers]
    return LazyTasks(array("q", numbers), lambda at: change(tasks[at]), lambda at: change(tasks.outline(at)))


class Stage(Protocol):
    """Work that the engine maps over tasks; goes to workers by pickle. It may have ``urls``, of files that it reads besides the inputs of tasks."""

    @property
    def verb(self) -> str:
        """Name of the verb, and of its journal."""
        ...

    def run_shard(self, task: Task) -> list[Record]:
        """Do one task's units and return a record for each; raise to fail the shard."""
        ...


class JoiningStage(Stage, Protocol):
    """A stage that can do several small tasks as one, which must give the same files and records as one after another."""

    def joins(self, task: Task) -> Hashable:
        """Return what tasks must have in common to be done as one; None: it is done alone."""
        ...

    def run_joined(self, tasks: Sequence[Task]) -> list[list[Record]]:
        """Do several tasks; return the records of each. Raise if anything is unusual: fewer are tried then, in the end each alone."""
        ...


class Index(Struct, frozen=True):
    """A file that names the files of all units: it goes before one is made again, and appears once all are there."""

    path: str  # relative to the root
    units: tuple[str, ...]  # all that there must be, in order
    content: Callable[[Sequence[Record]], bytes]  # of their records


class Plan(Struct, frozen=True):
    """A run as a verb describes it."""

    stage: Stage  # the work
    root: str  # output root; its journal is used
    tasks: Sequence[Task]  # all that were requested
    params: Mapping[str, Any]  # as the user gave them, for the journal and the report
    writes: tuple[str, ...]  # folders or file prefixes, relative to `root`, that the run may fill
    options_key: str = ""  # digest of all options that decide bytes, if the keys of the units differ
    version: str = dolma_dask.__version__  # of this package, for the journal
    origin: str = ""  # root of what is read, if outputs made from another one must not be replaced silently
    # units of the whole listing, if files that do not belong to it must not stay; None: others may stay
    all_units: frozenset[str] | None = None
    beside: frozenset[str] = frozenset()  # further files of these units
    # paths of all shards, if outputs of shards whose document files are gone are removed with `overwrite`, and all other files may stay
    documents: frozenset[str] = frozenset()
    index: Index | None = None
    # indexes of other formats, and the suffixes of the files that they name: each goes before the first of these is removed
    other_indexes: Mapping[str, str] = {}
    # regular expression of the paths that may be of this plan, if not all below `writes` are
    own_names: str = ""
    # files that earlier runs have made from the same input, and this one does not make, are removed without `overwrite`
    replaces_own: bool = False
    other_formats: layout.OtherFormats = layout.OtherFormats()  # of the units; no file may stay there
    how_to_add: str = ""  # how outputs of other inputs are put beside those that are there, for people
    # suffixes of the files that later stages take for outputs; a file with another name may stay
    reads: tuple[str, ...] = ()
    max_bad_fraction: float = 0.0  # budget for bad rows over the whole run
    quarantine: str = ""  # folder of bad records, if they lie below another root
    bad_is_loss: bool = False  # more bad rows make the exit status 1, and no error (verbs that keep the row)
    notes: tuple[str, ...] = ()  # what a person should know, for the summary
    is_staging: bool = False  # everything below the root is of this job, whatever its journal says
    # run in this process, whatever was requested: what is read or written is small beside a start of workers
    is_small: bool = False

    @property
    def verb(self) -> str:
        """Name of the verb, and of its journal below the root."""
        return self.stage.verb

    @property
    def file_format(self) -> str | None:
        """Format that was requested of the files; None: that of each input."""
        return self.params.get("format")


def attribute_plan(
    stage: Stage,
    dataset: Dataset,
    sets: Sequence[str],
    tasks: Sequence[Task],
    every: Sequence[str],
    params: Mapping[str, Any],
    *,
    own: Sequence[str] | None = None,
    is_whole: bool = False,
    notes: tuple[str, ...] = (),
) -> Plan:
    """Return the plan of attribute files beside documents.

    Parameters
    ----------
    stage, tasks, params
        See `Plan`.
    dataset : Dataset
        With all shards, whichever the tasks are of.
    sets : sequence of str
        Names of the attribute sets.
    every : sequence of str
        Paths of the files of all shards.
    own : sequence of str, optional
        Paths of the files of the tasks; by default the names of their units.
    is_whole : bool
        No files but those of the dataset's shards may stay; else only `overwrite` removes those that the verb has made of shards that are gone.
    notes : tuple of str
        For people, besides what is to be said of the dataset.
    """
    if own is None:
        own = every if is_whole else [unit.name for task in tasks for unit in task.units]
    return Plan(
        stage=stage,
        root=dataset.root,
        tasks=tasks,
        params=params,
        writes=tuple(f"{layout.ATTRIBUTES}/{name}/" for name in sets),
        all_units=frozenset(every) if is_whole else None,
        documents=frozenset() if is_whole else frozenset(one.path for one in dataset.shards),
        other_formats=layout.other_formats(own, every),
        reads=layout.DOCUMENT_SUFFIXES if is_whole else (),
        bad_is_loss=True,
        max_bad_fraction=budget(getattr(stage, "policy", RecordPolicy())),
        notes=(*dataset_notes(dataset), *notes),
    )


def group_name(paths: Sequence[str]) -> str:
    """Return the name of a task that reads these shards."""
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1:,} more"
