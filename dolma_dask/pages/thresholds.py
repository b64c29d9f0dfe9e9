"""The thresholds of a page: which rule drops what among the documents that were selected from, as the question what-if answers it.

They are those that the selection used: of levels, of quantiles, or the numbers in its rule. Where nothing was selected by numbers they are the newest that `quantiles` wrote
beside the documents. Cost: one more pass over attributes alone.
"""

import shlex
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.display import last_name
from dolma_dask.errors import DolmaDaskError, InterruptedStageError, UsageError
from dolma_dask.formats.levels import LEVEL_KEY
from dolma_dask.io import files
from dolma_dask.journal import Journal
from dolma_dask.options.groups import RunOptions
from dolma_dask.pages.model import StageRow, ThresholdsPart
from dolma_dask.questions.what_if.answer import WhatIf, level_table, rule_table, sentences
from dolma_dask.questions.what_if.levels import split
from dolma_dask.questions.what_if.page import embedded
from dolma_dask.questions.what_if.question import PreparedQuestion, ask
from dolma_dask.questions.what_if.texts import ASSUMED, TOKENS_PER_BYTE
from dolma_dask.reading.selection import conjuncts
from dolma_dask.reading.thresholds import QUANTILES, quantiles_path, read_thresholds, thresholds
from dolma_dask.results.table import Table
from dolma_dask.rules.comparisons import comparison
from dolma_dask.rules.levels import Levels
from dolma_dask.rules.rules import Compare, Rule, all_of
from dolma_dask.rules.strictness import LEVELS
from dolma_dask.rules.thresholds import Thresholds

SECTION = "Thresholds"
"""Heading of the section of their tables."""

MAX_GROUPS = 12
"""Groups that have a column; the page with sliders has more."""

MAX_EXAMPLES = 2
"""Documents on each side of each bound in each group."""


class PageThresholds(Struct, frozen=True):
    """Thresholds for a page, of which nothing has been read but their files."""

    question: PreparedQuestion | None = None
    note: str = ""  # why they are left out
    is_used: bool = True  # whether the selection was made by them
    is_rule: bool = False  # whether they are the numbers of its rule, whose drops the page shows anyway
    is_whole: bool = True  # whether nothing but them decides, if the selection was made by them

    def answer(self, run: RunOptions, stages: Sequence[StageRow] = ()) -> tuple[WhatIf | None, str]:
        """Read the attributes and return the answer, with texts of examples, or why there is none; tokens are estimated by those that `stages` made."""
        if self.question is None:
            return None, self.note
        try:
            return self.question.answer(run, *_token_ratio(stages)).with_excerpts(self.question.dataset), ""
        except InterruptedStageError:  # ctrl-C is for the whole report
            raise
        except DolmaDaskError as error:
            return None, _left_out(self.question.dataset, error)


def _token_ratio(stages: Sequence[StageRow]) -> tuple[float, str]:
    """Return tokens per byte of the newest token shards, and where the number comes from; without any, what is taken for every text."""
    made = next((stage for stage in reversed(stages) if stage.tokens and stage.text_bytes), None)
    if made is None or not made.tokens or not made.text_bytes:
        return TOKENS_PER_BYTE, ASSUMED
    return made.tokens / made.text_bytes, f"measured by {made.verb}"


def find_thresholds(dataset: Dataset, parts: Collection[Rule], examples: int) -> PageThresholds:
    """Find the thresholds of a selection by the conditions `parts` from a dataset; `examples` are shown on each side of a bound."""
    names = frozenset[str]().union(*(part.names for part in parts))
    try:
        of_levels = _of_levels(dataset, parts, names)
        known = of_levels or _of_quantiles(dataset, parts, names)
        is_used = bool(of_levels) or (known is not None and _are_parts(known[0], parts))
        if not is_used and any(map(comparison, parts)):
            return PageThresholds(_of_rule(dataset, parts), is_rule=True)
        if known is None:
            return PageThresholds()
        url, thresholds, name = known
        own = 1 if of_levels else len(conjuncts(read_thresholds(url))) if is_used else len(parts)
        question = ask(dataset, thresholds, name=name, examples=min(examples, MAX_EXAMPLES))
        return PageThresholds(question, is_used=is_used, is_whole=len(parts) <= own)
    except DolmaDaskError as error:
        return PageThresholds(note=_left_out(dataset, error))


def _of_rule(dataset: Dataset, parts: Collection[Rule]) -> PreparedQuestion:
    """Ask about the numbers of a rule, among the documents for which its other conditions hold; the page shows documents beside its bounds itself."""
    bounds, given = split(all_of(*parts))
    return replace(ask(dataset, bounds, given=given, examples=0), notes=())  # a rule has no levels


def _left_out(dataset: Dataset, error: Exception) -> str:
    return f"thresholds are left out: {str(error).replace(f'{dataset.root}/', '')}"


