"""write_ragged: partition k of a dataframe or bag becomes token shard k, as `ragged` makes them of documents.

The bytes are those of `ragged` on the documents that `write_documents` makes of the same collection. Memory: one partition per thread of a
worker, and 256 KB of text being encoded.
"""

from dataclasses import dataclass
from typing import Annotated

from dask.delayed import Delayed

from dolma_dask.frames.options import Texts, WriteOptions
from dolma_dask.frames.partitions import collection_of, required, shard_names
from dolma_dask.frames.publishing import ORIGIN
from dolma_dask.frames.shards import documents_of, write_each
from dolma_dask.frames.targets import check_target
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.outputs.ragged import ArrayOptions
from dolma_dask.results.summary import Summary


@dataclass(frozen=True, kw_only=True)
class RaggedOptions(ArrayOptions, WriteOptions):
    """Options of `write_ragged`."""

    name: Annotated[str | None, Opt("Beginning of the file names; by default the last part of `to`.")] = None


@command
def write_ragged(
    frame: Texts, to: Annotated[str, Opt("Flat output folder.")], /, *, options: RaggedOptions
) -> Summary | Delayed:
    """Tokenize a Dask dataframe or bag into files of token ids for each partition: NumPy arrays, or in the format of a trainer.

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
    collection, source = collection_of(frame, "write_ragged"), options.source
    collection.check(required(source), "write_ragged")
    output = options.output(to)
    check_target(output.root, collection)
    documents = documents_of(shard_names(collection.npartitions), source, {"of": ORIGIN})
    plan = output.plan(documents, options.name or output.root.rsplit("/", 1)[-1], options.policy)
    return write_each(collection.texts(), plan, options)
