"""ragged: documents -> token ids, all documents of a shard back to back, with their lengths beside them.

From a dataset, or straight from a selection of it (``where``), without a file between. One token shard per document shard; order is kept.
Memory: a few blocks and 1 MB of text being encoded per worker; ids are spooled to local scratch until the header is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Unpack

from dolma_dask import engine
from dolma_dask.dataset import Shard
from dolma_dask.engine import Task, Unit
from dolma_dask.formats.ragged import RaggedNames
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.journal import Record
from dolma_dask.mixing.where import Rule
from dolma_dask.stages.options import (
    DatasetLike,
    Many,
    ReadArgs,
    RuleLike,
    as_dataset,
    check_outside,
    checked,
    record_policy,
    rule_of,
    run_options,
    selected,
    words_of,
)
from dolma_dask.stages.ragged_output import RaggedOutput, names_of, open_output
from dolma_dask.stages.selection import Selection, ShardWork, open_selected, rule_notes, select
from dolma_dask.stages.sinks import ReadShard
from dolma_dask.summary import Summary


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
    policy = record_policy(options)
    output = open_output(to, tokenizer, bos, eos)
    check_outside(output.root, found.root)
    chosen = selected(found, options)
    selection = select(chosen, where, attributes)
    stage = RaggedStage(output, found.root, found.source, selection.rule, policy)
    names = names_of(found, name)
    key = output.key(selection.params(), policy)
    tasks = [stage.task(selection, shard, names[shard.path], key) for shard in chosen.shards]
    asked = {"where": None if where is None else str(where), "source": source}
    plan = output.plan(stage, tasks, names, found, asked, policy)
    summary = engine.run(plan, run_options(options)).summary
    return replace(summary, notes=(*summary.notes, *rule_notes(summary.counts)))


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
    output : RaggedOutput
        What is made.
    root : str
        The dataset that is read.
    source : str or None
        Source of documents that lack the field.
    rule : Rule or None
        What is kept.
    policy : RecordPolicy
        What happens to bad records.
    """

    output: RaggedOutput
    root: str
    source: str | None
    rule: Rule | None
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
        path = work.selected.shard.path
        quarantine = Quarantine(self.output.root, self.verb, path, self.policy)
        rows = open_selected(self.root, work.selected, self.rule, (), self.source, self.policy, quarantine)
        with self.output.sink(unit, path, work.names) as sink:
            for batch in rows:
                sink.write(batch.column("text"))
        state = rows.aligned.state
        read = ReadShard(
            path,
            state.inputs,
            rows.counts,
            ids_digest=state.ids_digest,
            content_digest=state.content_digest,
        )
        return [sink.record(unit, read, quarantine.close())]
