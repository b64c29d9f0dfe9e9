"""Names and types of what verbs say of their work beyond the fields of a record: one without a seal that has another type is not believed.

Records of earlier releases have no seal, and neither have those that other programs wrote or changed: a dataset from elsewhere may be hostile, and readers
of journals rely on these types. Other names may hold anything.
"""

from typing import Any, TypedDict

from msgspec import Struct, field

from dolma_dask.io.records import Count, InputRecord

Number = int | float


class Parameters(TypedDict, total=False):
    """Request of `quantiles`."""

    name: str
    signals: list[str]
    by: str | list[str] | None
    by_kind: str | list[str] | None
    probabilities: list[Number]
    sample: Number | dict[str, Number]
    seed: int
    method: str


class FoundProblems(TypedDict):
    """Problems of one kind, of `validate`."""

    count: Count
    first: list[Any]


class KnownInfo(Struct, frozen=True):
    """Names that readers of records know."""

    # of attribute files, and of sets whose rows depend on all shards
    kinds: dict[str, str | dict[str, str]] = {}
    taggers: list[str] = []
    reads: list[str] = []
    levels: list[str] = []
    labels: list[str] = []
    component: str = ""
    unproved: bool | list[str] = False
    dataset_wide: bool = False
    depends_on: str = ""
    key: str = ""
    call: str = ""
    datasets: list[tuple[str, str]] = []
    # of documents and files
    places: list[str] = []
    skipped_members: list[str] = []
    origin: str = ""
    missing: str = ""
    unsized: str = ""
    host: str = ""
    compared: str = ""
    broken: str = ""
    dtype: str = ""
    tokenizer: str = ""
    parts: list[list[Count]] = []
    texts: dict[str, Count] = {}
    rows: dict[str, Count] = {}
    written: list[InputRecord] = []
    shards: Any = None
    # of signals, levels and duplicates
    parameters: Parameters = field(default_factory=lambda: Parameters())
    thresholds: str = ""
    rules: list[str] = []
    passed: dict[str, dict[str, list[Count]]] = {}
    by: str | list[str] | None = None
    unit: str = ""
    seed: int | None = None
    groups: dict[str, dict[str, Any]] = {}
    facts: dict[str, str | int] = field(default_factory=dict, name="list")
    ambiguous: tuple[Count, str] | None = None
    comparison: dict[str, Any] = {}
    sizes: list[Count] = []
    sources: dict[str, list[Count]] = {}
    clusters: list[list[Number | str | None]] = []
    many_sources: bool = False
    # of checks
    valid: bool = True
    problems: dict[str, FoundProblems] = {}
    notes: list[str] = []
    scope: dict[str, Any] = {}
