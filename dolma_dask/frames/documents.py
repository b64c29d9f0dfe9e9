"""write_documents: partition k of a dataframe or bag becomes ``documents/part-<k>``, a dataset like any other.

Documents are spelled anew from columns: the order of fields and the spelling of numbers in the lines they came from are not kept, as `mix` keeps
them. Memory: one partition per thread of a worker, and some blocks. Files appear when all partitions are written.
"""

from typing import TYPE_CHECKING, Any

import dolma_dask
from dolma_dask.engine import Plan, Task, Unit
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.frames.partitions import collection_of, required, shard_names
from dolma_dask.frames.publishing import ORIGIN, MoveStage
from dolma_dask.frames.shards import Rows, of_rows, write_each
from dolma_dask.frames.targets import check_target
from dolma_dask.io import files
from dolma_dask.io.quarantine import MAX_BAD_FRACTION, OnBadRecord, RecordPolicy
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import work_key
from dolma_dask.options.shared import budget, check_choice, without_empty
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.documents import DocumentOutput

if TYPE_CHECKING:
    from dask.delayed import Delayed

VERB = "write_documents"

VERSION = 1
"""Raised whenever other bytes are written for the same rows."""

SPELLED_ANEW = "documents were spelled anew from columns; mix keeps the bytes of lines"


def write_documents(
    frame: Any,
    to: str,
    /,
    *,
    format: FileFormat = "jsonl.gz",
    source: str | None = None,
    overwrite: bool = False,
    compute: bool = True,
    scheduler: str | None = None,
    on_bad_record: OnBadRecord = "fail",
    max_bad_fraction: float = MAX_BAD_FRACTION,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> "Summary | Delayed":
    """Write a Dask dataframe or bag as documents: partition k becomes ``documents/part-<k>.jsonl.gz`` of a dataset.

    Every row is spelled anew, so that bytes differ from those of the lines it came from; where documents are only selected, `mix` keeps them.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame or dask.bag.Bag
        Columns (or keys of the dicts) ``id text source``, strings; ``added created``, strings, and ``metadata``, JSON text or
        objects, if they are there. All further columns become fields of the metadata, without missing values (null, NaN).
    to : str
        Root of the dataset: a folder or URL.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}
        Format of the files.
    source : str, optional
        Source of the rows that have none.
    overwrite : bool
        Replace files of another verb or call, and remove those that this call does not make.
    compute : bool
        False: return the task that does it, whose result is the summary.
    scheduler : str, optional
        For `dask.compute`: "threads", "synchronous", "processes"; by default the active client, else threads.
    on_bad_record : {"fail", "quarantine"}
        Fail at a row that is no document (an id, text or source is null, the metadata are no object), or set it aside.
    max_bad_fraction : float
        Share of rows that may be set aside.
    max_record_bytes : int
        Longer rows are bad.

    Returns
    -------
    Summary or dask.delayed.Delayed

    Raises
    ------
    UsageError
        A column is missing, files of others are in the way, or the target lies in folders of a dataset; nothing is computed then.
    BadRecordError, BadRecordBudgetError, SchemaError
        While computing; nothing has appeared then.

    Examples
    --------
    >>> df = read_dataframe("corpus/v0", attributes=["gopher_v2"], short=True)  # doctest: +SKIP
    >>> write_documents(df[df.word_count > 50][["id", "source", "text"]], "corpus/v1")  # doctest: +SKIP
    """
    check_choice("format", format, layout.FORMATS)
    collection = collection_of(frame, VERB)
    collection.check(required(source), VERB)
    policy = RecordPolicy(on_bad_record, max_bad_fraction, max_record_bytes)
    root = files.normalize(to)
    check_target(root, collection)
    output = DocumentOutput(root, format, verb=VERB)
    shards = shard_names(collection.npartitions, format)
    key = work_key(VERB, VERSION, {"format": format, "source": source, **of_rows(policy)})
    units = {shard: layout.document_path(shard) for shard in shards}
    plan = Plan(
        stage=MoveStage(VERB, root),
        root=root,
        tasks=[Task(shard, (Unit(path, key),), ()) for shard, path in units.items()],
        params=without_empty({"from": ORIGIN, "format": format, "source": source}),
        writes=(f"{layout.DOCUMENTS}/",),
        version=dolma_dask.__version__,
        origin=ORIGIN,
        all_units=frozenset(units.values()),
        reads=layout.DOCUMENT_SUFFIXES,
        max_bad_fraction=budget(policy),
        notes=(SPELLED_ANEW,),
    )
    rows = Rows(collection, policy, source)
    return write_each(rows, plan, output, overwrite=overwrite, compute=compute, scheduler=scheduler)
