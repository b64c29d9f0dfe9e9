"""ragged: documents -> token ids, all documents of a shard back to back, with their lengths beside them.

From a dataset, or straight from a selection of it (``where``), without a file between. One token shard per document shard; order is kept.
Memory: a few blocks and 1 MB of text being encoded per worker; ids are spooled to local scratch until the header is known.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Unpack

import dolma_dask
from dolma_dask import engine
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import Plan, Task, Unit
from dolma_dask.formats import layout
from dolma_dask.formats.ragged import RaggedNames, ragged_names
from dolma_dask.formats.ragged_record import SourceRecord
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.mixing.where import Rule
from dolma_dask.stages.options import (
    DatasetLike,
    Many,
    ReadArgs,
    RuleLike,
    as_dataset,
    budget,
    checked,
    dataset_notes,
    record_policy,
    rule_of,
    run_options,
    selected,
    told,
    words_of,
)
from dolma_dask.stages.selection import Selection, ShardWork, open_selected, rule_notes, select
from dolma_dask.summary import Summary
from dolma_dask.tokens.engine import TokenEngine, load_tokenizer
from dolma_dask.tokens.policy import Framing, SpecialTokens
from dolma_dask.writers.ragged import RaggedWriter, WrittenShard

VERSION = 1
"""Raised whenever ragged writes other bytes for the same documents and tokenizer."""


def ragged(
    dataset: DatasetLike,
    to: str,
    /,
    *,
    tokenizer: str,
    where: RuleLike = None,
    attributes: Annotated[Sequence[str], Many] = (),
    bos: str | None = None,
    eos: str | None = None,
    name: str | None = None,
    source: str | None = None,
    **options: Unpack[ReadArgs],
) -> Summary:
    """Tokenize documents into ragged NumPy arrays: <name>.<i>-of-<n>.data.npy with the ids, .len.npy with tokens per document.

    Example: dolma-dask ragged corpus/wiki/v1 out/ragged --tokenizer t5.json --eos "</s>"

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    to : str
        Flat output folder.
    tokenizer : str
        Path of a complete tokenizer JSON (Hugging Face tokenizers).
    where : str, optional
        Keep only documents for which this holds, as in mix, without writing them first.
    attributes : list of str, optional
        Attribute sets to read; by default those that the rule needs.
    bos : str, optional
        Token to put before each document; by default none.
    eos : str, optional
        Token to put after each document; by default none.
    name : str, optional
        Beginning of the file names; by default the dataset's folder. Shards that are numbered already, as C4's, keep their names.
    source : str, optional
        Source of all documents, for files that lack the field.

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some shards failed.
    UsageError
        The tokenizer cannot be read, or lacks a special token; or an argument is unknown, or has a value that it cannot have.
    """
    options = checked(ragged, options, ReadArgs)
    attributes = words_of("attributes", attributes)
    where = rule_of(where)
    found = as_dataset(dataset, source)
    target = files.normalize(to)
    policy = record_policy(options)
    tokens = load_tokenizer(tokenizer)
    framing = SpecialTokens(bos, eos).resolve(tokens)
    chosen = selected(found, options)
    selection = select(chosen, where, attributes)
    stage = RaggedStage(target, found.root, found.source, selection.rule, tokens, framing, policy)
    names = _names(found, name)
    params = {
        **selection.params(),
        "tokenizer": tokens.fingerprint,
        "bos": framing.bos and framing.bos.id,
        "eos": framing.eos and framing.eos.id,
        "max_record_bytes": policy.max_record_bytes,
        "on_bad_record": policy.on_bad_record,
    }
    key = work_key("ragged", VERSION, params)
    plan = Plan(
        stage=stage,
        root=target,
        tasks=[stage.task(selection, shard, names[shard.path], key) for shard in chosen.shards],
        params=told(
            {
                "from": found.root,
                "tokenizer": Path(tokenizer).name,
                "where": None if where is None else str(where),
                "bos": bos,
                "eos": eos,
                "source": source,
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
    summary = engine.run(plan, run_options(options))
    return replace(summary, notes=(*summary.notes, *rule_notes(summary.counts)))


def _prefixes(names: Iterable[RaggedNames]) -> tuple[str, ...]:
    """Return how the names of all files of the run begin."""
    return tuple(sorted({f"{item.numbered[0]}." for item in names if item.numbered}))


def _names(dataset: Dataset, name: str | None) -> dict[str, RaggedNames]:
    paths = [shard.path for shard in dataset.shards]
    prefix = name or files.normalize(dataset.root).rsplit("/", 1)[-1]
    return dict(zip(paths, ragged_names(paths, prefix), strict=True))


@dataclass(frozen=True)
class RaggedWork:
    """What a worker needs for one token shard."""

    selected: ShardWork
    names: RaggedNames


@dataclass(frozen=True)
class RaggedStage:
    """The work of `ragged` on one shard.

    Attributes
    ----------
    target, root : str
        Output folder, and the dataset that is read.
    source : str or None
        Source of documents that lack the field.
    rule : Rule or None
        What is kept.
    engine : TokenEngine
        Makes the ids.
    framing : Framing
        Special tokens around each document.
    policy : RecordPolicy
        What happens to bad records.
    """

    target: str
    root: str
    source: str | None
    rule: Rule | None
    engine: TokenEngine
    framing: Framing
    policy: RecordPolicy = field(default_factory=RecordPolicy)
    verb: str = "ragged"

    def task(self, selection: Selection, shard: Shard, names: RaggedNames, key: str) -> Task:
        """Return the work on `shard`."""
        work = RaggedWork(selection.work(shard), names)
        return Task(shard.path, (Unit(names.data, key),), selection.inputs(work.selected), work)

    def run_shard(self, task: Task) -> list[Record]:
        """Tokenize one shard; see `dolma_dask.engine.Stage`."""
        work: RaggedWork = task.work
        unit = task.units[0]
        shard = work.selected.shard
        quarantine = Quarantine(self.target, self.verb, shard.path, self.policy)
        rows = open_selected(self.root, work.selected, self.rule, (), self.source, self.policy, quarantine)
        source = SourceRecord(layout.document_path(shard.path), {})
        with RaggedWriter(self.target, work.names, self.framing.record(self.engine), source=source) as writer:
            for batch in rows:
                writer.write(self.framing.apply(self.engine.encode(batch.column("text"))))
        kept = quarantine.close()
        assert writer.result is not None
        state = rows.aligned.state
        record = Record(
            unit=unit.name,
            shard=shard.path,
            key=unit.key,
            inputs=state.inputs,
            files=(*_files(writer.result, self.target), *kept),
            rows=writer.documents,
            ids_digest=state.ids_digest,
            content_digest=state.content_digest,
            counts={**rows.counts, "tokens": writer.tokens, "bytes_out": writer.result.bytes},
            info=self._info(writer.result),
        )
        return [record]

    def _info(self, written: WrittenShard) -> dict[str, Any]:
        return {"dtype": written.sidecar.dtype, "tokenizer": self.engine.fingerprint}


def _files(written: WrittenShard, folder: str) -> tuple[FileRecord, ...]:
    checksums = {
        written.names.data: written.sidecar.checksums.data,
        written.names.lengths: written.sidecar.checksums.len,
    }
    found = {
        name: files.stat(files.join(folder, name))
        for name in (written.names.data, written.names.lengths, written.names.sidecar)
    }
    return tuple(
        FileRecord(name, info.bytes, checksums.get(name, ""), written.sidecar.documents)
        for name, info in found.items()
        if info is not None
    )
