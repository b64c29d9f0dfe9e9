"""quantiles: exact quantiles of signals, for all documents and for groups of them, and the thresholds that follow from them.

Two parts, both of which go on where they were stopped. The first reads the requested columns once and keeps the values as keys below
``_work/`` (8 bytes per value, removed at the end); the second finds the order statistics of each signal in a few passes over the
kept values. The result depends on the values alone: any number of workers, any cut into shards, the same bytes. Nothing but the result
reaches the caller's process. ``sample`` is the way to huge data.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Unpack

from dolma_dask.errors import UsageError
from dolma_dask.options.shared import (
    DatasetLike,
    Many,
    RecordArgs,
    RuleLike,
    as_dataset,
    check_choice,
    checked,
    record_policy,
    rule_of,
    run_options,
    selected,
    words_of,
)
from dolma_dask.reading.quantiles import QuantilesSummary
from dolma_dask.reading.signals import find_rule, find_signals
from dolma_dask.reading.thresholds import check_name, tails_in_words
from dolma_dask.rules.quantile_table import check_probabilities
from dolma_dask.rules.sampling import check_fraction, check_seed
from dolma_dask.rules.strictness import Strictness
from dolma_dask.rules.tails import tails_of
from dolma_dask.rules.thresholds import NullPolicy, check_nulls
from dolma_dask.verbs.quantiles.job import Quantiles, run_quantiles
from dolma_dask.verbs.quantiles.values import Request


def quantiles(
    dataset: DatasetLike,
    /,
    signals: Annotated[Sequence[str] | str | None, Many] = None,
    *,
    by: Annotated[Sequence[str] | str | None, Many] = "source",
    level: Annotated[Mapping[str, str] | Sequence[str] | None, Many] = None,
    tails: Annotated[Mapping[str, str] | Sequence[str], Many] = (),
    nulls: NullPolicy = "drop",
    probabilities: Annotated[Sequence[float] | None, Many] = None,
    over: Literal["all", "kept"] = "all",
    where: RuleLike = None,
    sample: float | None = None,
    seed: int = 0,
    name: str = "quantiles",
    attributes: Annotated[Sequence[str], Many] = (),
    source: str | None = None,
    version: str | None = None,
    **options: Unpack[RecordArgs],
) -> QuantilesSummary:
    """Find the quantiles of signals, for all documents and for each group of them, exactly.

    Example: dolma-dask quantiles corpus/wiki/v0 --signals word_count median_word_length --by source --level regular

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it. The result is written to its quantiles/.
    signals : list of str, optional
        Attribute keys (a unique ending is enough) or metadata.<field>, with one number per document; by default every such attribute key.
    by : list of str, optional
        Column with a value for each group: source, an attribute key or metadata.<field> (at any depth: metadata.page.lang), of strings, bools or
        few numbers; at most 1,000 groups. Those of several columns are named as in en/head. "none" makes no groups. The group "all" is always
        there; a value "all" is named "=all".
    level : {"regular", "strict", "even_stricter", "strictest"} or list of str, optional
        Also write thresholds: the quantiles 0.1 and 0.9, 0.2 and 0.8, 0.3 and 0.7, 0.4 and 0.6. Behind it, others for some groups and signals:
        strict de=regular perplexity=strictest en.perplexity=regular.
    tails : list of str, optional
        Ends of the distribution of a signal that are cut, as NAME=lower, NAME=upper or NAME=both, or {name: tail}; by default those of the
        LUMI chain for the signals that it uses, under RedPajama-V2's names, and both for others.
    nulls : {"drop", "keep", "fail"}, optional
        Fate of a document without a value of a signal, for mix with these thresholds: it is dropped, it is kept, or mix fails and names it.
    probabilities : list of float, optional
        Quantiles to find, from 0 to 1; by default 0.01 to 0.99, with all that the levels need.
    over : {"all", "kept"}, optional
        All documents, or only those that no set of duplicates flags, of dedupe or attached.
    where : str, optional
        Only documents for which this holds, as in mix.
    sample : float, optional
        Fraction of the documents to look at, selected by a hash of source and id: the way to huge data, since the values that are kept shrink
        with it.
    seed : int, optional
        Seed of that hash.
    name : str, optional
        Name of the file, quantiles/<name>.json. Quantiles of other options need another name, or `overwrite`.
    attributes : list of str, optional
        Attribute sets to look in; by default all.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

    Returns
    -------
    QuantilesSummary
        With the quantiles, and as a rule for ``where`` if there is a level.

    Raises
    ------
    UsageError
        A signal or `by` is unknown, or has not one value per document; there are too many groups; the sample holds no document; the file
        of that name has other options; or an argument has a value that it cannot have.
    StageError
        Some shards could not be read, for example because attributes do not line up.

    Notes
    -----
    Missing values are left out and counted as nulls; so are infinite ones, which only Parquet can hold. A document without a group counts
    in "all" alone.
    """
    options = checked(quantiles, options, RecordArgs)
    check_name(name)
    levels = None if level is None or level == () else Strictness.of(level)
    found = as_dataset(dataset, source, version)
    part = selected(found, options)
    check_choice("over", over, ("all", "kept"))
    where = rule_of(where)
    rule, sets = find_rule(part, over, where, words_of("attributes", attributes))
    request = Request(
        *find_signals(part, signals, by, sets, rule, sampled=check_fraction(sample) is not None),
        check_probabilities(probabilities),
        check_fraction(sample),
        check_seed(seed),
        rule,
    )
    _check_level_probabilities(levels, request.probabilities)
    sides = tails_of(list(request.signals), tails_in_words(tails))
    if (tails or nulls != "drop") and levels is None:
        raise UsageError(
            "tails and nulls are of thresholds, and there is no level; expected one too. Give a level: --level regular."
        )
    takes_all = signals is None or signals == ()
    chosen = {"over": "" if over == "all" else over, "where": "" if where is None else str(where)}
    job = Quantiles(
        dataset=found,
        selected=part,
        request=request,
        name=name,
        policy=record_policy(options),
        takes_all_signals=takes_all,
        level=levels,
        tails=sides,
        nulls=check_nulls(nulls),
        chosen={name: text for name, text in chosen.items() if text},
    )
    return run_quantiles(job, run_options(options))


def _check_level_probabilities(levels: Strictness | None, probabilities: Sequence[float]) -> None:
    missing = [item for item in levels.probabilities if item not in probabilities] if levels else []
    if levels and missing:
        needed = " and ".join(f"{item:g}" for item in levels.probabilities)
        raise UsageError(
            f"level={str(levels)!r} needs the probabilities {needed}, which are not among those given. Add them to --probabilities, or leave it out."
        )
