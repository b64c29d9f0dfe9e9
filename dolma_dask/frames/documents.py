"""write_documents: partition k of a dataframe or bag becomes ``documents/part-<k>``, a dataset like any other.

Documents are spelled anew from columns: the order of fields and the spelling of numbers in the lines they came from are not kept, as `mix` keeps
them. Memory: one partition per thread of a worker, and some blocks. Files appear when all partitions are written.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from dask.delayed import Delayed
from msgspec.structs import replace

from dolma_dask.engine.documents import file_plan
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.frames.options import WriteOptions, frame_of
from dolma_dask.frames.partitions import collection_of, required, shard_names
from dolma_dask.frames.shards import documents_of, write_each
from dolma_dask.frames.targets import check_target
from dolma_dask.io import files
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.documents import DocumentOutput

VERB = "write_documents"

VERSION = 1
"""Raised whenever other bytes are written for the same rows."""

SPELLED_ANEW = "documents were spelled anew from columns; mix keeps the bytes of lines"


@dataclass(frozen=True, kw_only=True)
class DocumentsOptions(WriteOptions):
    """Options of `write_documents`."""

    format: Annotated[FileFormat, Opt("Format of the files.")] = "jsonl.gz"


@command
def write_documents(
    frame: Annotated[
        Any,
        frame_of(
            "Columns (or keys of the dicts) ``id text source``, strings; ``added created``, strings, and ``metadata``, JSON text or objects, if they "
            "are there. All further columns become fields of the metadata, without missing values (null, NaN)."
        ),
    ],
    to: Annotated[str, Opt("Root of the dataset: a folder or URL.")],
    /,
    *,
    options: DocumentsOptions,
) -> Summary | Delayed:
    """Write a Dask dataframe or bag as documents: partition k becomes ``documents/part-<k>.jsonl.gz`` of a dataset.

    Every row is spelled anew, so that bytes differ from those of the lines it came from; where documents are only selected, `mix` keeps them.

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
    collection = collection_of(frame, VERB)
    collection.check(required(options.source), VERB)
    root = files.normalize(to)
    check_target(root, collection)
    output = DocumentOutput(root, options.format, verb=VERB)
    documents = documents_of(shard_names(collection.npartitions, options.format), options.source)
    paths = {shard: layout.document_path(shard) for shard in documents.shards}
    plan = file_plan(output, documents, paths, options.policy, {"format": options.format}, version=VERSION)
    folders, suffixes = (f"{layout.DOCUMENTS}/",), layout.DOCUMENT_SUFFIXES
    plan = replace(plan, writes=folders, reads=suffixes, notes=(SPELLED_ANEW,))
    return write_each(collection, plan, options)
