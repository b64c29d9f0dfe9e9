"""read_dataframe and read_bag: documents and attributes of a dataset side by side as one lazy Dask collection."""

import json
from collections.abc import Iterator, Sequence
from multiprocessing import current_process
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from dolma_dask.dataset import Dataset, open_dataset
from dolma_dask.errors import UsageError
from dolma_dask.formats.documents import METADATA
from dolma_dask.frames.cutting import PARTITION_BYTES, Partition, Partitions, cut
from dolma_dask.frames.naming import FrameColumn, select_columns, words_of
from dolma_dask.frames.reading import OnBadRow, PartitionSource
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.options.base import check_truth
from dolma_dask.ownership import check_budget
from dolma_dask.results.summary import Summary

if TYPE_CHECKING:
    from dask.bag import Bag
    from dask.dataframe import DataFrame


def read_dataframe(
    dataset: str | Dataset | Summary,
    /,
    columns: Sequence[str] | str | None = None,
    attributes: Sequence[str] | str = (),
    *,
    prefix: bool = False,
    short: bool = False,
    spans: bool = False,
    partition_bytes: int | None = PARTITION_BYTES,
    source: str | None = None,
    version: str | None = None,
    on_bad_record: OnBadRow = "fail",
    max_record_bytes: int = MAX_RECORD_BYTES,
    only: Sequence[str] = (),
    prune: int | None = None,
    skip: Sequence[str] = (),
    ids_as_text: bool = False,
) -> "DataFrame":
    """Return documents and attributes side by side as a lazy Dask DataFrame, a row per document, in the order of the files.

    Only what a computation needs is read: ``df["id"]`` parses no text, a mean of an attribute does not open the documents where the
    journal proves that the attributes belong to them, and ``len(df)`` reads nothing where the journal knows the rows of the files as they
    are (files whose time stamp it does not know are hashed; else lines are counted). Attributes are proved to line up as far as they are
    read: a set whose columns a computation does not use is not opened.

    Parameters
    ----------
    dataset : str, Dataset or Summary
        Folder or URL with documents/ in it, an open dataset, or the summary of the verb that wrote it.
    columns : list of str, optional
        ``id text source added created metadata`` (its JSON text), ``metadata.<field>`` for scalars in the metadata object, at any depth
        (``metadata.page.hash``; ``metadata.page:str`` is the text of what is of several kinds), metrics of the chain on LUMI (``number_of_words``), and single attribute keys, for which a unique ending or ``<set>/<ending>`` is enough; looked for in
        `attributes` first, then in all sets. By default ``id source text``.
    attributes : list of str
        Attribute sets whose keys all become columns, after `columns` and sorted within each set; "all" for every set of the dataset.
    prefix : bool
        Name the columns of attributes ``<set>/<key>`` in place of ``<key>``, so that two sets may have one key.
    short : bool
        Name them by what stands behind the last ``__`` of a key: ``word_count`` for ``gopher_v2__gopher_v2__word_count``. Two columns of one
        short name are an error that names both; with `prefix` they are ``<set>/word_count``.
    spans : bool
        Give attributes of a whole document as spans too, as they stand in JSON, in place of one number.
    partition_bytes : int or None
        Bytes of JSON lines in a partition, about, before compression. Smaller shards share a partition; larger ones are cut where the journal,
        a table's footer or a look for newlines tells where rows start. None: one partition per shard.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.
    on_bad_record : {"fail", "null"}
        Fail at a document that could not be read, or give a row of nulls.
    max_record_bytes : int
        Longer lines are bad records.
    only : list of str
        Only shards whose path contains one of these, or matches it as a shell pattern.
    prune : int, optional
        Only the first so many shards.
    skip : list of str
        Files below documents/ that are left out as if they were not there: names, paths or shell patterns.
    ids_as_text : bool
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17".

    Returns
    -------
    dask.dataframe.DataFrame
        Strings are ``str`` (``string[pyarrow]`` before pandas 3), numbers and attributes of a whole document float64 (missing: NaN), booleans
        ``boolean``, spans ``list<struct<start: int64, end: int64, score: double>>`` of Arrow. The index counts the rows of each partition.
        An integer that float64 does not hold, as hashes of 64 bits are, is an error where its column is computed.

    Raises
    ------
    ExpressionError, UsageError
        A column or set is unknown or ambiguous, two columns would have one name, or an argument cannot be.
    MissingAttributesError, AlignmentError
        A shard has no attribute file in a set; or, while computing, files do not line up.
    StaleAttributesError, BadRecordError, CorruptFileError, SchemaError, SourceChangedError
        While computing; the last one if a file was written since the dataset was opened.

    Warns
    -----
    LargePartitionWarning
        Text is requested, and a file of more than 1 GB of lines cannot be cut.

    Notes
    -----
    In Dask, several functions of one column, "median" among them, give columns of two levels: ``df.groupby("source").n.agg(["median", "sum"])`` has
    ``("n", "sum")``, and no column ``"sum"``. Name what you want: ``df.groupby("source").agg(middle=("n", "median"), total=("n", "sum"))``.

    Examples
    --------
    >>> df = read_dataframe("corpus/wiki", ["id", "source"], attributes=["gopher_v2"])  # doctest: +SKIP
    >>> df[df.gopher_v2__gopher_v2__word_count > 50].groupby("source").size().compute()  # doctest: +SKIP
    """
    partitions, reader = prepare(**locals())  # all that was given
    from dolma_dask.frames.expression import collection

    return collection(partitions, reader)


