"""Names of signals, as people write them and as they are shown: an attribute key behind ``__``, a field without ``metadata.``."""

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

from dolma_dask.errors import UsageError
from dolma_dask.rules.values import endings

MAX_LISTED = 20
"""Names that a message lists."""


def short_name(signal: str) -> str:
    """Return the last part of an attribute key or of a field of the metadata; all of it if it is the share that `dedupe` flags, which sets have in common."""
    before, _, last = signal.removeprefix("metadata.").rpartition("__")
    return signal if last == "share" and before and "__" not in before else last


def short_names(signals: list[str]) -> dict[str, str]:
    """Return how tables call each signal: by its short name, where another has it too with its set in front, where there is one, else in full."""
    short = {signal: short_name(signal) for signal in signals}
    if len(set(short.values())) == len(short):
        return short
    inside = {signal: f"{signal.partition('/')[0]}/{name}" for signal, name in short.items() if "/" in signal}
    names = Counter([*short.values(), *inside.values()])
    ways = {signal: (short[signal], inside.get(signal, signal)) for signal in signals}
    return {signal: next((way for way in known if names[way] == 1), signal) for signal, known in ways.items()}


def one_signal(problem: str, name: str, signals: list[str]) -> str:
    """Return the signal that a name stands for; `problem` begins the message if there is none, or several."""
    ours = matching(name, signals)
    if len(ours) == 1:
        return ours[0]
    near = ours or get_close_matches(name, [*signals, *map(short_name, signals)])
    hint = f"{'it is short for' if ours else 'near it are'} {', '.join(near)}; " if near else ""
    raise UsageError(f"{problem} {name!r}; {hint}expected one of {some(signals)}.", name=name)


def matching(name: str, signals: list[str]) -> list[str]:
    """Return the signals that a name stands for: itself, else those that end in it (`endings`), a field without ``metadata.`` too."""
    ends = endings(name, signals)
    return (
        ends if ends == [name] else [*ends, *(signal for signal in signals if signal == f"metadata.{name}")]
    )


def some(names: Sequence[str]) -> str:
    """Return names for a message: all of few, the first of many."""
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more if names else "none"
