"""What the calls of `dedupe` and `block` have in common: where their marks go, what is read for them, and the record of the set as a whole.

That record tells readers which marks hold: those whose records have the key in its ``info["key"]``. It is therefore written before the first
mark is, so that after a kill no old mark counts beside new ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import dolma_dask
from dolma_dask.alignment import AlignedShard, Columns
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import Input, Plan, Stage, Task, Unit, inputs_of, resume
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Journal, Record
from dolma_dask.stages.marks import group_name, grouped, note, tidy
from dolma_dask.stages.options import dataset_notes


def whole_unit(name: str) -> str:
    """Return the unit that stands for an attribute set as a whole; it is the name of no file."""
    return f"{layout.ATTRIBUTES}/{name}/"


@dataclass(frozen=True)
class ShardKeys:
    """One shard of a task of the exchange; `number` is that of its places."""

    number: int
    work: AlignedShard


@dataclass(frozen=True, kw_only=True)
class Marking:
    """A call of a verb that marks documents.

    Attributes
    ----------
    dataset : Dataset
        All of it.
    columns : Columns
        What is read, `dolma_dask.stages.marks.COLUMNS` first.
    name : str
        Attribute set, and its only key.
    file_format : FileFormat or None
        Of the attribute files.
    policy : RecordPolicy
        What happens to bad records.
    params : dict
        What the user asked.
    """

    dataset: Dataset
    columns: Columns
    name: str
    file_format: FileFormat | None
    policy: RecordPolicy
    params: Mapping[str, Any] = field(default_factory=dict)

    verb: ClassVar[str]
    depends_on: ClassVar[str]
    """On what marks depend besides their own shard: "documents" of all shards, or a "list"."""

    @property
    def root(self) -> str:
        """Of the dataset."""
        return self.dataset.root

    @property
    def records(self) -> Mapping[str, Record]:
        """The verb's records, as they are in the journal now."""
        return Journal(self.root, self.verb).records

    def path(self, shard: Shard) -> str:
        """Return where the marks of a shard go."""
        return layout.attribute_path(self.name, shard.path, self.file_format)

    def inputs(self, shards: Iterable[Shard]) -> tuple[Input, ...]:
        """Return the files that are read for the marks of some shards."""
        return inputs_of(self.root, [info for shard in shards for info in self.columns.work(shard).files])

    def plan(self, stage: Stage, shards: Iterable[Shard], key: str, works: Mapping[str, Any]) -> Plan:
        """Return the plan that writes marks, of a work for each shard."""
        units = {shard.path: (Unit(self.path(shard), key),) for shard in shards}
        return Plan(
            stage=stage,
            root=self.root,
            tasks=[
                Task(shard.path, units[shard.path], self.inputs([shard]), works.get(shard.path))
                for shard in self.dataset.shards
                if shard.path in units
            ],
            params=self.params,
            writes=(whole_unit(self.name),),
            version=dolma_dask.__version__,
            all_units=frozenset(self.path(shard) for shard in self.dataset.shards),
            reads=layout.DOCUMENT_SUFFIXES,
            bad_is_loss=True,
            notes=dataset_notes(self.dataset),
        )

    # the exchange

    def folder(self, key: str) -> str:
        """Return where the exchange of this key lies."""
        return files.join(self.root, f"_exchange/{self.verb}-{self.name}/{key}")

    def reading(self, numbers: Sequence[int], before: int = 0) -> list[Task]:
        """Return tasks that read these shards for an exchange in which others have the numbers `before` them; small ones together."""
        shards = self.dataset.shards
        return [
            Task(
                group_name([shards[number].path for number in group]),
                (),
                self.inputs(shards[number] for number in group),
                tuple(ShardKeys(before + number, self.columns.work(shards[number])) for number in group),
            )
            for group in grouped([(number, shards[number].bytes) for number in numbers])
        ]

    def tidy(self, folder: str) -> None:
        """Remove the exchange, and what a call has left that was killed at its very end."""
        tidy(self.root, self.verb, folder)

    # the set as a whole

    def finished(self, unit: Unit) -> Record | None:
        """Return the record of the set as a whole if it is of this key, and about the files that are there now."""
        task = Task(self.name, (unit,), self.inputs(self.dataset.shards))
        state = resume.look_back_at(self.root, self.verb, [task])
        for record in state.restamped:
            note(self.root, self.verb, record)
        return state.finished.get(unit.name)

    def save(
        self,
        unit: Unit,
        key: str,
        inputs: Sequence[InputRecord] = (),
        kept: Sequence[FileRecord] = (),
        *,
        seconds: float = 0.0,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        """Note what is known of the set as a whole, and that the marks of this key hold from now on."""
        told = {"key": key, "depends_on": self.depends_on, **(info or {})}
        shard = self.dataset.shards[0].path
        record = Record(unit.name, shard, unit.key, tuple(inputs), tuple(kept), seconds=seconds, info=told)
        note(self.root, self.verb, record)
