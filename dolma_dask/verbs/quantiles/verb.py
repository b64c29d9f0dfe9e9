"""quantiles: exact quantiles of signals, for all documents and for groups of them, and the thresholds that follow from them.

Two parts, both of which go on where they were stopped. The first reads the requested columns once and keeps the values as keys below
``_work/`` (8 bytes per value, removed at the end); the second finds the order statistics of each signal in a few passes over the
kept values. The result depends on the values alone: any number of workers, any cut into shards, the same bytes. Nothing but the result
reaches the caller's process. ``sample`` is the way to huge data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from dolma_dask.dataset import Dataset
from dolma_dask.errors import UsageError
from dolma_dask.options.base import OUTPUT, WHAT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetLike, DatasetOptions, same
from dolma_dask.options.kept import RuleLike, rule_of
from dolma_dask.options.records import RecordOptions
from dolma_dask.reading.quantiles import QuantilesSummary
from dolma_dask.reading.signals import find_rule, find_signals
from dolma_dask.reading.thresholds import check_name, tails_in_words
from dolma_dask.rules.quantile_table import check_probabilities
from dolma_dask.rules.sampling import check_seed, read_sample
from dolma_dask.rules.strictness import Strictness
from dolma_dask.rules.tails import tails_of
from dolma_dask.rules.thresholds import NullPolicy
from dolma_dask.verbs.quantiles.job import Quantiles, run_quantiles
from dolma_dask.verbs.quantiles.values import Request


@dataclass(frozen=True, kw_only=True)
class QuantilesOptions(DatasetOptions, RecordOptions):
    """Options of `quantiles`."""

    by: Annotated[
        Sequence[str] | str | None,
        Opt(
            "Column with a value for each group: source, an attribute key or metadata.<field> (at any depth: metadata.page.lang), of strings, "
            'bools or few numbers; at most 1,000 groups. Those of several columns are named as in en/head. "none" makes no groups. The group "all" '
            'is always there; a value "all" is named "=all".'
        ),
    ] = "source"
    level: Annotated[
        Mapping[str, str] | Sequence[str] | None,
        Opt(
            "Also write thresholds: the quantiles 0.1 and 0.9, 0.2 and 0.8, 0.3 and 0.7, 0.4 and 0.6. Behind it, others for some groups and "
            "signals: strict de=regular perplexity=strictest en.perplexity=regular.",
            kind='{"regular", "strict", "even_stricter", "strictest"} or list of str',
            convert=same,
        ),
    ] = None
    tails: Annotated[
        Mapping[str, str] | Sequence[str],
        Opt(
            "Ends of the distribution of a signal that are cut, as NAME=lower, NAME=upper or NAME=both, or {name: tail}; by default those of the "
            "LUMI chain for the signals that it uses, under RedPajama-V2's names, one end for others of the built-in taggers that are bad at one end alone (lengths: lower), "
            "and both for the rest.",
            may_be_empty=True,
        ),
    ] = ()
    nulls: Annotated[
        NullPolicy,
        Opt(
            "Fate of a document without a value of a signal, for mix with these thresholds: it is dropped, it is kept, or mix fails and names it."
        ),
    ] = "drop"
    probabilities: Annotated[
        Sequence[float] | None,
        Opt("Quantiles to find, from 0 to 1; by default 0.01 to 0.99, with all that the levels need."),
    ] = None
    over: Annotated[
        Literal["all", "kept"],
        Opt("All documents, or only those that no set of duplicates flags, of dedupe or attached."),
    ] = "all"
    where: Annotated[
        RuleLike, Opt("Only documents for which this holds, as in mix.", kind="str", convert=rule_of)
    ] = None
    sample: Annotated[
        Mapping[str, float] | Sequence[str] | float | None,
        Opt(
            "Fraction of the documents to look at, selected by a hash of source and id: the way to huge data, since the values that are kept "
            "shrink with it. Or one for each of some groups: en=0.0002 de=0.0005; others are looked at whole.",
            kind="float, {str: float} or list of str",
            convert=read_sample,
        ),
    ] = None
    seed: Annotated[int, Opt("Seed of that hash.", convert=check_seed)] = 0
    name: Annotated[
        str,
        Opt(
            "Name of the file, quantiles/<name>.json. Quantiles of other options need another name, or `overwrite`.",
            group=OUTPUT,
            convert=check_name,
        ),
    ] = "quantiles"
    attributes: Annotated[Sequence[str], Opt("Attribute sets to look in; by default all.", group=WHAT)] = ()

    def check(self) -> None:
        """Refuse an unknown level, and what is of thresholds where none are made."""
        super().check()
        levels = self.strictness
        if (self.tails or self.nulls != "drop") and levels is None:
            raise UsageError(
                "tails and nulls are of thresholds, and there is no level; expected one too. Give a level: --level regular."
            )

    @property
    def strictness(self) -> Strictness | None:
        """Levels of the thresholds that are written too."""
        return None if self.level in (None, ()) else Strictness.of(self.level)


@command
def quantiles(
    dataset: Annotated[
        DatasetLike,
        Opt(
            "Folder or URL with documents/ and attributes/ in it. The result is written to its quantiles/.",
            kind="str or Dataset",
            convert=same,
        ),
    ],
    /,
    signals: Annotated[
        Sequence[str] | str | None,
        Opt(
            "Attribute keys (a unique ending is enough, set/ending for one of several sets) or metadata.<field>, with one number per document; by default every such attribute key."
        ),
    ] = None,
    *,
    options: QuantilesOptions,
) -> QuantilesSummary:
    """Find the quantiles of signals, for all documents and for each group of them, exactly.

    Example: dolma-dask quantiles corpus/wiki/v0 --signals word_count median_word_length --by source --level regular

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
    found = options.open(dataset)
    part = options.selected(found)
    request = _request(part, signals, options)
    levels = options.strictness
    _check_level_probabilities(levels, request.probabilities)
    over, where = options.over, options.where
    chosen = {"over": "" if over == "all" else over, "where": "" if where is None else str(where)}
    job = Quantiles(
        dataset=found,
        selected=part,
        request=request,
        name=options.name,
        policy=options.policy,
        takes_all_signals=not signals,
        level=levels,
        tails=tails_of(list(request.signals), tails_in_words(options.tails)),
        nulls=options.nulls,
        chosen={name: text for name, text in chosen.items() if text},
    )
    return run_quantiles(job, options)


def _request(dataset: Dataset, signals: Sequence[str] | str | None, options: QuantilesOptions) -> Request:
    """Return what is looked for in some shards."""
    rule, sets = find_rule(dataset, options.over, options.where, tuple(options.attributes))
    sample = read_sample(options.sample)
    is_sampled = sample is not None
    columns, names, by = find_signals(dataset, signals, options.by, sets, rule, is_sampled)
    if by is None and isinstance(sample, Mapping):
        raise UsageError(
            f"sample names the groups {', '.join(map(repr, sample))}, and no column has them; expected `by`, such as by=metadata.language."
        )
    return Request(
        columns,
        names,
        by,
        check_probabilities(options.probabilities),
        sample,
        options.seed,
        rule,
    )


def _check_level_probabilities(levels: Strictness | None, probabilities: Sequence[float]) -> None:
    missing = [item for item in levels.probabilities if item not in probabilities] if levels else []
    if levels and missing:
        needed = " and ".join(f"{item:g}" for item in levels.probabilities)
        raise UsageError(
            f"level={str(levels)!r} needs the probabilities {needed}, which are not among those given. Add them to --probabilities, or leave it out."
        )
