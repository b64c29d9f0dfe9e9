"""mix: read documents and attributes side by side, keep the rows that rules and filters keep, and write a new version in one pass.

Kept documents are copied byte for byte, but what options change. Memory: a few blocks per worker. An attribute file that is missing,
short, long, swapped or stale is an error, never silently unfiltered output.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Unpack

from dolma_dask.errors import UsageError
from dolma_dask.formats.layout import FileFormat
from dolma_dask.rules.filters import Syntax
from dolma_dask.verbs.mix.call import MixCall, make_goal
from dolma_dask.verbs.mix.lists import ThresholdsLike, narrow
from dolma_dask.verbs.mix.planning import make_mixture
from dolma_dask.verbs.mix.recipe import ReplaceLike, make_options
from dolma_dask.verbs.mix.summary import MixSummary
from dolma_dask.verbs.mix.tokens import TokensLike, token_options
from dolma_dask.verbs.options import (
    DatasetLike,
    Many,
    ReadArgs,
    RuleLike,
    as_dataset,
    checked,
    dataset_notes,
    rule_of,
    selected,
    told,
    words_of,
)
from dolma_dask.verbs.selection import select


def mix(
    dataset: DatasetLike,
    /,
    *,
    to: str | None = None,
    ragged: TokensLike = None,
    hdf5: TokensLike = None,
    where: RuleLike = None,
    include: Annotated[Sequence[str], Many] = (),
    exclude: Annotated[Sequence[str], Many] = (),
    syntax: Syntax = "jsonpath",
    block: Annotated[Sequence[str], Many] = (),
    allow: Annotated[Sequence[str], Many] = (),
    thresholds: ThresholdsLike = None,
    replace: Annotated[Sequence[ReplaceLike], Many] = (),
    merge_attributes: bool = False,
    discard_fields: Annotated[Sequence[str], Many] = (),
    min_text_length: int = 0,
    provenance: bool = False,
    sample: float | None = None,
    shuffle: bool = False,
    seed: int = 0,
    max_size: int | None = None,
    name: str = "part",
    attributes: Annotated[Sequence[str], Many] = (),
    format: FileFormat | None = None,
    source: str | None = None,
    **options: Unpack[ReadArgs],
) -> MixSummary:
    """Write a new version of a dataset with the documents that rules and filters keep.

    Example: dolma-dask mix corpus/wiki/v0 --to corpus/wiki/v1 --where "word_count >= 50 and symbol_to_word_ratio < 0.1"

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    to : str, optional
        Root of the new version; its documents/ is written. Not needed if ragged or hdf5 is given.
    ragged : dict, optional
        Options of the verb ragged, to and tokenizer among them: token arrays of the new documents from the same reading. On the command line as
        JSON: '{"to": "out/ragged", "tokenizer": "t5.json", "eos": "</s>"}'. With shuffle or max_size they are made of the new files.
    hdf5 : dict, optional
        Options of the verb hdf5, in the same way: '{"to": "out/h5", "tokenizer": "neox.json", "max_seq_length": 2048}'.
    where : str, optional
        Expression over id, source, added, created, metadata.<field> and attribute keys; a unique ending of a key is enough. A comparison with
        a missing value is false.
    include, exclude : list of str, optional
        Filters in JSONPath or jq, as the Dolma toolkit has them: a document is kept if any of `include` matches, and none of `exclude`.
    syntax : {"jsonpath", "jq"}, optional
        Language of the filters.
    block, allow : list of str, optional
        Files of ids, or sources and ids: listed documents are dropped, or kept alone. They are marked first, as by the verb block.
    thresholds : str or Thresholds, optional
        Keep only documents inside of the bounds that quantiles wrote into this file.
    replace : list of dict, optional
        Spans to replace, each with the keys span, min_score, max_score, replacement and syntax, on the command line as JSON:
        '{"span": "$.attributes.pii__pii__EMAIL_ADDRESS", "min_score": 0.5, "replacement": "|||EMAIL|||"}'. {} stands for the span's text.
    merge_attributes : bool, optional
        Write the attributes of the sets in `attributes` into the documents, as the Dolma toolkit does.
    discard_fields : list of str, optional
        Fields that the new documents do not have.
    min_text_length : int, optional
        Bytes of text, without white space around it, that a document needs after replacement.
    provenance : bool, optional
        Write into the metadata where each document comes from: file name and line.
    sample : float, optional
        How often each document is taken: 0.3 for three of ten, 2.5 for each twice and half of them once more; chosen by a hash of source and id.
    shuffle : bool, optional
        Write the documents of all shards in an order drawn by the seed.
    seed : int, optional
        Of the sample and the shuffle.
    max_size : int, optional
        Stored bytes of an output file at most. With it, or with shuffle, documents go to files <name>-0000.jsonl.gz, -0001 and so on; without,
        to one file per input file.
    name : str, optional
        Of these files.
    attributes : list of str, optional
        Attribute sets to read; by default those that rules and filters need. For filters, later ones win where two have one key.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the new documents; by default that of each input file.
    source : str, optional
        Source of all documents, for files that lack the field.

    Returns
    -------
    MixSummary
        With the number of documents for which each part of the rule holds, and that each filter matches.

    Raises
    ------
    StageError
        Some shards failed, for example because attributes do not line up.
    ExpressionError
        A rule or filter cannot be parsed, or names an unknown column.
    UsageError
        An argument is unknown, or has a value that it cannot have; no row has an attribute that a filter names.
    """
    options = checked(mix, options, ReadArgs)
    attributes = words_of("attributes", attributes)
    lists = words_of("block", block), words_of("allow", allow)
    where = rule_of(where)
    changes = make_options(
        include=include,
        exclude=exclude,
        syntax=syntax,
        replacements=replace,
        discard_fields=discard_fields,
        min_text_length=min_text_length,
        provenance=provenance,
        merge_attributes=merge_attributes,
        sample_rate=sample,
        seed=seed,
    )
    if merge_attributes and not attributes:
        raise UsageError(
            "merge_attributes without attributes; expected the sets to write into the documents, in their order."
        )
    goal = make_goal(
        to=to,
        tokens=token_options(ragged, hdf5),
        file_format=format,
        name=name,
        max_size=max_size,
        seed=seed if shuffle else None,
    )
    found = as_dataset(dataset, source)
    goal.check(found.root)
    chosen = selected(found, options)
    narrowed = narrow(found, where, *lists, thresholds, options)
    of_rule = (
        (*attributes, *(name for name in narrowed.names if name not in attributes)) if attributes else ()
    )
    selection = select(chosen.with_current_attributes(), narrowed.where, of_rule)
    mixture = make_mixture(selection, changes, attributes, in_order=merge_attributes)
    shown = told(
        {
            "where": None if narrowed.where is None else str(narrowed.where),
            "attributes": list(attributes),
            "source": source,
            **changes.params(),
        }
    )
    notes = (*dataset_notes(found), *narrowed.notes, *mixture.notes)
    summary = MixCall(found, mixture, goal, shown, notes).run(options)
    return dataclasses.replace(summary, lost=summary.lost or narrowed.lost)
