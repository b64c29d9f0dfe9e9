"""Options of `mix`: what is kept, what is done to it, and what is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from dolma_dask.errors import UsageError
from dolma_dask.options.base import OUTPUT, OWN, WHAT, Opt
from dolma_dask.options.groups import SeveralTokensLike, TokensLike, same
from dolma_dask.options.kept import KeptOptions, ListedOptions, RuleLike, rule_of
from dolma_dask.options.records import RecordOptions
from dolma_dask.outputs.documents import DocumentFormat
from dolma_dask.reading.kept.recipe import RecipeOptions
from dolma_dask.rules.rules import Rule

ThresholdsLike = str | Rule | None
"""A file that `quantiles` wrote, or what `thresholds` returned."""

DownsampleLike = Mapping[str, float] | Sequence[str] | float | None
"""Amount to keep: of all, or of groups by label, also as words such as ``en=1000``."""


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
    by: Annotated[
        str | None,
        Opt(
            "Column of the groups of `downsample`: source, an attribute key or metadata.<field>; by default all documents are one group. Documents "
            "without a value are in a group with an empty name."
        ),
    ] = None
    unit: Annotated[
        str,
        Opt(
            "What `downsample` counts: documents, bytes (of text), tokens (by the tokenizer of `ragged`, else of `hdf5`, which doubles its work), or a "
            "column with a whole number for each document, such as metadata.tokens."
        ),
    ] = "documents"
    attributes: Annotated[
        Sequence[str],
        Opt(
            "Attribute sets to read; by default those that rules and filters need. For filters, later ones win where two have one key.",
            group=WHAT,
        ),
    ] = ()

    @property
    def downsamples(self) -> bool:
        """True if only so many documents of each group are kept."""
        return self.downsample is not None and self.downsample != ()

    def check(self) -> None:
        """Refuse groups and units of nothing."""
        super().check()
        if not self.downsamples and (self.by is not None or self.unit != "documents"):
            raise UsageError("`by` and `unit` say how to downsample; expected `downsample` with them.")


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

    def check(self) -> None:
        """Refuse outputs that do not go together, and ways to choose documents that exclude each other."""
        super().check()
        if self.merge_attributes and not self.attributes:
            raise UsageError(
                "merge_attributes without attributes; expected the sets to write into the documents, in their order."
            )
        if self.downsamples and self.rate is not None:
            raise UsageError(
                "`sample` and `downsample` both choose documents by their hash; expected one of them. A share of each group: downsample=0.3."
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
