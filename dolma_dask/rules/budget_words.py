"""Budgets in words: ``web=40% code=60%`` or ``web=8B code=500M``, a total such as ``20B``, and the same as a map."""

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from dolma_dask.errors import UsageError
from dolma_dask.rules.budgets import Budget
from dolma_dask.rules.downsampling import NO_LABEL
from dolma_dask.rules.groups import label_of

_PAIR = re.compile(r"\s*((?:(?!=\s|=$).)*?)\s*=([^\s=]+)(?=\s|$)", re.DOTALL)
"""A group and its share; the name of a group may have blanks and equals signs in it, and that of documents without a value is empty."""

_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)\s*([KMBT]?)", re.IGNORECASE | re.ASCII)

_FACTORS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}

_LIMIT = 2**63

_EXPECTED = "shares that add up to 100 % (web=70% code=30%), or numbers of tokens (web=8B code=500M)"


def budget(
    given: Mapping[str, Any] | Sequence[str] | None,
    tokens: str | float | None,
    max_epochs: int,
    by: str,
    unit: str,
    seed: int,
    *,
    is_trial: bool = False,
) -> Budget:
    """Check what was requested, in words or in numbers; raise `UsageError` for anything else."""
    words = {} if given is None or given == () else _read_groups(given)
    total = None if tokens is None else _whole("tokens", tokens)
    if total == 0:
        raise UsageError(f"tokens={tokens!r}; expected a number of tokens, 1 or more, such as 20B.")
    shares, numbers = _read_shares(words)
    if numbers:
        if total is not None:
            raise UsageError(
                f"budget={_shown(words)} gives the tokens of each group, and tokens={tokens!r} those of all; expected one of them."
            )
        total = sum(numbers.values())
        shares = {label: Fraction(number, total) for label, number in numbers.items()}
    return Budget(shares, total, max_epochs, by, unit, seed, words, is_trial)


def _read_shares(words: Mapping[str, str]) -> tuple[dict[str, Fraction], dict[str, int]]:
    """Return the shares of groups, or their numbers of tokens."""
    shares = {label: _share(label, text) for label, text in words.items() if text.endswith("%")}
    numbers = {
        label: _whole(f"budget of {label!r}", text) for label, text in words.items() if label not in shares
    }
    if shares and numbers:
        raise UsageError(f"budget={_shown(words)} has shares and numbers; expected one kind: {_EXPECTED}.")
    whole = sum(shares.values())
    if shares and whole != 1:
        raise UsageError(f"budget={_shown(words)} adds up to {float(100 * whole):.6g} %; expected 100 %.")
    if numbers and not sum(numbers.values()):
        raise UsageError(f"budget={_shown(words)} wants nothing; expected {_EXPECTED}.")
    return shares, numbers


def _read_groups(given: Mapping[str, Any] | Sequence[str]) -> dict[str, str]:
    """Return what is wanted of each group, in words."""
    if isinstance(given, Mapping):
        pairs = [(label_of(label) or NO_LABEL, value) for label, value in given.items()]
    else:
        words = [given] if isinstance(given, str) else given
        pairs = [pair for word in words for pair in _pairs_in(str(word))]
    groups = dict(pairs)
    if len(groups) < len(pairs):
        raise UsageError(f"budget={given!r} names a group twice; expected each once.")
    if not groups:
        raise UsageError(f"budget was given with nothing in it; expected {_EXPECTED}.")
    return {label: _text_of(label, value) for label, value in groups.items()}


def _pairs_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield groups and what is wanted of them from words such as ``web=40% code=60%``."""
    at = 0
    while text[at:].strip():
        found = _PAIR.match(text, at)
        if found is None:
            raise UsageError(f"budget: found {text[at:].strip()!r}; expected {_EXPECTED}.")
        yield found[1], found[2]
        at = found.end()


def _text_of(label: str, value: Any) -> str:
    """Return the words for a value of a map; refuse what may be a share or a number."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer():
        return str(int(value))
    near = f" As a share: '{100 * value:g}%'." if isinstance(value, float) and 0 < value < 1 else ""
    raise UsageError(f"budget: found {value!r} for {label!r}; expected {_EXPECTED}.{near}")


def _share(label: str, text: str) -> Fraction:
    """Return a share of the total."""
    found = _NUMBER.fullmatch(text[:-1].strip())
    if found is None or found[2] or Fraction(found[1]) > 100:
        raise UsageError(f"budget: found {label}={text}; expected a share from 0% to 100%.")
    return Fraction(found[1]) / 100


def _whole(what: str, given: str | float) -> int:
    """Return a number of tokens; K, M, B and T stand for 10^3, 10^6, 10^9 and 10^12."""
    found = None if isinstance(given, bool) else _NUMBER.fullmatch(str(given).strip())
    number = Fraction(found[1]) * _FACTORS[found[2].upper()] if found else Fraction(-1)
    if not 0 <= number < _LIMIT or number.denominator > 1:
        raise UsageError(
            f"{what}: found {given!r}; expected a whole number, such as 8000000, 500K, 8M, 8B or 1.5T."
        )
    return int(number)


def _shown(words: Mapping[str, str]) -> str:
    return repr(" ".join(f"{label}={text}" for label, text in words.items()))
