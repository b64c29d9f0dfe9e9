"""Options of `dedupe`, and what they decide: how documents are compared, and who survives."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dolma_dask.dataset import Dataset
from dolma_dask.errors import UsageError
from dolma_dask.exchange import Shuffle, check_shuffle
from dolma_dask.formats import layout
from dolma_dask.minhash.schemes import Scheme
from dolma_dask.options.base import OUTPUT, WHAT, WHERE, Opt
from dolma_dask.options.groups import DatasetLike, DatasetOptions, Format, same
from dolma_dask.options.kept import RuleLike, rule_of
from dolma_dask.options.records import RecordOptions
from dolma_dask.results.summary import Summary
from dolma_dask.verbs.dedupe.bloom.options import BLOOM_OPTIONS, BloomOptions, check_bloom
from dolma_dask.verbs.dedupe.choice import Choice, Keep
from dolma_dask.verbs.dedupe.fuzzy.comparison import Comparison, Verify, comparison_of
from dolma_dask.verbs.dedupe.paragraphs.options import (
    LEAST_OPTIONS,
    LONGEST_NGRAM,
    PARAGRAPH_OPTIONS,
    ParagraphOptions,
    Unit,
    check_unit,
)
from dolma_dask.verbs.dedupe.short import Least

if TYPE_CHECKING:
    from dolma_dask.verbs.dedupe.paragraphs.job import Paragraphs

_COMPARED = (
    "similarity",
    "verify",
    "num_bands",
    "rows_per_band",
    "ngram",
    "unit",
    "num_perm",
    "seed",
    "scheme",
)
"""Options that decide which documents are similar."""

_COLUMNS = {
    "by": "a column, such as text, id or metadata.url",
    "rank": "a column of numbers or times",
    "within": "a column, such as metadata.language",
}
"""Options that name a column, and what is expected of each."""

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

_Shape = Annotated[
    int | None,
    Opt(
        "Shape of the bands (fuzzy), both or none; by default 14 bands of 8 rows, or what fits `similarity`."
    ),
]
"""One side of the shape of the bands."""


def _datasets(others: object) -> tuple[Any, ...]:
    """Return further datasets; refuse what is no list of them."""
    if isinstance(others, str | PathLike | Dataset | Summary):
        return (others,)
    if not isinstance(others, Sequence) or (isinstance(others, list) and not others):
        raise UsageError(f"others={others!r}; expected further datasets, such as others=['corpus/books/v0'].")
    return tuple(others)


@dataclass(frozen=True, kw_only=True)
class DedupeOptions(ParagraphOptions, BloomOptions, DatasetOptions, RecordOptions):
    """Options of `dedupe`."""

    unrecorded = frozenset({"audit", "attributes", "shuffle", "others", "index", "merge_bytes"})

    how: Annotated[
        Literal["exact", "fuzzy"],
        Opt(
            "Documents are duplicates if they are equal in `by`, or if their texts are similar: MinHash signatures of their n-grams share a band "
            "and, with `verify`, agree in enough values."
        ),
    ] = "exact"
    by: Annotated[
        str,
        Opt(
            '"text"; "id", which means source and id together; another field of documents; "metadata.<field>", at any depth '
            '("metadata.page.hash"); or an attribute key with one value per document (a unique ending is enough). A document without a value is '
            "nobody's duplicate. Integers are compared by all of their digits.",
            convert=same,
        ),
    ] = "text"
    keep: Annotated[
        Keep,
        Opt(
            "Which document of a cluster survives: the first in the listing, that with the longest text, the newest or oldest, or that with the "
            "highest or lowest `rank`. Among equals the first in the listing survives; a document without rank comes behind those that have one."
        ),
    ] = "first"
    rank: Annotated[
        str | None,
        Opt(
            'An attribute key or a field of the documents or their metadata. For "highest" and "lowest" a number, compared in double precision. '
            'For "newest" and "oldest" a number or a time in ISO 8601 ("2024-05-01", "2024-05-01T12:30:59.5Z", "2024-05-01 12:30:59 +0200"; UTC '
            "where no zone is given), by default `created`; what is no time counts as missing.",
            convert=same,
        ),
    ] = None
    where: Annotated[
        RuleLike,
        Opt(
            "Only documents for which this rule holds take part, as in mix: the others are in no cluster, so that none of them survives in place "
            "of one that is kept, and they get no flag.",
            kind="str",
            convert=rule_of,
        ),
    ] = None
    within: Annotated[
        str | None,
        Opt(
            "An attribute key or a field of the documents or their metadata, with one value per document: documents with different values, of "
            "different languages for example, are not in one cluster, and those without a value in none.",
            convert=same,
        ),
    ] = None
    similarity: Annotated[
        float | None,
        Opt(
            'Jaccard similarity of n-grams from which documents are duplicates (fuzzy), from 0 to 1; by default 0.7, with scheme="redpajama_v2" '
            "0.8. Higher is stricter: fewer are removed. Given, it decides the shape of the bands too, unless `num_bands` and `rows_per_band` do.",
            min=0,
            max=1,
            expected="a number from 0 to 1, such as 0.8 for documents that share 80 % of their n-grams",
        ),
    ] = None
    verify: Annotated[
        Verify | None,
        Opt(
            "Join documents that share a band only if their signatures say that they are as similar as `similarity` (the default); if their sets "
            'of n-grams are, which reads the texts twice more; or all of them (with scheme="redpajama_v2" the default), as RedPajama-V2 does '
            "(fuzzy)."
        ),
    ] = None
    num_bands: _Shape = None
    rows_per_band: _Shape = None
    ngram: Annotated[
        int | None,
        Opt(
            'Tokens of an n-gram (fuzzy); by default 5, with scheme="redpajama_v2" 13. Words of an n-gram (unit="paragraph"), by the rules of Unicode and without '
            "white space; by default paragraphs are compared as they are.",
            min=1,
            max=LONGEST_NGRAM,
        ),
    ] = None
    unit: Annotated[
        Unit | None,
        Opt(
            'What is compared: "document" (by default) or "paragraph", each by itself (exact). Or the tokens of n-grams (fuzzy): "word" (by default; in scripts '
            'without spaces, characters) or "char". Words of the other schemes are what stands between white space, in all scripts.'
        ),
    ] = None
    num_perm: Annotated[int | None, Opt("Values of a signature (fuzzy); by default 128.")] = None
    seed: Annotated[
        int | None, Opt("Seed of the permutations (fuzzy); by default 42, with datasketch's schemes 1.")
    ] = None
    scheme: Annotated[
        Scheme | None,
        Opt(
            "How signatures are made (fuzzy); by default the fastest. The others give the bytes of these projects."
        ),
    ] = None
    signatures: Annotated[
        str | None,
        Opt(
            "Folder or URL of published MinHash tables, <snapshot>/<shard>/<lang>_<bucket>.minhash.parquet, from which signatures are taken "
            'instead of making them (fuzzy, scheme="redpajama_v2"). Rows are found by the ids of documents; one without a signature there is '
            "nobody's duplicate. Or a dataset that these documents come from, by a mix that shuffled them for example: its signatures are found by source and "
            "id, and only documents with none, or with a text of another length, are signed."
        ),
    ] = None
    audit: Annotated[
        bool,
        Opt(
            "Write nothing: plant copies of known similarities into a sample of the documents, find them with these options, and tell how many "
            "were found, beside how many should be (fuzzy). All documents may be in the sample, whatever `where` and `within` say. Needs the space "
            "of two thousand documents in the temporary folder."
        ),
    ] = False
    others: Annotated[
        Sequence[DatasetLike],
        Opt(
            "Further datasets whose documents are compared with these and with each other; they come behind these in the listing, and each gets "
            "flags of its own. Flags hold while none of the datasets changes or is gone.",
            kind="list of str or Dataset",
            convert=_datasets,
        ),
    ] = ()
    index: Annotated[
        str | None,
        Opt(
            "Folder or URL of an index, which is made if it is not there: documents are compared with each other and with all that earlier calls have put into it, "
            "of which none loses to a new one; what is kept is appended. All datasets of an index are compared in the same way."
        ),
    ] = None
    name: Annotated[
        str | None,
        Opt(
            'Attribute set to write, and its key; by default "exact", "fuzzy" or "paragraphs".', group=OUTPUT
        ),
    ] = None
    key: Annotated[
        str | None,
        Opt("Key of the flags, and beginning of the others; by default the name of the set.", group=OUTPUT),
    ] = None
    format: Format = None
    attributes: Annotated[
        Sequence[str],
        Opt(
            "Attribute sets to look for `by`, `rank`, `within` and the names in `where` in; by default all.",
            group=WHAT,
        ),
    ] = ()
    shuffle: Annotated[
        Shuffle,
        Opt(
            "How keys reach each other: through files beside the dataset, or through Dask's dataframe shuffle, for slow shared storage.",
            convert=check_shuffle,
        ),
    ] = "files"

    merge_bytes: Annotated[
        int | None,
        Opt(
            "Bytes of memory that joining similar documents to clusters may take in one worker; by default half of what a worker has. Where it takes more, documents are "
            "joined range by range, by all workers, to the same clusters (fuzzy).",
            min=1,
            group=WHERE,
        ),
    ] = None

    def check(self) -> None:
        """Refuse options that do not go together."""
        super().check()
        layout.check_name(self.set_name, "name")
        layout.check_name(self.set_name if self.key is None else self.key, "key")
        if self.key is not None and not _KEY.fullmatch(self.key):
            raise UsageError(
                f"key={self.key!r}; expected letters, digits, underscores and hyphens behind a letter or underscore, as rules name columns."
            )
        for option, expected in _COLUMNS.items():
            name = getattr(self, option)
            is_missing = name is None and option != "by"
            if not (is_missing or (isinstance(name, str) and name)):
                raise UsageError(f"{option}={name!r}; expected the name of {expected}.")
        self._check_rank()
        self._check_how()
        if self.index is not None:
            check_indexed(self)
        if self.audit and (self.signatures is not None or self.others):
            more = f"signatures={self.signatures!r}" if self.signatures is not None else "others"
            raise UsageError(
                f"audit with {more}; expected one dataset and its texts: an audit is of how documents are compared, and planted copies are in no table."
            )

    def _check_rank(self) -> None:
        if self.keep in ("highest", "lowest") and self.rank is None:
            raise UsageError(f"keep={self.keep!r} without rank; expected a rank, such as rank='word_count'.")
        if self.keep in ("first", "longest") and self.rank is not None:
            raise UsageError(
                f"keep={self.keep!r} with rank={self.rank!r}; expected a rank for keep='highest', 'lowest', 'newest' or 'oldest' alone, such as "
                "keep='highest', rank='word_count'."
            )

    def _check_how(self) -> None:
        """Refuse options that the way to compare documents does not have."""
        check_unit(self)
        check_bloom(self)
        given, of_paragraphs = self.given(), ("unit", "ngram") if self.is_by_paragraph else ("unit",)
        names = (
            name for name in (*_COMPARED, "signatures", "audit", "merge_bytes") if name not in of_paragraphs
        )
        compared = [name for name in names if name in given]
        if self.how == "exact" and compared:
            raise UsageError(
                f"{', '.join(compared)} with how='exact'; expected how='fuzzy' for documents that are similar."
            )
        if self.how == "fuzzy" and (self.by != "text" or self.shuffle != "files"):
            found = f"by={self.by!r}" if self.by != "text" else f"shuffle={self.shuffle!r}"
            raise UsageError(
                f"{found} with how='fuzzy'; expected by='text' and shuffle='files': signatures are of texts, and their bands go through files."
            )

    @property
    def set_name(self) -> str:
        """Attribute set to write."""
        if self.name is not None:
            return self.name
        return "paragraphs" if self.is_by_paragraph else self.how

    @property
    def is_by_paragraph(self) -> bool:
        """Whether paragraphs are compared."""
        return self.unit == "paragraph"

    @property
    def paragraphs(self) -> "Paragraphs":
        """What is compared of which paragraphs."""
        from dolma_dask.verbs.dedupe.paragraphs.job import Paragraphs

        given = {name: getattr(self, name) for name in PARAGRAPH_OPTIONS}
        return Paragraphs(**{**given, "ngram": self.ngram or 0, "min_copies": self.min_copies or 0})

    @property
    def least(self) -> Least:
        """What a value of a document has at least, to be compared."""
        return Least(**{name: getattr(self, name) for name in LEAST_OPTIONS})

    @property
    def own_key(self) -> str | None:
        """Key of the flags, if it is not the name of the set."""
        return None if self.key == self.set_name else self.key

    @property
    def choice(self) -> Choice:
        """Choice of the document that survives, under the names of columns that were given; the rule is of each dataset."""
        is_by_age = self.keep in ("newest", "oldest")
        return Choice(
            self.keep, "created" if is_by_age and self.rank is None else self.rank, within=self.within
        )

    @cached_property
    def comparison(self) -> Comparison:
        """Comparison of documents by similarity."""
        return comparison_of({name: getattr(self, name) for name in _COMPARED})

    def params_of(self, others: Sequence[str]) -> dict[str, Any]:
        """Return what was given, for journals and reports; `others`: roots of the other datasets."""
        compared = {"by": None, **self.comparison.params()} if self.how == "fuzzy" else {}
        given = self.given()
        unused = {name: None for name in (*PARAGRAPH_OPTIONS, *BLOOM_OPTIONS) if name not in given}
        return self.params(name=self.set_name, key=self.own_key, others=list(others), **compared, **unused)


def check_indexed(options: DedupeOptions) -> None:
    """Refuse options that a call with an index cannot have."""
    if not options.index:
        raise UsageError("index=''; expected the folder or URL of an index.")
    reasons = {
        "others": (options.others, "one dataset at a time: each gets a segment of its own, and is compared with those before it"),
        "audit": (options.audit, "no index: an audit is of how documents are compared"),
        "shuffle": (options.shuffle != "files", "shuffle='files': the keys of an index are read beside those of the dataset"),
        "unit": (options.unit == "paragraph", "documents: paragraphs are compared within the datasets of one call"),
        "bloom": (options.bloom is not None, "one of the two: an index tells exactly what a filter of its keys would"),
        "verify": (options.verify == "ngrams", "verify='signatures' or 'none': an index has no texts, by which n-grams could be compared"),
        "only, share or prune": (
            any(getattr(options, name, None) for name in ("only", "share", "prune")),
            "all shards: a segment is of a whole dataset",
        ),
    }  # fmt: skip
    for name, (given, expected) in reasons.items():
        if given:
            raise UsageError(f"{name} with index={options.index!r}; expected {expected}.")
