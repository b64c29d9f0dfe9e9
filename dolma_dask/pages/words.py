"""Conditions of a rule in plain words: the documents that each of them drops."""

from collections.abc import Mapping

from dolma_dask.display import isolated, real
from dolma_dask.rules.comparisons import MIRRORED
from dolma_dask.rules.rules import Compare, Flag, Missing, Not, Rule
from dolma_dask.rules.signal_names import short_name
from dolma_dask.rules.values import Literal, Name
from dolma_dask.rules.within import Within

_DROPPED = {
    "<": "{} of {} or more",
    "<=": "{} above {}",
    ">": "{} of {} or less",
    ">=": "{} below {}",
    "==": "{} other than {}",
    "!=": "{} equal to {}",
}

COPIES = "copies of another document"
"""Words for the documents that `dedupe` has flagged and a rule drops."""

_FLAGGED = {"dedupe": f"{COPIES} ({{}})", "block": "documents of a block list ({})"}


def is_flagged(plain: str) -> bool:
    """Tell whether documents are flagged by a verb, by the words that `dropped_by` has for them."""
    return plain.startswith(tuple(words.partition("{")[0] for words in _FLAGGED.values()))


def short(name: str) -> str:
    """Return a rule or a name for a sentence, without its end if it is very long."""
    return name if len(name) <= 120 else f"{name[:120]} ..."


def dropped_by(rule: Rule, flags: Mapping[str, str]) -> str:
    """Say which documents a condition drops; `flags` maps columns of flags to the verb that made them."""
    match rule:
        case Compare(sign, Name(key), Literal(value)):
            return _compared(sign, key, value)
        case Compare(sign, Literal(value), Name(key)):
            return _compared(MIRRORED[sign], key, value)
        case Missing(Name(key), False):
            return _FLAGGED.get(flags.get(key, ""), "documents with a value of {}").format(_name(key))
        case Missing(Name(key), True):
            return f"documents without a value of {_name(key)}"
        case Flag(Name(key)):
            return f"documents that are not {_name(key)}"
        case Not(Flag(Name(key))):
            return f"documents that are {_name(key)}"
        case Within(Name(key), Name(by)):
            return f"{_name(key)} outside of its bounds for each {_name(by)}"
        case Within(Name(key)):
            return f"{_name(key)} outside of its bounds"
    return ""


def _name(key: str) -> str:
    return isolated(short(short_name(key)))


def _compared(sign: str, key: str, value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    shown = real(float(value)) if is_number else isolated(short(repr(value)))  # type: ignore[arg-type]
    return _DROPPED[sign].format(_name(key), shown)
