"""hdf5: documents -> rows of a fixed number of tokens in HDF5 files, as Cerebras ModelZoo trains on them.

Two passes. The first tokenizes each shard once, into staging files beside the output; sums of their tokens say which token every row begins with.
The second writes the files from the staging files, which are removed at the end. Rows follow from the order of documents alone: other shards,
files or workers give the same rows. Disk: the staging files take about half of the text. Memory: a few blocks and 1 MB of text being encoded.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Annotated, Unpack

from dolma_dask.engine import run_job
from dolma_dask.errors import UsageError
from dolma_dask.formats.hdf5 import MAX_ROWS_PER_FILE
from dolma_dask.journal import dataset_notes
from dolma_dask.options.shared import (
    NO_SHARD,
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
from dolma_dask.outputs.hdf5.job import Documents, Hdf5Summary
from dolma_dask.outputs.hdf5.options import Compat, LmOptions, Target, make_job
from dolma_dask.outputs.hdf5.raw import RawTexts, raw_documents
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.selection import select
from dolma_dask.tokens.cleaning import Normalizer
from dolma_dask.tokens.packing import Tail


def hdf5(
    dataset: DatasetLike | RawTexts,
    to: str,
    /,
    *,
    tokenizer: str,
    mode: str = "LMData",
    max_seq_length: int = 2048,
    tail: Tail = "pad",
    pack_sequences: bool = True,
    where: RuleLike = None,
    attributes: Annotated[Sequence[str], Many] = (),
    eos: str | None = None,
    pad: str | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    min_sequence_len: int | None = None,
    short_seq_prob: float = 0.0,
    seed: int = 0,
    use_ftfy: bool | None = None,
    ftfy_normalizer: Normalizer | None = "NFC",
    wikitext_detokenize: bool = False,
    split_text_to_tokenize: bool = False,
    chunk_len_to_split: int = 2000,
    remove_bos_in_chunks: bool = False,
    inverted_mask: bool = False,
    max_rows_per_file: int = MAX_ROWS_PER_FILE,
    compat: Compat | None = None,
    source: str | None = None,
    version: str | None = None,
    **options: Unpack[ReadArgs],
) -> Hdf5Summary:
    """Pack documents into rows of tokens for training: part-<n>-<i>.h5 with ids, loss mask and labels, and data_params.json.

    Example: dolma-dask hdf5 corpus/wiki/v1 out/h5 --tokenizer neox.json --max-seq-length 2048

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    to : str
        Output folder or URL.
    tokenizer : str
        Path of a complete tokenizer JSON (Hugging Face tokenizers).
    mode : str
        LMData: documents as a stream of tokens, each predicted from those before it.
    max_seq_length : int
        Tokens of a row.
    tail : {"pad", "drop"}
        What happens to the last tokens, which fill no row: one more row with padding, or nothing.
    pack_sequences : bool
        Rows go on from document to document; else every document begins a row, and its last row is padded.
    where : str, optional
        Keep only documents for which this holds, as in mix, without writing them first.
    attributes : list of str, optional
        Attribute sets to read; by default those that the rule needs.
    eos : str, optional
        Token behind each document; by default the tokenizer's own. "none" for none.
    pad : str, optional
        Token that fills a row; by default the tokenizer's own, else that of `eos`.
    eos_id : int, optional
        Token behind each document, by its id.
    pad_id : int, optional
        Token that fills a row, by its id.
    min_sequence_len : int, optional
        Without packing: rows of fewer tokens are left out; by default 10.
    short_seq_prob : float
        Share of rows that are cut at random, 2 to `max_seq_length` - 1 tokens being left; the others are lost.
    seed : int
        Seed of the rows that are cut at random.
    use_ftfy : bool, optional
        Repair texts with ftfy first; by default not.
    ftfy_normalizer : {"NFC", "NFD", "NFKC", "NFKD"}, optional
        Unicode normalization that ftfy ends with. In Python None for none.
    wikitext_detokenize : bool
        Put the punctuation of wikitext together.
    split_text_to_tokenize : bool
        Cut texts before they are tokenized, for tokenizers that are slow on long texts.
    chunk_len_to_split : int
        Characters after which the next space begins a piece.
    remove_bos_in_chunks : bool
        What the tokenizer adds stands around a document, not around each of its pieces.
    inverted_mask : bool
        The loss mask is 1 where nothing is predicted.
    max_rows_per_file : int
        Files have at most so many rows, and nearly the same number.
    compat : {"modelzoo-2.2"}, optional
        Do as that release of ModelZoo where it differs from its documentation; see the notes.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

    Returns
    -------
    Hdf5Summary

    Raises
    ------
    StageError
        Some shards could not be read, or some files not be written.
    UsageError
        The tokenizer cannot be read, or lacks a special token; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Rows do not depend on shards, files or workers. A stream of one token has nothing to predict and makes no row.

    Under compat="modelzoo-2.2" ftfy is on and `min_sequence_len` 6 by default, empty texts are skipped, an `eos_id` is the padding too,
    `inverted_mask` does nothing, `remove_bos_in_chunks` drops a token of each further piece, and short rows are drawn as by one process. The tail
    is kept all the same; ModelZoo loses it: tail="drop".
    """
    given = locals()
    rows = LmOptions(**{option.name: given[option.name] for option in fields(LmOptions)})
    options = checked(hdf5, options, ReadArgs)
    where = rule_of(where)
    target = Target(to, tokenizer, mode, max_rows_per_file)
    documents = _documents(dataset, where, words_of("attributes", attributes), source, version, rows, options)
    job = make_job(documents, target, rows, record_policy(options))
    check_outside(job.root, documents.origin)
    if not documents.parts:
        return Hdf5Summary("hdf5", job.root, notes=(*job.documents.notes, NO_SHARD))
    return run_job(job, run_options(options))


def _documents(
    dataset: DatasetLike | RawTexts,
    where: RuleLike,
    attributes: Sequence[str],
    source: str | None,
    version: str | None,
    rows: LmOptions,
    options: ReadArgs,
) -> Documents:
    """Return the documents of a dataset that `where` keeps, or raw texts; `options` select shards."""
    if not isinstance(dataset, RawTexts):
        opened = as_dataset(dataset, source, version)
        asked = selected(opened, options)
        mixture = make_mixture(select(asked, where, attributes))
        shown = {"where": None if where is None else str(where), "source": source}
        notes = (*dataset_notes(opened), *mixture.notes)
        is_narrowed = len(asked.shards) < len(opened.shards)
        return Documents(opened.root, mixture.sources, mixture.params(), shown, notes, is_narrowed)
    if where is not None or attributes:
        raise UsageError(
            "where and attributes are of a dataset, and raw files were given; expected one of them. Convert the files first: dolma-dask convert."
        )
    return raw_documents(replace(dataset, is_lenient=rows.is_like_modelzoo), options)
