"""Content of a report as plain frozen records, with no idea of how it looks.

A stage fills these from journals, attribute files and histograms; `dolma_dask.pages.page` turns them into a web
page and into JSON. Keeping the two apart lets a report be tested without a dataset and drawn without Dask.
Unknown numbers are None, never 0: the page shows a dash for them. Sizes are bytes, times are seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from dolma_dask.figures.model import SignalHistogram
from dolma_dask.results.table import Table

Side = Literal["just inside", "just outside"]
"""Side of a bound on which an example lies: kept by a narrow margin, or dropped by one."""

SIDES: tuple[Side, ...] = ("just inside", "just outside")


class StageRow(Struct, frozen=True):
    """One verb of the run, with what went in and what came out, in the order in which the verbs ran."""

    verb: str
    documents_in: int | None = None
    documents_out: int | None = None
    bytes_out: int | None = None
    text_bytes: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    shards: int | None = None
    failed: int = 0
    bad_records: int = 0
    note: str = ""
    cpu_seconds: float | None = None  # of all processes


class SourceRow(Struct, frozen=True):
    """One source of the documents, before and after the selection."""

    source: str
    documents: int
    text_bytes: int | None = None
    kept_documents: int | None = None
    kept_text_bytes: int | None = None
    tokens: int | None = None
    dropped: Sequence[int] = ()  # documents that each condition of the rule drops, in the order of the rules


class RuleRow(Struct, frozen=True):
    """One condition of the selection and how many documents it alone matches; `share` lies in 0..1.

    What it drops is known of conditions, not of filters, which the journal has counted.
    """

    rule: str
    matched_documents: int
    share: float
    dropped: int | None = None  # documents for which it does not hold
    dropped_bytes: int | None = None  # of their text
    only: int | None = None  # of these, the documents that no other condition drops
    only_bytes: int | None = None
    plain: str = ""  # which documents it drops, in plain words


class Example(Struct, frozen=True):
    """A document near the line that a rule draws: where it lies, the deciding value, and some of its text."""

    kind: Side | Literal["above a limit"]
    rule: str
    signal: str
    value: float
    source: str
    id: str
    shard: str
    row: int
    excerpt: str


class Beyond(Struct, frozen=True):
    """Kept documents beyond a published bound of a signal that no rule cuts."""

    key: str
    sign: str  # operator of what the bound keeps
    bound: float
    documents: int
    share: float  # of the kept documents with a value, 0..1


class Junk(Struct, frozen=True):
    """Kept documents above the limit that a tagger gives a signal."""

    key: str
    limit: float
    documents: int
    share: float  # of the kept documents with a value, 0..1
    meaning: str = ""  # of the signal
    examples: Sequence[Example] = ()  # the worst first
    is_shared: bool = False  # lines of many documents, which are no fault of one


class FailureRow(Struct, frozen=True):
    """One shard that a verb could not finish, and why."""

    verb: str
    shard: str
    error: str


class QuarantineRow(Struct, frozen=True):
    """Number of records of one file that a verb sent to the quarantine for one reason."""

    verb: str
    reason: str
    records: int
    file: str = ""  # that was read: a shard of documents, or the last name of a raw file
    first_row: int | None = None  # row of the first of them
    source: str = ""  # of the documents of the shard, if they are of one


class MemberExample(Struct, frozen=True):
    """A document of a cluster: a line on it, and its text in pieces (kind, text) as `dolma_dask.text.differences` makes them."""

    head: str
    pieces: Sequence[tuple[str, str]]


class ClusterExample(Struct, frozen=True):
    """Some documents of a cluster, the survivor first; or why they cannot be shown."""

    title: str
    members: Sequence[MemberExample] = ()
    note: str = ""


class ThresholdsPart(Struct, frozen=True):
    """Drops by thresholds: the answer of what-if."""

    answer: Mapping[str, Any]  # JSON-able
    page: str  # as HTML, with sliders
    is_used: bool = True  # whether the selection was made by them
    is_rule: bool = False  # whether they are the numbers in its rule


class ReportData(Struct, frozen=True):
    """Everything on the page.

    `dataset` is the name a reader should see: a relative path, a URL or a given name. `created` is a time stamp as text and
    `version` the version of the package that did the work: both are given, so that equal data makes equal bytes. `remarks` say what a
    reader must know of the selection: what the rule alone does not tell; `left_out` names attribute sets without signals on the page, and why.
    `unfinished` says which verbs have left files undone.
    """

    title: str
    dataset: str
    created: str
    version: str
    stages: Sequence[StageRow] = ()
    sources: Sequence[SourceRow] = ()
    signals: Sequence[SignalHistogram] = ()
    rules: Sequence[RuleRow] = ()
    examples: Sequence[Example] = ()
    where: str | None = None
    failures: Sequence[FailureRow] = ()
    quarantine: Sequence[QuarantineRow] = ()
    results: Sequence[Table] = ()
    clusters: Sequence[ClusterExample] = ()
    remarks: Sequence[str] = ()
    left_out: Sequence[str] = ()
    unfinished: Sequence[str] = ()
    beyond: Sequence[Beyond] = ()  # those of most documents first
    junk: Sequence[Junk] = ()  # those of most documents first
    junk_documents: int = 0  # kept documents above one of these limits or more, but for what many share
    origin: str = ""  # what was selected from, if that is another dataset: all shares are of its documents
    thresholds: ThresholdsPart | None = None


class SignalChange(Struct, frozen=True):
    """A signal of two datasets, in the same bins."""

    before: SignalHistogram
    after: SignalHistogram
    distance: float | None  # of both distributions of finite values, 0 to 1; None where one has none

    def share_change(self, count: Literal["nulls", "infinite"]) -> float:
        """Return how much larger or smaller the share of missing or infinite values is among the later documents, 0 to 1."""
        old, new = (getattr(side, count) / max(side.n + side.nulls, 1) for side in (self.before, self.after))
        return float(abs(new - old))

    @property
    def change(self) -> float:
        """The largest change of all: of finite values (1 where only one side has some), and of the shares of missing and infinite ones."""
        has_some = [side.min is not None for side in (self.before, self.after)]
        distance = float(has_some[0] != has_some[1]) if self.distance is None else self.distance
        return max(distance, self.share_change("nulls"), self.share_change("infinite"))


class OptionChange(Struct, frozen=True):
    """An option of a verb that two datasets were made with differently; of a verb that only one has, the option is empty."""

    verb: str
    option: str
    before: str
    after: str


class ComparisonPart(Struct, frozen=True):
    """Everything on a page that compares two datasets."""

    title: str
    before: ReportData
    after: ReportData
    signals: Sequence[SignalChange] = ()  # what has changed most comes first
    options: Sequence[OptionChange] = ()
    # signals that only one of both has
    only_before: Sequence[str] = ()
    only_after: Sequence[str] = ()
