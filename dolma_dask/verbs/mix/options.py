"""Options of `mix`: what is kept, what is done to it, and what is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from dolma_dask.errors import UsageError
from dolma_dask.options.base import OUTPUT, OWN, WHAT, Opt
from dolma_dask.options.groups import SeveralTokensLike, TokensLike, same
from dolma_dask.options.kept import KeptOptions, ListedOptions, RuleLike, rule_of
from dolma_dask.options.records import RecordOptions
from dolma_dask.outputs.documents import DocumentFormat
from dolma_dask.reading.kept.recipe import RecipeOptions
from dolma_dask.rules.budgets import MAX_EPOCHS
from dolma_dask.rules.rules import Rule

ThresholdsLike = str | Rule | None
"""A file that `quantiles` wrote, or what `thresholds` returned."""

DownsampleLike = Mapping[str, float] | Sequence[str] | float | None
"""Amount to keep: of all, or of groups by label, also as words such as ``en=1000``."""


BudgetLike = Mapping[str, str | int] | Sequence[str] | None
"""Shares of groups by label, also as words such as ``web=40%``."""


@dataclass(frozen=True, kw_only=True)
class SelectionOptions(KeptOptions, ListedOptions):
    """Rules and lists that say which documents a mix keeps, and how many of them."""

    group = OWN

    where: Annotated[
        RuleLike,
        Opt(
            "Keep documents for which this holds: id, source, added, created, metadata.<field> (at any depth: metadata.page.hash) and attribute keys (a "
            "unique ending is enough; of one of several sets with the key: `set/ending` in backticks), numbers and 'strings', joined by == != < <= > >=, in (..., ...), is None, is not None, + - * /, and, or, not. A "
            "comparison with a missing value is false. Numbers are compared exactly, arithmetic is in double precision.",
            kind="str",
            convert=rule_of,
        ),
    ] = None
    block: Annotated[
        Sequence[str],
        Opt(
            "Files of ids, or of sources and ids: drop the listed documents. They are flagged first, as by the verb block."
        ),
    ] = ()
    allow: Annotated[Sequence[str], Opt("Files of the same kind: keep only the listed documents.")] = ()
    thresholds: Annotated[
        ThresholdsLike,
        Opt(
            "Keep only documents inside of the bounds that quantiles wrote into this file, or that stand there in the JSON form of the LUMI chain.",
            kind="str or Thresholds",
            convert=same,
        ),
    ] = None
    downsample: Annotated[
        DownsampleLike,
        Opt(
            "Keep this many documents (bytes or tokens, see `unit`) of each group: 100000; or a share of it: 0.3; or of some groups, as words or as a "
            "map: en=100000 de=0.3, while the others are kept whole. Of the documents that rules and filters keep, those with the smallest hash of "
            "source and id are taken, equal ones in order, until the next would exceed the number: documents stay whole, and a smaller number takes "
            "some of those of a larger one. All are read twice: first to find what to keep, in the whole dataset also where `only` names the shards to "
            "write.",
            kind="list of str",
            convert=same,
        ),
    ] = None
    budget: Annotated[
        BudgetLike,
        Opt(
            "Shares of groups in the new version, which add up to 100 %, or a number of tokens for each, as words or as a map: web=40% code=30% books=30%, or "
            "web=8B code=500M (K, M, B, T: 10^3 to 10^12). Nothing is taken of other groups. Tokens are counted by the attribute of the tagger tokens, or "
            "see `unit`. Documents of a group with too little are taken several times (`max_epochs`), all as often as that goes and then once more those "
            "with the smallest hash, as in `downsample`: documents stay whole, and a larger budget holds those of a smaller one. What cannot be had is "
            "refused, with the nearest that can.",
            kind="list of str",
            convert=same,
        ),
    ] = None
    tokens: Annotated[
        str | int | None,
        Opt(
            "Tokens of all groups of `budget`: 20B; by default as many as its shares allow. Without `budget`, groups have the shares that they have.",
            convert=same,
        ),
    ] = None
    max_epochs: Annotated[
        int, Opt("Times that `budget` takes a document at most.", min=1, max=MAX_EPOCHS)
    ] = 1
    by: Annotated[
        str | None,
        Opt(
            "Column of the groups of `downsample` or `budget`: source, an attribute key or metadata.<field>; by default source for a budget, else all documents "
            "are one group. Documents without a value are in a group with an empty name."
        ),
    ] = None
    unit: Annotated[
        str | None,
        Opt(
            "What `downsample` or `budget` counts: documents (the default of downsample), bytes (of text), tokens (by the tokenizer of `ragged`, else of "
            "`hdf5`, which doubles its work), or a column with a whole number for each document, such as metadata.tokens. The default of a budget is the "
            "attribute of the tagger tokens, and what `ragged` puts around each document."
        ),
    ] = None
    attributes: Annotated[
        Sequence[str],
        Opt(
            "Attribute sets to read; by default those that rules and filters need. For filters, later ones win where two have one key.",
            group=WHAT,
        ),
    ] = ()

    @property
    def has_budget(self) -> bool:
        """True if groups have shares of a total."""
        return self.tokens is not None or self.budget not in (None, ())

    @property
    def downsamples(self) -> bool:
        """True if only so many documents of each group are kept."""
        return self.downsample not in (None, ())

    @property
    def counts(self) -> bool:
        """True if what is kept of a group depends on all that there is of it."""
        return self.downsamples or self.has_budget

    def check(self) -> None:
        """Refuse groups and units of nothing, and two ways to say how much is kept."""
        super().check()
        if not self.counts and (self.by is not None or self.unit is not None):
            raise UsageError(
                "`by` and `unit` say how to downsample, or what a budget is of; expected `downsample` or `budget` with them."
            )
        if self.downsamples and self.has_budget:
            raise UsageError(
                "`downsample` and `budget` both say how much is kept of a group; expected one of them."
            )
        if self.max_epochs > 1 and not self.has_budget:
            raise UsageError("`max_epochs` is of a budget; expected `budget` or `tokens` with it.")


@dataclass(frozen=True, kw_only=True)
class MixOptions(SelectionOptions, RecipeOptions, RecordOptions):
    """Options of `mix`."""

    to: Annotated[
        str | None,
        Opt(
            "Root of the new version; its documents/ is written. Not needed if `ragged`, `hdf5` or `dropped` is given.",
            group=OUTPUT,
        ),
    ] = None
    ragged: Annotated[
        SeveralTokensLike,
        Opt(
            "Options of the verb ragged, to and tokenizer among them: token arrays of the new documents from the same reading, as JSON: "
            '\'{"to": "out/ragged", "tokenizer": "t5.json", "eos": "</s>"}\'; several, such as those of two formats, are encoded once. With `shuffle`, '
            "`max_size` or `shards` they are made of the new files.",
            kind="dict or list of dict",
            group=OUTPUT,
            convert=same,
        ),
    ] = None
    hdf5: Annotated[
        TokensLike,
        Opt(
            'Options of the verb hdf5, in the same way: \'{"to": "out/h5", "tokenizer": "neox.json", "max_seq_length": 2048}\'.',
            kind="dict",
            group=OUTPUT,
            convert=same,
        ),
    ] = None
    dropped: Annotated[
        str | None,
        Opt(
            "Folder for the documents that are not kept, a file per input file (<shard>.jsonl.gz) with a line for each: id, source, shard, row (from 0) and "
            "reasons, the names of all parts of the rule and filters that drop it, or `beyond cut`, `not sampled`, `too short` or `bad record`. Not "
            "with `shuffle`, `max_size` or `shards`.",
            group=OUTPUT,
        ),
    ] = None
    dropped_documents: Annotated[
        bool,
        Opt("Put each dropped document into its line too, as it was, under `document`.", group=OUTPUT),
    ] = False
    shuffle: Annotated[bool, Opt("Write the documents of all shards in an order drawn by the seed.")] = False
    max_size: Annotated[
        int | None,
        Opt(
            "Stored bytes of an output file at most. With it, or with `shuffle`, documents go to files <name>-0000.jsonl.gz, -0001 and so on; without, "
            "to one file per input file.",
            convert=same,
        ),
    ] = None
    shards: Annotated[
        int | None,
        Opt(
            "Number of output files, of about the same size, in place of `max_size`; fewer if few documents are kept.",
            convert=same,
        ),
    ] = None
    name: Annotated[str, Opt("Name of these files.", group=OUTPUT)] = "part"
    format: DocumentFormat = None

    @property
    def is_packed(self) -> bool:
        """True if files are cut by size or number, or documents shuffled."""
        return self.max_size is not None or self.shards is not None or self.shuffle

    def idle(self) -> Iterator[str]:
        """Yield which options do nothing beside the others."""
        if self.seed and not (self.shuffle or self.counts or self.rate is not None):
            yield "seed has no effect: nothing is drawn without shuffle, sample, downsample or budget"
        if self.name != MixOptions.name and not self.is_packed:
            yield "name has no effect: without shuffle, max_size or shards files have the names of those that are read"
        if self.format is not None and self.to is None:
            yield "format has no effect: it is of documents, and without to none are written"

    def check(self) -> None:
        """Refuse outputs that do not go together, and ways to choose documents that exclude each other."""
        super().check()
        if self.merge_attributes and not self.attributes:
            raise UsageError(
                "merge_attributes without attributes; expected the sets to write into the documents, in their order."
            )
        if self.counts and self.rate is not None:
            other = "budget" if self.has_budget else "downsample"
            raise UsageError(
                f"`sample` and `{other}` both choose documents by their hash; expected one of them. A share of each group: downsample=0.3."
            )
        if self.max_size is not None and self.shards is not None:
            raise UsageError("`max_size` and `shards` both say how files are cut; expected one of them.")
        if self.to is None and not self.ragged and self.hdf5 is None and self.dropped is None:
            raise UsageError(
                "mix has nothing to write; expected a root of new documents in `to`, or `ragged`, `hdf5` or `dropped`."
            )
        if self.dropped_documents and self.dropped is None:
            raise UsageError(
                "`dropped_documents` without `dropped`; expected the folder for dropped documents in `dropped`."
            )
        if self.dropped is not None and self.is_packed:
            raise UsageError(
                "`dropped` with `shuffle`, `max_size` or `shards`; dropped documents have a file per input file. Write them in a call of their own, with "
                "the same rule and options, `dropped`, and without `to`."
            )
        if self.to is None and self.is_packed:
            raise UsageError(
                "shuffle, max_size and shards without `to`; expected a root of new documents, since token files are made from the packed ones."
            )
