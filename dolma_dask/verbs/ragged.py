"""ragged: documents -> token ids, all documents of a shard back to back, with their lengths beside them.

From a dataset, or straight from a selection of it (``where``), without a file between. One token shard per document shard; order is kept.
Memory: a few blocks and 1 MB of text being encoded per worker; ids are kept in local scratch until the header is known.
"""

from collections.abc import Sequence
from typing import Annotated, Unpack

from dolma_dask.options.shared import (
    DatasetLike,
    Many,
    ReadArgs,
    RuleLike,
    as_dataset,
    check_outside,
    checked,
    record_policy,
    rule_of,
    selected,
    words_of,
)
from dolma_dask.outputs.ragged import make_arrays, open_output
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.selection import select
from dolma_dask.results.summary import Summary


def ragged(
    dataset: DatasetLike,
    to: str,
    /,
    *,
    tokenizer: str,
    where: RuleLike = None,
    attributes: Annotated[Sequence[str], Many] = (),
    bos: str | None = None,
    eos: str | None = None,
    name: str | None = None,
    source: str | None = None,
    version: str | None = None,
    **options: Unpack[ReadArgs],
) -> Summary:
    """Tokenize documents into ragged NumPy arrays: <name>.<i>-of-<n>.data.npy with the ids, .len.npy with tokens per document.

    Example: dolma-dask ragged corpus/wiki/v1 out/ragged --tokenizer t5.json --eos "</s>"

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    to : str
        Flat output folder.
    tokenizer : str
        Path of a complete tokenizer JSON (Hugging Face tokenizers).
    where : str, optional
        Keep only documents for which this holds, as in mix, without writing them first.
    attributes : list of str, optional
        Attribute sets to read; by default those that the rule needs.
    bos : str, optional
        Token to put before each document; by default none.
    eos : str, optional
        Token to put after each document; by default none.
    name : str, optional
        Beginning of the file names; by default the dataset's folder. Shards that are numbered already, as C4's, keep their names.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some shards failed.
    UsageError
        The tokenizer cannot be read, or lacks a special token; or an argument is unknown, or has a value that it cannot have.
    """
    options = checked(ragged, options, ReadArgs)
    attributes = words_of("attributes", attributes)
    where = rule_of(where)
    opened = as_dataset(dataset, source, version)
    policy = record_policy(options)
    output = open_output(to, tokenizer, bos, eos)
    check_outside(output.root, opened.root)
    mixture = make_mixture(select(selected(opened, options), where, attributes))
    shown = {"where": None if where is None else str(where), "source": source}
    plan = output.plan(mixture, opened, name, mixture.params(), shown, policy)
    return make_arrays(plan, mixture, options)
