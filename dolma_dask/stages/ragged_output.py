"""What `ragged` and `mix` make of a shard: its token shard, and the plan of a run that makes them for all shards.

One place for both, so that a mix straight to tokens has the files and journal of the verb. Cost: encoding, 3 to 4 MB of text per CPU-second.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

import dolma_dask
from dolma_dask.dataset import Dataset
from dolma_dask.engine import Plan, Stage, Task, Unit
from dolma_dask.formats import layout
from dolma_dask.formats.ragged import RaggedNames, ragged_names
from dolma_dask.formats.ragged_record import SourceRecord
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.journal import Record, work_key
from dolma_dask.stages.options import budget, dataset_notes, told
from dolma_dask.stages.sinks import Kept, ReadShard, WriterSink
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.policy import Framing, SpecialTokens
from dolma_dask.writers.ragged import RaggedWriter, WrittenShard

VERSION = 1
"""Raised whenever ragged writes other bytes for the same documents and tokenizer."""


class RaggedSink(WriterSink[RaggedWriter]):
    """Writes the token shard of one shard of documents.

    Parameters
    ----------
    output : RaggedOutput
        How ids are made, and where they go.
    path : str
        Of the shard.
    names : RaggedNames
        Of the files.
    """

    def __init__(self, output: "RaggedOutput", path: str, names: RaggedNames) -> None:
        self._output = output
        source = SourceRecord(layout.document_path(path), {})
        super().__init__(
            RaggedWriter(output.root, names, output.framing.record(output.engine), source=source)
        )

    def write(self, texts: pa.LargeStringArray) -> None:
        """Append documents."""
        output = self._output
        self.writer.write(output.framing.apply(output.engine.encode(texts)))

    def take(self, rows: Kept) -> None:
        """See `Sink`."""
        self.write(rows.text)

    def record(self, unit: Unit, read: ReadShard, bad: tuple[FileRecord, ...]) -> Record:
        """See `RecordedSink`."""
        written = self.writer.result
        assert written is not None
        return Record(
            unit=unit.name,
            shard=read.path,
            key=unit.key,
            inputs=read.inputs,
            files=(*_files(written, self._output.root), *bad),
            rows=self.writer.documents,
            ids_digest=read.ids_digest,
            content_digest=read.content_digest,
            counts={**read.counts, "tokens": self.writer.tokens, "bytes_out": written.bytes},
            info={"dtype": written.sidecar.dtype, "tokenizer": self._output.engine.fingerprint},
        )


@dataclass(frozen=True)
class RaggedOutput:
    """A token shard for each shard of documents.

    Attributes
    ----------
    root : str
        Output folder.
    engine : TokenEngine
        Makes the ids.
    framing : Framing
        Special tokens around each document.
    """

    verb: ClassVar[str] = "ragged"

    root: str
    engine: TokenEngine
    framing: Framing

    def sink(self, unit: Unit, path: str, place: RaggedNames) -> RaggedSink:
        """Return what takes the documents of the shard `path`."""
        return RaggedSink(self, path, place)

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
        stage: Stage,
        tasks: Sequence[Task],
        names: Mapping[str, RaggedNames],
        found: Dataset,
        asked: Mapping[str, Any],
        policy: RecordPolicy,
    ) -> Plan:
        """Return the plan of a run; `names` are those of all shards, `asked` what the journal says for people."""
        framing = self.framing
        return Plan(
            stage=stage,
            root=self.root,
            tasks=tasks,
            params=told(
                {
                    "from": found.root,
                    "tokenizer": self.engine.file_name,
                    "bos": framing.bos and framing.bos.token,
                    "eos": framing.eos and framing.eos.token,
                    **asked,
                }
            ),
            writes=_prefixes(names.values()),
            version=dolma_dask.__version__,
            origin=found.root,
            reads=(".data.npy", ".len.npy"),
            all_units=frozenset(item.data for item in names.values()),
            beside=frozenset(file for item in names.values() for file in (item.lengths, item.sidecar)),
            max_bad_fraction=budget(policy),
            notes=dataset_notes(found),
        )


def open_output(to: str, tokenizer: str, bos: str | None, eos: str | None) -> RaggedOutput:
    """Return what makes token shards.

    Raises
    ------
    UsageError
        The tokenizer cannot be read, or lacks a special token.
    """
    engine = open_tokenizer(tokenizer)
    return RaggedOutput(files.normalize(to), engine, SpecialTokens(bos, eos).resolve(engine))


def names_of(dataset: Dataset, name: str | None) -> dict[str, RaggedNames]:
    """Return the names of all token shards of a dataset, by the path of the shard."""
    paths = [shard.path for shard in dataset.shards]
    prefix = name or files.normalize(dataset.root).rsplit("/", 1)[-1]
    return dict(zip(paths, ragged_names(paths, prefix), strict=True))


def _prefixes(names: Iterable[RaggedNames]) -> tuple[str, ...]:
    """Return how the names of all files of the run begin."""
    return tuple(sorted({f"{item.numbered[0]}." for item in names if item.numbered}))


def _files(written: WrittenShard, folder: str) -> tuple[FileRecord, ...]:
    checksums = {
        written.names.data: written.sidecar.checksums.data,
        written.names.lengths: written.sidecar.checksums.len,
        written.names.sidecar: written.checksum,
    }
    found = {
        name: files.stat(files.join(folder, name))
        for name in (written.names.data, written.names.lengths, written.names.sidecar)
    }
    return tuple(
        FileRecord(name, info.bytes, checksums[name], written.sidecar.documents)
        for name, info in found.items()
        if info is not None
    )
