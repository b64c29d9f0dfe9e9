"""Token shards of documents: the ids of all documents of a shard back to back, with their lengths beside them.

Memory: a few blocks and 1 MB of text being encoded per worker; ids are kept in local scratch until the header is known.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine import Plan, Stage, Task, Unit
from dolma_dask.engine.documents import DocumentStage
from dolma_dask.formats import layout
from dolma_dask.formats.ragged import RaggedNames, SourceRecord, ragged_names
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.journal import Record, dataset_notes, work_key
from dolma_dask.options.base import OUTPUT, Opt, Options, without_empty
from dolma_dask.options.groups import RunOptions
from dolma_dask.options.records import budget
from dolma_dask.reading.kept.transform import Mixture
from dolma_dask.reading.selection import rule_notes
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.ragged import RaggedWriter
from dolma_dask.sinks.sink import DocumentRows, ShardFacts, WriterSink
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.specials import Framing

VERSION = 1
"""Raised whenever ragged writes other bytes for the same documents and tokenizer."""


@dataclass(frozen=True, kw_only=True)
class ArrayOptions(Options):
    """Options that decide token arrays, as `ragged`, the mixes that make them and `write_ragged` take them."""

    tokenizer: Annotated[str, Opt("Path of a complete tokenizer JSON (Hugging Face tokenizers).")]
    bos: Annotated[
        str | int | None, Opt("Token to put before each document; by default none. In Python also its id.")
    ] = None
    eos: Annotated[
        str | int | None, Opt("Token to put after each document; by default none. In Python also its id.")
    ] = None
    name: Annotated[
        str | None,
        Opt(
            "Beginning of the file names; by default the dataset's folder. Shards that are numbered already, as C4's, keep their names.",
            group=OUTPUT,
        ),
    ] = None

    def output(self, to: str) -> "RaggedOutput":
        """Return what makes token shards in the folder `to`."""
        engine = open_tokenizer(self.tokenizer)
        return RaggedOutput(files.normalize(to), engine, Framing.of(engine, self.bos, self.eos))


def make_arrays(plan: Plan, mixture: Mixture, options: RunOptions) -> Summary:
    """Make what is left of a plan of `RaggedOutput`."""
    summary = engine.run(plan, options).summary
    return replace(summary, notes=(*summary.notes, *mixture.notes, *rule_notes(summary)))


@dataclass(frozen=True)
class RaggedOutput:
    """A token shard for each shard of documents, of `ragged` itself or beside the documents of a mix."""

    root: str
    engine: TokenEngine
    framing: Framing  # special tokens around each document
    verb: ClassVar[str] = "ragged"
    columns: ClassVar[tuple[str, ...]] = ("text",)

    def open(self, unit: Unit, shard: str) -> "RaggedSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return RaggedSink(self, shard, RaggedNames(unit.name.removesuffix(RaggedNames("").data)))

    def key(self, documents: Mapping[str, Any], policy: RecordPolicy) -> str:
        """Return the key of the token shards of some documents, of which `documents` says what decides them."""
        params = {
            **documents,
            "tokenizer": self.engine.fingerprint,
            "bos": self.framing.bos and self.framing.bos.id,
            "eos": self.framing.eos and self.framing.eos.id,
            "max_record_bytes": policy.max_record_bytes,
            "on_bad_record": policy.on_bad_record,
        }
        return work_key("ragged", VERSION, params)

    def plan(
        self,
        mixture: Mixture,
        dataset: Dataset,
        name: str | None,
        params: Mapping[str, Any],
        shown: Mapping[str, Any],
        policy: RecordPolicy,
    ) -> Plan:
        """Return the plan of a run over the shards of `mixture`; token shards are numbered among all shards (`dataset`).

        `params` decides the documents besides the bytes of the files, `shown` says the same for people.
        """
        prefix = name or files.normalize(dataset.root).rsplit("/", 1)[-1]
        names = names_of([shard.path for shard in dataset.shards], prefix)
        stage, key = DocumentStage((self,), policy, self.verb), self.key(params, policy)
        tasks = [stage.task(source, Unit(names[source.name].data, key)) for source in mixture.sources]
        notes = dataset_notes(dataset)
        return self.plan_of(stage, tasks, names, origin=dataset.root, shown=shown, policy=policy, notes=notes)

    def plan_of(
        self,
        stage: Stage,
        tasks: Sequence[Task],
        names: Mapping[str, RaggedNames],
        *,
        origin: str,
        shown: Mapping[str, Any],
        policy: RecordPolicy,
        notes: tuple[str, ...] = (),
    ) -> Plan:
        """Return the plan of some tasks that make the token shards `names`, by shard of the whole listing."""
        framing = self.framing
        return Plan(
            stage=stage,
            root=self.root,
            tasks=tasks,
            params=without_empty(
                {
                    "from": origin,
                    "tokenizer": self.engine.file_name,
                    "tokenizer_fingerprint": self.engine.fingerprint,
                    "bos": framing.bos and framing.bos.token,
                    "eos": framing.eos and framing.eos.token,
                    **shown,
                }
            ),
            writes=tuple(sorted({f"{item.numbered[0]}." for item in names.values() if item.numbered})),
            origin=origin,
            reads=(".data.npy", ".len.npy"),
            all_units=frozenset(item.data for item in names.values()),
            beside=frozenset(file for item in names.values() for file in (item.lengths, item.sidecar)),
            own_names=own_names(names),
            max_bad_fraction=budget(policy),
            notes=(*notes, *self._others(names)),
        )

    def _others(self, names: Mapping[str, RaggedNames]) -> Iterator[str]:
        """Say that the folder holds token shards of other datasets, which `open_ragged` takes for one with these."""
        ours = re.compile(own_names(names))
        found = [
            info.path for info in files.list_files(self.root) if info.path.endswith(RaggedNames("").data)
        ]
        others = [path for path in found if not ours.match(path) and "/" not in path]
        if others:
            yield f"{self.root} holds {counted(len(others), 'token shard')} of other datasets too, first {others[0]}: who opens the folder reads all"


def own_names(names: Mapping[str, RaggedNames]) -> str:
    """Return the regular expression of the names that token shards of these datasets may have, whatever their number; for ``v0`` not those of ``v0.1``."""
    datasets = sorted({item.numbered[0] for item in names.values() if item.numbered})
    return rf"(?:{'|'.join(map(re.escape, datasets))})\.\d+-of-\d+\."


def names_of(shards: Sequence[str], prefix: str) -> dict[str, RaggedNames]:
    """Return the names of the token shards of all shards, which must be in order."""
    return dict(zip(shards, ragged_names(list(shards), prefix), strict=True))


class RaggedSink(WriterSink[RaggedWriter]):
    """Writes the token shard of one shard of documents."""

    def __init__(self, output: "RaggedOutput", shard: str, names: RaggedNames) -> None:
        self._output = output
        source = SourceRecord(layout.document_path(shard), {})
        super().__init__(
            RaggedWriter(output.root, names, output.framing.record(output.engine), source=source)
        )

    def write(self, rows: DocumentRows) -> None:
        """See `dolma_dask.sinks.sink.Sink`."""
        output = self._output
        self.writer.write(output.framing.apply(output.engine.encode(rows.batch.column("text"))))

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        writer = self.writer
        return facts.record(
            unit,
            (*writer.files, *quarantined),
            writer.documents,
            counts={"tokens": writer.tokens, "bytes_out": sum(file.bytes for file in writer.files)},
            info={"dtype": writer.sidecar.dtype, "tokenizer": self._output.engine.fingerprint},
        )
