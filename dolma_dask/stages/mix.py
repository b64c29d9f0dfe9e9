"""mix: read documents and attributes side by side, keep the rows that a rule keeps, and write a new version in one pass.

Kept documents are copied byte for byte. Memory: a few blocks per worker. An attribute file that is missing, short, long, swapped or stale
is an error, never silently unfiltered output.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Annotated, Unpack

import dolma_dask
from dolma_dask import engine
from dolma_dask.dataset import Shard
from dolma_dask.engine import Plan, Task, Unit
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.digests import RowDigest
from dolma_dask.formats.documents import RAW
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.journal import Record, work_key
from dolma_dask.mixing.where import Rule
from dolma_dask.stages.options import (
    DatasetLike,
    Many,
    ReadArgs,
    RuleLike,
    as_dataset,
    budget,
    check_format,
    check_rule,
    checked,
    dataset_notes,
    record_policy,
    run_options,
    selected,
    told,
    words_of,
)
from dolma_dask.stages.selection import Selection, ShardWork, open_selected, rule_notes, select
from dolma_dask.summary import Summary
from dolma_dask.writers.open import open_writer

VERSION = 1
"""Raised whenever mix writes other bytes for the same input and rule."""


def mix(
    dataset: DatasetLike,
    /,
    *,
    to: str,
    where: RuleLike = None,
    attributes: Annotated[Sequence[str], Many] = (),
    format: FileFormat | None = None,
    source: str | None = None,
    **options: Unpack[ReadArgs],
) -> Summary:
    """Write a new version of a dataset with the documents that a rule keeps.

    Example: dolma-dask mix corpus/wiki/v0 --to corpus/wiki/v1 --where "word_count >= 50 and symbol_to_word_ratio < 0.1"

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    to : str
        Root of the new version; its documents/ is written.
    where : str, optional
        Expression over id, source, added, created and attribute keys; a unique ending of a key is enough. A comparison with a missing
        value is false.
    attributes : list of str, optional
        Attribute sets to read; by default those that the rule needs.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the new documents; by default that of each input file.
    source : str, optional
        Source of all documents, for files that lack the field.

    Returns
    -------
    Summary
        With the number of rows that each part of the rule holds for.

    Raises
    ------
    StageError
        Some shards failed, for example because attributes do not line up.
    ExpressionError
        The rule cannot be parsed, or names an unknown column.
    UsageError
        An argument is unknown, or has a value that it cannot have.
    """
    options = checked(mix, options, ReadArgs)
    attributes = words_of("attributes", attributes)
    check_rule(where)
    check_format(format)
    found = as_dataset(dataset, source)
    target = files.normalize(to)
    _check_apart(found.root, target)
    policy = record_policy(options)
    chosen = selected(found, options)
    selection = select(chosen, where, attributes)
    stage = MixStage(target, found.root, found.source, selection.rule, format, policy)
    key = work_key(
        "mix", VERSION, {**selection.params(), "max_record_bytes": policy.max_record_bytes, **_bad(policy)}
    )
    plan = Plan(
        stage=stage,
        root=target,
        tasks=[stage.task(selection, shard, key) for shard in chosen.shards],
        params=told(
            {
                "where": None if where is None else str(where),
                "attributes": list(attributes),
                "format": format,
                "from": found.root,
                "source": source,
            }
        ),
        writes=(f"{layout.DOCUMENTS}/",),
        version=dolma_dask.__version__,
        origin=found.root,
        reads=layout.DOCUMENT_SUFFIXES,
        all_units=frozenset(stage.path(shard) for shard in found.shards),
        max_bad_fraction=budget(policy),
        notes=dataset_notes(found),
    )
    layout.check_no_collision([stage.path(shard) for shard in found.shards])
    summary = engine.run(plan, run_options(options))
    return replace(summary, notes=(*summary.notes, *rule_notes(summary.counts)))


def _check_apart(root: str, target: str) -> None:
    """Refuse a target that is the input, or lies among its documents, or holds it among the new ones."""
    ours, theirs = (
        files.resolved(files.join(layout.dataset_root(url), layout.DOCUMENTS)) for url in (root, target)
    )
    if f"{ours}/".startswith(f"{theirs}/") or f"{theirs}/".startswith(f"{ours}/"):
        raise UsageError(
            f"mix to {target} would write over its own input {root}; expected another folder or URL in --to."
        )


def _bad(policy: RecordPolicy) -> dict[str, str]:
    return {"on_bad_record": policy.on_bad_record}


@dataclass(frozen=True)
class MixStage:
    """The work of `mix` on one shard.

    Attributes
    ----------
    target, root : str
        Of the new version, and of the dataset that is read.
    source : str or None
        Source of documents that lack the field.
    rule : Rule or None
        What is kept.
    file_format : FileFormat or None
        None: that of the input file.
    policy : RecordPolicy
        What happens to bad records.
    """

    target: str
    root: str
    source: str | None
    rule: Rule | None
    file_format: FileFormat | None
    policy: RecordPolicy = field(default_factory=RecordPolicy)
    verb: str = "mix"

    def path(self, shard: Shard) -> str:
        """Return the output path of a shard, relative to the target."""
        return layout.document_path(layout.with_format(shard.path, self.file_format))

    def task(self, selection: Selection, shard: Shard, key: str) -> Task:
        """Return the work on `shard`."""
        work = selection.work(shard)
        return Task(shard.path, (Unit(self.path(shard), key),), selection.inputs(work), work)

    def run_shard(self, task: Task) -> list[Record]:
        """Mix one shard; see `dolma_dask.engine.Stage`."""
        work: ShardWork = task.work
        unit = task.units[0]
        quarantine = Quarantine(self.target, self.verb, work.shard.path, self.policy)
        rows = open_selected(self.root, work, self.rule, (RAW,), self.source, self.policy, quarantine)
        ids, content = RowDigest(), RowDigest()
        with ExitStack() as stack:
            writer = stack.enter_context(open_writer(self.target, unit.name))
            for batch in rows:
                source, identity, text = (batch.column(name) for name in ("source", "id", "text"))
                ids.update(source, identity)
                content.update(source, identity, text)
                writer.write(batch.column(RAW))
            kept = quarantine.close()
        state = rows.aligned.state
        record = Record(
            unit=unit.name,
            shard=work.shard.path,
            key=unit.key,
            inputs=state.inputs,
            files=(writer.record, *kept),
            rows=int(rows.counts["documents_out"]),
            ids_digest=ids.hexdigest(),
            content_digest=content.hexdigest(),
            counts={
                **rows.counts,
                "bytes_out": writer.record.bytes,
                "unproved_attribute_files": len(state.unproved),
            },
            info={"unproved": list(state.unproved)},
        )
        return [record]
