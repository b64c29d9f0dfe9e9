"""Whether the rule keeps now what the journal says was kept, and what else than the rule has decided.

A page shows what the `where` rule keeps, which can be worked out from documents and attributes. Filters, samples and a least length of the
text decide too where they were asked for: their effect is told as the journal counted it, and never taken for a disagreement. The counts of
each condition of the rule can be compared always.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dolma_dask.display import counted
from dolma_dask.io.records import RuleCount, merge_rules
from dolma_dask.verbs.report.history import History
from dolma_dask.verbs.report.model import RuleRow
from dolma_dask.verbs.report.names import last_name
from dolma_dask.verbs.report.origin import Origin
from dolma_dask.verbs.report.survey import Findings


@dataclass(frozen=True)
class Told:
    """What the records of a selection tell of it.

    Attributes
    ----------
    verb, name : str
        Of what selected, and of the dataset that it wrote.
    documents_in, documents_out : int
        Documents that were read, without those that could not be, and documents that were written.
    matched : tuple of int or None
        Documents for which each condition held; None where it was not counted.
    filters : tuple of (str, int)
        Filters, with the documents that each matched.
    others : tuple of str
        What decided besides the rule, in words.
    changed : int
        Documents whose text was changed.
    otherwise : int
        Shards that were made with another rule or other options than the newest.
    gap : str
        Why the counts of now cannot be compared with these; empty if they can.
    """

    verb: str
    name: str
    documents_in: int = 0
    documents_out: int = 0
    matched: tuple[int | None, ...] = ()
    filters: tuple[tuple[str, int], ...] = ()
    others: tuple[str, ...] = ()
    changed: int = 0
    otherwise: int = 0
    gap: str = ""


def what_was_told(history: History, origin: Origin, parts: Sequence[object]) -> Told | None:
    """Return what the records tell of a selection; None if nothing was selected, or no record is left of it.

    Parameters
    ----------
    history : History
        Of the shards that are shown.
    origin : Origin
        What was selected from.
    parts : sequence of Rule
        Conditions of the rule.
    """
    step = origin.step and history.step(origin.step.root, origin.step.verb)
    if origin.step is None or step is None:
        return None
    name = last_name(step.root)
    if not step.records:
        gap = f"{name} was cut into files by size: how many documents of some shards it has cannot be told"
        return Told(step.verb, name, gap=gap) if origin.step.packed else None
    counts: Counter[str] = Counter()
    for record in step.records:
        counts.update({key: int(count) for key, count in record.counts.items()})
    rules = merge_rules(record.rules for record in step.records)
    where = {rule.rule: rule.matched for rule in rules if rule.kind == "where"}
    is_gap = origin.gone and bool(step.packed)
    return Told(
        verb=step.verb,
        name=name,
        documents_in=counts["documents_in"] - counts["bad_records"],
        documents_out=counts["documents_out"],
        matched=tuple(where.get(str(part)) for part in parts),
        filters=tuple((rule.name, rule.matched) for rule in rules if rule.kind != "where"),
        others=_others(counts, rules),
        changed=counts["documents_changed"],
        otherwise=len({record.shard for record in step.records} - {record.shard for record in step.current}),
        gap=f"{name} was made of shards that are gone: its counts cannot be compared" if is_gap else "",
    )


def _others(counts: Counter[str], rules: Sequence[RuleCount]) -> tuple[str, ...]:
    found = []
    if any(rule.kind == "include" or (rule.kind == "exclude" and rule.matched) for rule in rules):
        found.append("filters")
    if counts["documents_too_short"]:
        found.append(
            f"the least length of a text ({counted(counts['documents_too_short'], 'document')} too short)"
        )
    if "documents_not_sampled" in counts:
        again = f", {counts['documents_again']:,} more than once" if counts["documents_again"] else ""
        found.append(f"a sample ({counted(counts['documents_not_sampled'], 'document')} not drawn{again})")
    return tuple(found)


def disagreement(told: Told | None, spelled: Sequence[str], found: Findings) -> str | None:
    """Compare what the rule keeps now with what the journal says was kept, and how; None if it is the same, or cannot be compared.

    Parameters
    ----------
    told : Told or None
        What the journal says.
    spelled : sequence of str
        The conditions of the rule as a reader should see them.
    found : Findings
        What was found in all shards.
    """
    if told is None or told.gap:
        return None
    if told.otherwise:
        return (
            f"{counted(told.otherwise, 'shard')} {'was' if told.otherwise == 1 else 'were'} made with another rule or other options than the "
            f"newest, which this page shows: run {told.verb} again for all shards"
        )
    now = _difference(told, spelled, found)
    if now is None:
        return None
    return f"{now} when {told.verb} ran: documents or attributes were made again since; run {told.verb} again"


def _difference(told: Told, spelled: Sequence[str], found: Findings) -> str | None:
    if not told.others and told.documents_out != found.kept:
        return f"the rule keeps {found.kept:,} documents now, {told.documents_out:,}"
    for part, count in enumerate(told.matched):
        matched = found.matched.get(part, 0)
        if count is not None and count != matched:
            return f"{spelled[part]} holds for {matched:,} documents now, {count:,}"
    read = found.rows - found.bad
    return None if told.documents_in == read else f"{read:,} documents are read now, {told.documents_in:,}"


def remarks(told: Told | None, has_rule: bool, found: Findings) -> tuple[str, ...]:
    """Return what a reader must know of the numbers on a page: what they do not show.

    Parameters
    ----------
    told : Told or None
        What the journal says.
    has_rule : bool
        Whether a rule decided.
    found : Findings
        What was found in all shards.
    """
    if told is None:
        return ()
    parts = [told.gap]
    others = " and ".join(filter(None, [", ".join(told.others[:-1]), *told.others[-1:]]))
    if others and has_rule:
        parts.append(
            f"The rule alone keeps {counted(found.kept, 'document')}; {told.verb} wrote {told.documents_out:,}, because {others} decided too. "
            "Which documents these took is not worked out again: what is called kept on this page is what the rule alone keeps."
        )
    elif others:
        parts.append(
            f"No rule decided, but {others}: {told.verb} wrote {told.documents_out:,} of {counted(told.documents_in, 'document')}. Which ones is "
            "not worked out again: this page shows all that were read."
        )
    if told.changed:
        parts.append(
            f"{told.verb} changed the text of {counted(told.changed, 'document')}: sizes by source, signals and excerpts are of the text before."
        )
    return tuple(filter(None, parts))


def filter_rows(told: Told | None) -> list[RuleRow]:
    """Return the rows of the table of conditions for filters, as the journal counted them."""
    if told is None:
        return []
    return [
        RuleRow(name, count, count / told.documents_in if told.documents_in else 0.0)
        for name, count in told.filters
    ]