def _of_levels(
    dataset: Dataset, parts: Collection[Rule], names: Collection[str]
) -> tuple[str, Thresholds, str] | None:
    """Return the file and the name of the quantiles that the levels were made of which a rule reads, and their thresholds at the level; None if it reads none.

    Raises `UsageError`: the levels were made of others.
    """
    journal = Journal(dataset.root, "filter")
    for run in reversed(journal.runs):
        made = run.params.get("name", "")
        name = str(run.params.get("quantiles", QUANTILES))
        if not any(one.startswith(f"{made}.") for one in names):
            continue
        if run.params.get("thresholds") or name.endswith(".json"):
            return None
        # few selections are by levels
        from dolma_dask.exchange.flagging import dataset_unit
        from dolma_dask.verbs.filter.job import thresholds_key

        url = dataset.url(quantiles_path(name))
        tails = run.params.get("tails")
        levels = [
            thresholds(url, level, tails=tails, nulls=run.params.get("nulls", "drop")) for level in LEVELS
        ]
        record = journal.records.get(dataset_unit(made))
        if record is None or record.info.get("thresholds") != thresholds_key(Levels.of(levels)):
            raise UsageError(
                f"the levels of {made} are not those of {quantiles_path(name)}; expected levels of the quantiles that are there. Make them again: "
                f"dolma-dask filter {shlex.quote(dataset.root)} --quantiles {name} --name {made}."
            )
        number = max((_least(part, f"{made}.{LEVEL_KEY}") for part in parts), default=0)
        return url, levels[min(max(number, 1), len(levels)) - 1], name
    return None


def _least(part: Rule, column: str) -> int:
    """Return the number of a condition that a column is at least that."""
    if isinstance(part, Compare) and part.sign == ">=" and str(part.left) in (column, f"`{column}`"):
        value = getattr(part.right, "value", 0)
        return int(value) if isinstance(value, int | float) else 0
    return 0


def _of_quantiles(
    dataset: Dataset, parts: Collection[Rule], names: Collection[str]
) -> tuple[str, str, str] | None:
    """Return a file of thresholds that `quantiles` wrote, twice, and the name of the quantiles: that of the conditions `parts`, else the newest of those whose signals they all read, else the newest."""
    found = sorted(
        _files(dataset), key=lambda one: (_are_parts(one[0], parts), _are_read(one[0], names), one[2])
    )
    return (found[-1][0], found[-1][0], found[-1][1]) if found else None


def _files(dataset: Dataset) -> Iterator[tuple[str, str, float]]:
    """Yield thresholds that `quantiles` wrote: where they stand, the name of the quantiles, and when they were made."""
    for record in Journal(dataset.root, QUANTILES).records.values():
        name, _, level = record.unit.removeprefix(f"{QUANTILES}/").removesuffix(".json").rpartition(".")
        url = dataset.url(record.unit)
        if level in LEVELS and name and files.stat(url) is not None:
            yield url, name, record.finished


def _are_read(url: str, names: Collection[str]) -> bool:
    try:
        return set(read_thresholds(url).signals) <= set(names)
    except UsageError:
        return False


def _are_parts(url: str, parts: Collection[Rule]) -> bool:
    """Tell whether the conditions of a selection are those of some thresholds, or more."""
    own = set(map(str, parts))  # parsed from the text of a run, which spells bounds by group out
    try:
        return all(str(part) in own for part in conjuncts(read_thresholds(url)))
    except UsageError:
        return False


# ------------------------------------------------------------------------------------------------ on the page


def thresholds_part(answer: WhatIf | None, is_used: bool, is_rule: bool = False) -> ThresholdsPart | None:
    """Return the section of an answer: its content, and the page with sliders."""
    if answer is None:
        return None
    content = {**answer.to_json(), "root": last_name(answer.root)}
    return ThresholdsPart(content, embedded(answer), is_used, is_rule)


def threshold_tables(answer: WhatIf | None, is_used: bool = True, is_whole: bool = True) -> tuple[Table, ...]:
    """Make the tables of an answer: the documents that each rule drops, and those that each level keeps; unless the selection used its bounds and nothing else, it is about them alone."""
    if answer is None:
        return ()
    drops = rule_table(answer) if is_whole else _of_bounds(rule_table(answer))
    caption = " ".join(_threshold_words(answer, is_used, is_whole))
    drops = replace(drops, caption=caption, section=SECTION)
    return (drops, replace(level_table(answer), section=SECTION)) if answer.levels else (drops,)


def _of_bounds(table: Table) -> Table:
    """Say in a column that only bounds are compared, as the page also tells what no other condition of the whole rule drops."""
    columns = [
        replace(column, heading="no other bound drops") if column.heading == "no other drops" else column
        for column in table.columns
    ]
    return replace(table, columns=columns)


def _threshold_words(answer: WhatIf, is_used: bool, is_whole: bool) -> Iterator[str]:
    if is_whole:
        yield from sentences(answer, "" if is_used else "With these bounds, ")
        return
    yield from sentences(answer, "With these bounds alone, ", "bound")
    yield "The other conditions of the rule are not counted here: what they drop too may be among these documents."
