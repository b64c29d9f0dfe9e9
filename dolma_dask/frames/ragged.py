"""write_ragged: partition k of a dataframe or bag becomes token shard k, as `ragged` makes them of documents.

The bytes are those of `ragged` on the documents that `write_documents` makes of the same collection. Memory: one partition per thread of a
worker, and 1 MB of text being encoded.
"""

from dataclasses import dataclass
from typing import Annotated

from dask.delayed import Delayed

from dolma_dask.engine import Task, Unit
from dolma_dask.frames.options import Texts, WriteOptions
from dolma_dask.frames.partitions import collection_of, required, shard_names
from dolma_dask.frames.publishing import ORIGIN, MoveStage
from dolma_dask.frames.shards import Rows, write_each
from dolma_dask.frames.targets import check_target
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.outputs.ragged import ArrayOptions, names_of
from dolma_dask.results.summary import Summary


@dataclass(frozen=True, kw_only=True)
class RaggedOptions(ArrayOptions, WriteOptions):
    """Options of `write_ragged`."""

    name: Annotated[str | None, Opt("Beginning of the file names; by default the last part of `to`.")] = None


@command
def write_ragged(
    frame: Texts, to: Annotated[str, Opt("Flat output folder.")], /, *, options: RaggedOptions
) -> Summary | Delayed:
    """Tokenize a Dask dataframe or bag into ragged NumPy arrays, a pair of files for each partition.

    Returns
    -------
    Summary or dask.delayed.Delayed

    Raises
    ------
    UsageError
        The tokenizer cannot be read, a column is missing, files of others are in the way, or the target lies in
        folders of a dataset; nothing is computed then.
    BadRecordError, BadRecordBudgetError, SchemaError
        While computing.

    Examples
    --------
    >>> write_ragged(df, "out/ragged", tokenizer="t5.json", eos="</s>")  # doctest: +SKIP
    """
    collection, policy, source = collection_of(frame, "write_ragged"), options.policy, options.source
    collection.check(required(source), "write_ragged")
    output = options.output(to)
    check_target(output.root, collection)
    shards = shard_names(collection.npartitions)
    names = names_of(shards, options.name or output.root.rsplit("/", 1)[-1])
    key = output.key({"of": ORIGIN, "source": source}, policy)
    plan = output.plan_of(
        MoveStage(output.verb, output.root),
        [Task(shard, (Unit(names[shard].data, key),), ()) for shard in shards],
        names,
        origin=ORIGIN,
        shown={"source": source},
        policy=policy,
    )
    return write_each(Rows(collection.texts(), policy, source), plan, output, options)