def prepare(
    dataset: str | Dataset | Summary,
    columns: Sequence[str] | str | None,
    attributes: Sequence[str] | str,
    *,
    prefix: bool,
    short: bool,
    spans: bool,
    partition_bytes: int | None,
    source: str | None,
    version: str | None,
    on_bad_record: OnBadRow,
    max_record_bytes: int,
    only: Sequence[str],
    prune: int | None,
    skip: Sequence[str],
    ids_as_text: bool,
) -> tuple[Partitions, PartitionSource]:
    """Return partitions and what reads them; see `read_dataframe`."""
    if on_bad_record not in get_args(OnBadRow):
        raise UsageError(f"on_bad_record={on_bad_record!r}; expected one of {', '.join(get_args(OnBadRow))}.")
    RecordPolicy(max_record_bytes=max_record_bytes)  # refuses what is no size
    listed = _opened(dataset, source, version, words_of("skip", skip))
    listed = listed.with_ids_as_text() if check_truth("ids_as_text", ids_as_text) else listed
    listed.check_all_read(words_of("only", only))
    check_budget(listed.root)
    opened = listed.select(words_of("only", only), prune)
    selected, sets = select_columns(opened, columns, attributes, prefix=prefix, short=short, spans=spans)
    with_text = any(column.set is None and column.key in ("text", METADATA) for column in selected)
    partitions = cut(opened, sets, partition_bytes, with_text=with_text)
    return partitions, PartitionSource(opened.root, selected, opened.source, on_bad_record, max_record_bytes)


def _opened(
    dataset: str | Dataset | Summary, source: str | None, version: str | None, skip: Sequence[str]
) -> Dataset:
    if isinstance(dataset, Dataset) and version is None:
        return dataset.without(skip)
    if not isinstance(dataset, str | PathLike | Summary):
        raise UsageError(
            f"the dataset is of type {type(dataset).__name__}; expected a folder or URL, an open dataset, or the summary of a verb."
        )
    target = dataset.target if isinstance(dataset, Summary) else fspath(dataset)
    return open_dataset(target, source=source, version=version, skip=skip)


def read_bag(
    dataset: str | Dataset | Summary,
    /,
    columns: Sequence[str] | str | None = None,
    attributes: Sequence[str] | str = (),
    *,
    prefix: bool = False,
    short: bool = False,
    spans: bool = False,
    partition_bytes: int | None = PARTITION_BYTES,
    source: str | None = None,
    version: str | None = None,
    on_bad_record: OnBadRow = "fail",
    max_record_bytes: int = MAX_RECORD_BYTES,
    only: Sequence[str] = (),
    prune: int | None = None,
    skip: Sequence[str] = (),
    ids_as_text: bool = False,
) -> "Bag":
    """Return documents and attributes side by side as a lazy Dask Bag, a dict per document, in the order of the files.

    Every document becomes Python objects, and all that is requested is read: request little, or take a dataframe, which reads what it needs.

    Parameters
    ----------
    dataset, columns, attributes, prefix, short, spans, partition_bytes, source, version, on_bad_record, max_record_bytes, only, prune, skip, ids_as_text
        As for `read_dataframe`.

    Returns
    -------
    dask.bag.Bag
        Dicts with every column as a key: str, float, bool, ``[[start, end, score], ...]`` for spans, None where there is no value;
        ``metadata`` is the parsed object. A partition is read while it is consumed, so that what is wrong at the end of a file is only
        found when the end is read. Dask computes bags in processes that import the script: it needs an ``if __name__ == "__main__":``.

    Raises
    ------
    DolmaDaskError
        As `read_dataframe`.

    Examples
    --------
    >>> read_bag("corpus/wiki", ["id", "metadata"]).filter(lambda row: row["metadata"]["n"] > 3).take(1)  # doctest: +SKIP
    """
    partitions, reader = prepare(**locals())  # all that was given
    from dask.bag import Bag
    from dask.base import tokenize

    name = f"read_bag-{tokenize(partitions, reader)}"
    graph = {(name, number): (read_rows, partition, reader) for number, partition in enumerate(partitions)}
    if getattr(current_process(), "_inheriting", False):
        return Bag(_Unguarded(graph), name, len(partitions))
    return Bag(graph, name, len(partitions))


class _Unguarded(dict[Any, Any]):
    """The graph of a bag in a process that Dask has just started: it imports the script, which must not compute the bag again."""

    def __iter__(self) -> Iterator[Any]:
        raise UsageError(
            "a bag was computed by a script without a main guard: Dask computes bags in further processes, and each imports the script. Put what "
            "it does below `if __name__ == '__main__':`, or compute with scheduler='threads' or on a cluster (dk.cluster())."
        )

    keys = items = values = __iter__  # type: ignore[assignment]


def read_rows(partition: Partition, source: PartitionSource) -> Iterator[dict[str, Any]]:
    """Yield the rows of a partition."""
    names = [column.name for column in source.columns]
    for batch in source.read(partition, source.columns):
        values = [_values(array, column) for array, column in zip(batch.columns, source.columns, strict=True)]
        for row in zip(*values, strict=True):
            yield dict(zip(names, row, strict=True))


def _values(array: pa.Array, column: FrameColumn) -> list[Any]:
    values = array.to_pylist()
    if column.set is None and column.key == METADATA:
        return [None if text is None else json.loads(text) for text in values]
    return [_spans(value) for value in values] if column.kind == "spans" else values


def _spans(value: list[dict[str, Any]] | None) -> list[list[Any]] | None:
    return None if value is None else [[span["start"], span["end"], span["score"]] for span in value]
