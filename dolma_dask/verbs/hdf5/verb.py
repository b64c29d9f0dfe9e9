"""hdf5: documents -> rows of a fixed number of tokens in HDF5 files, as Cerebras ModelZoo trains on them.

Two passes. The first tokenizes each shard once, into staging files beside the output; sums of their tokens say which token every row begins with.
The second writes the files from the staging files, which are removed at the end. Rows follow from the order of documents alone: other shards,
files or workers give the same rows. Disk: the staging files take about half of the text. Memory: a few blocks and 256 KB of text being encoded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec.structs import replace

from dolma_dask.engine import run_job
from dolma_dask.engine.documents import DocumentList
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import NO_SHARD, DatasetLike, check_outside, same
from dolma_dask.outputs.hdf5.job import Hdf5Summary
from dolma_dask.outputs.hdf5.options import RowOptions, make_job
from dolma_dask.outputs.hdf5.raw import RawTexts, raw_documents
from dolma_dask.outputs.kept import FileOptions
from dolma_dask.outputs.tokenizing import by_definition_if_engines_differ


@dataclass(frozen=True, kw_only=True)
class Hdf5Options(RowOptions, FileOptions):
    """Options of `hdf5`."""


@command
def hdf5(
    dataset: Annotated[
        DatasetLike | RawTexts,
        Opt("Folder or URL with documents/ in it.", kind="str or Dataset", convert=same),
    ],
    to: Annotated[str, Opt("Output folder or URL.")],
    /,
    *,
    options: Hdf5Options,
) -> Hdf5Summary:
    """Pack documents into rows of tokens for training: part-<n>-<i>.h5 with ids, loss mask and labels, and data_params.json.

    Example: dolma-dask hdf5 corpus/wiki/v1 out/h5 --tokenizer neox.json --max-seq-length 2048

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

    Under compat="modelzoo-2.2" ftfy is on and `min_sequence_len` 6 by default, empty texts and records that lack a field are skipped, an `eos_id` is the
    padding too, `inverted_mask` does nothing to rows of texts, `remove_bos_in_chunks` drops a token of each further piece, short rows are drawn as by
    one process, and those of FIM as by one for each file, sequences are packed as there, and DPO predicts the mark before an answer too. The tail is kept
    all the same; ModelZoo loses it: tail="drop".

    Options of create_hdf5_dataset.py are taken behind the name of a mode; dolma-dask hdf5 DPO --help lists those of DPO.
    """
    documents, told = _documents(dataset, to, options), dataset.told if isinstance(dataset, RawTexts) else {}
    return by_definition_if_engines_differ([options], lambda: _made(documents, to, options, told))


def _made(documents: DocumentList, to: str, options: Hdf5Options, told: Mapping[str, Any]) -> Hdf5Summary:
    job = make_job(documents, to, options, options.policy, told)
    check_outside(job.root, documents.origin)
    if not documents.parts:
        return Hdf5Summary("hdf5", job.root, notes=(*job.documents.notes, NO_SHARD))
    return run_job(job, options)


def _check_apart(input_dir: str | None, to: str) -> None:
    """Refuse a target inside of the folder of raw files: the next run would read the output as such."""
    if input_dir is None:
        return
    target, folder = (files.resolved(files.normalize(url)) for url in (to, input_dir))
    if f"{target}/".startswith(f"{folder}/"):
        raise UsageError(
            f"output_dir {to} lies in input_dir {input_dir}; expected a folder outside of it, or the next run would read what this one has written."
        )


def _documents(dataset: DatasetLike | RawTexts, to: str, options: Hdf5Options) -> DocumentList:
    """Return the documents of a dataset that a rule keeps, or raw texts."""
    if not isinstance(dataset, RawTexts):
        return options.documents(options.open(dataset), to)
    if options.where is not None or options.attributes:
        raise UsageError(
            "where and attributes are of a dataset, and raw files were given; expected one of them. Convert the files first: dolma-dask convert."
        )
    _check_apart(dataset.input_dir, to)
    fields = options.record_fields()
    return raw_documents(replace(dataset, fields=fields, is_lenient=options.is_like_modelzoo), options)
