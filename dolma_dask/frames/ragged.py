"""write_ragged: partition k of a dataframe or bag becomes token shard k, as `ragged` makes them of documents.

The bytes are those of `ragged` on the documents that `write_documents` makes of the same collection. Memory: one partition per thread of a
worker, and 1 MB of text being encoded.
"""

from typing import TYPE_CHECKING, Any

from dolma_dask.engine import Task, Unit
from dolma_dask.frames.partitions import collection_of, required, shard_names
from dolma_dask.frames.publishing import ORIGIN, MoveStage
from dolma_dask.frames.shards import Rows, write_each
from dolma_dask.frames.targets import check_target
from dolma_dask.io.quarantine import MAX_BAD_FRACTION, OnBadRecord, RecordPolicy
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.outputs.ragged import names_of, open_output
from dolma_dask.results.summary import Summary

if TYPE_CHECKING:
    from dask.delayed import Delayed


def write_ragged(
    frame: Any,
    to: str,
    /,
    *,
    tokenizer: str,
    bos: str | None = None,
    eos: str | None = None,
    name: str | None = None,
    source: str | None = None,
    overwrite: bool = False,
    compute: bool = True,
    scheduler: str | None = None,
    on_bad_record: OnBadRecord = "fail",
    max_bad_fraction: float = MAX_BAD_FRACTION,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> "Summary | Delayed":
    """Tokenize a Dask dataframe or bag into ragged NumPy arrays, a pair of files for each partition.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame or dask.bag.Bag
        Columns (or keys of the dicts) ``id text source``, strings; others are not read.
    to : str
        Flat output folder.
    tokenizer, bos, eos : str
        As for `ragged`.
    name : str, optional
        Beginning of the file names; by default the last part of `to`.
    source, overwrite, compute, scheduler, on_bad_record, max_bad_fraction, max_record_bytes
        As for `write_documents`.

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
    collection = collection_of(frame, "write_ragged")
    collection.check(required(source), "write_ragged")
    policy = RecordPolicy(on_bad_record, max_bad_fraction, max_record_bytes)
    output = open_output(to, tokenizer, bos, eos)
    check_target(output.root, collection)
    shards = shard_names(collection.npartitions)
    names = names_of(shards, name or output.root.rsplit("/", 1)[-1])
    key = output.key({"of": ORIGIN, "source": source}, policy)
    plan = output.plan_of(
        MoveStage(output.verb, output.root),
        [Task(shard, (Unit(names[shard].data, key),), ()) for shard in shards],
        names,
        origin=ORIGIN,
        shown={"source": source},
        policy=policy,
    )
    rows = Rows(collection.texts(), policy, source)
    return write_each(rows, plan, output, overwrite=overwrite, compute=compute, scheduler=scheduler)
