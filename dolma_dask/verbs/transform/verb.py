"""transform: rewrite the texts of documents by a function of the user, and write them as a new version.

Ids, sources and everything else of a document stay as they are, byte for byte, unless the function takes whole documents and changes them. It costs
what mix costs, and the function: with one Python call per text some 90 MB of text per CPU-second besides its own work.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Unpack

import dolma_dask
from dolma_dask import engine
from dolma_dask.engine import Plan, Unit
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.functions.calls import FunctionLike
from dolma_dask.io import files
from dolma_dask.journal import dataset_notes
from dolma_dask.options.shared import (
    DatasetLike,
    Many,
    ReadArgs,
    RuleLike,
    as_dataset,
    budget,
    check_format,
    checked,
    record_policy,
    rule_of,
    run_options,
    selected,
    without_empty,
    words_of,
)
from dolma_dask.outputs.documents import check_apart
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.kept.recipe import MixOptions
from dolma_dask.reading.selection import rule_notes, select
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.documents import DocumentOutput
from dolma_dask.verbs.transform.rewriting import Rewriting
from dolma_dask.verbs.transform.stage import TransformStage


def transform(
    dataset: DatasetLike,
    /,
    function: FunctionLike,
    *,
    to: str,
    where: RuleLike = None,
    attributes: Annotated[Sequence[str], Many] = (),
    provenance: bool = False,
    format: FileFormat | None = None,
    source: str | None = None,
    version: str | None = None,
    **options: Unpack[ReadArgs],
) -> Summary:
    """Rewrite the texts of documents by a function of yours, and write them as a new version of the dataset.

    Example: dolma-dask transform corpus/wiki/v0 --function clean.py:strip_menus --to corpus/wiki/clean

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    function : str
        Where the function is: file.py:name or module:name. From Python also the function itself. It gets a text and returns a text, or nothing to drop
        the document. If its first parameter has the type dict, or the name document, doc or record, it gets the whole document and returns that; with the
        type pyarrow.Array, or the name texts, all texts of a block, and returns as many, null where a document is dropped.
    to : str
        Root of the new version; its documents/ is written.
    where : str, optional
        Keep and rewrite only documents for which this holds, as in mix.
    attributes : list of str, optional
        Attribute sets to read for the rule; by default those that it needs.
    provenance : bool, optional
        Write into the metadata where each document comes from, file name and line, and into that of changed ones the name and digest of the function.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the new documents; by default that of each input file.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

    Returns
    -------
    Summary
        With the numbers of documents changed, unchanged and dropped, and of characters before and after.

    Raises
    ------
    StageError
        Some shards failed, for example because the function raised.
    BadRecordBudgetError
        The function failed on more documents than `max_bad_fraction` allows.
    UsageError
        The function cannot be used; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Documents keep their ids. Attributes of the old version are not copied: tag the new one.
    """
    options = checked(transform, options, ReadArgs)
    check_format(format)
    rewriting = Rewriting.of(function, bool(provenance))
    names = words_of("attributes", attributes)
    opened = as_dataset(dataset, source, version)
    target = layout.dataset_root(files.normalize(to))
    check_apart(opened.root, target, "transform")
    asked = selected(opened, options)
    selection = select(asked.with_current_attributes(), rule_of(where), names)
    mixture = make_mixture(selection, MixOptions(), names)
    output = DocumentOutput(target, format, verb="transform")
    policy = record_policy(options)
    stage = TransformStage((output,), policy, "transform", rewriting, opened.root)
    every = [output.path(shard) for shard in opened.shards]
    layout.check_no_collision(every)
    key = stage.key(mixture)
    rule = selection.rule
    plan = Plan(
        stage=stage,
        root=target,
        tasks=[
            stage.task(mixture.source(shard), Unit(output.path(shard), key))
            for shard in mixture.dataset.shards
        ],
        params=without_empty(
            {
                "from": opened.root,
                "function": rewriting.function.name,
                "function_version": rewriting.function.version,
                "where": None if rule is None else str(rule),
                "attributes": list(names),
                "provenance": bool(provenance) or None,
                "format": format,
                "source": source,
            }
        ),
        writes=(f"{layout.DOCUMENTS}/",),
        options_key=key,
        version=dolma_dask.__version__,
        origin=opened.root,
        reads=layout.DOCUMENT_SUFFIXES,
        all_units=frozenset(every),
        other_formats=layout.other_formats(every),
        max_bad_fraction=budget(policy),
        quarantine=files.join(target, f"{layout.QUARANTINE}/transform"),
        notes=(*dataset_notes(opened), *mixture.notes),
    )
    summary = engine.run(plan, run_options(options)).summary
    return replace(summary, notes=tuple(dict.fromkeys((*summary.notes, *rule_notes(summary)))))
