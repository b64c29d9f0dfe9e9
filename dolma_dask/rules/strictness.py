"""Strictness of strictness: one for all signals and groups, and others for some of them.

``strict de=regular perplexity=strictest en.perplexity=regular``: the level of a signal goes before that of a group, and that of a signal in a group before both.
Names with blanks stand in quotes, as in a shell, or in a mapping.
"""

import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Literal, cast, get_args

from msgspec import Struct

from dolma_dask.errors import UsageError
from dolma_dask.rules.signal_names import matching, one_signal, short_name, some

Level = Literal["regular", "strict", "even_stricter", "strictest"]

LEVELS: Mapping[Level, tuple[float, float]] = {
    "regular": (0.1, 0.9),
    "strict": (0.2, 0.8),
    "even_stricter": (0.3, 0.7),
    "strictest": (0.4, 0.6),
}
"""Probabilities of the lower and the upper bound; names and numbers of the LUMI chain."""

LevelLike = str | Sequence[str] | Mapping[str, str]
"""A level, or several words, as in ``["strict", "de=regular"]``, or ``{"default": "strict", "de": "regular"}``."""

MIXED = "mixed"
"""Name of several levels in one, for files."""

DEFAULT = "default"
"""Key of the level of all that has no other."""

Place = tuple[str | None, str | None]
"""A group and a signal; None: all."""


class Strictness(Struct, frozen=True):
    """A level for all signals and groups, and others for some, under the names that people gave."""

    default: Level
    others: tuple[tuple[str, Level], ...] = ()

    @classmethod
    def of(cls, given: LevelLike) -> "Strictness":
        """Read levels; raise `UsageError` if one is unknown, or there is none for all."""
        levels: dict[str, Level] = {}
        for name, level in _pairs(given):
            if name in levels:
                raise UsageError(f"level={given!r}: {name!r} has two levels; expected one.")
            levels[name] = check_level(level)
        if DEFAULT not in levels:
            raise UsageError(
                f"level={given!r} has no level for all other signals and groups; expected one such as strict de=regular, in which strict is that."
            )
        return cls(levels.pop(DEFAULT), tuple(levels.items()))

    @property
    def name(self) -> str:
        """Name for files."""
        return MIXED if self.others else self.default

    @property
    def probabilities(self) -> tuple[float, ...]:
        """All that are needed."""
        used = (self.default, *(level for _, level in self.others))
        return tuple(sorted({item for level in used for item in LEVELS[level]}))

    def __str__(self) -> str:
        return shlex.join([self.default, *(f"{name}={level}" for name, level in self.others)])

    def among(self, signals: list[str], groups: Sequence[str]) -> "Strictness":
        """Return the same without the levels for what is not there."""
        return Strictness(
            self.default, tuple(one for one in self.others if _is_known(one[0], signals, groups))
        )

    def places(self, signals: list[str], groups: Sequence[str]) -> dict[Place, Level]:
        """Return the levels by group and signal; raise `UsageError`: a name is none of either, or of both."""
        return {
            (None, None): self.default,
            **{_place(name, signals, groups): level for name, level in self.others},
        }


def level_at(places: Mapping[Place, Level], group: str, signal: str) -> Level:
    """Return the level of a signal in a group."""
    order: tuple[Place, ...] = ((group, signal), (None, signal), (group, None), (None, None))
    return next(places[place] for place in order if place in places)


def _pairs(given: LevelLike) -> list[tuple[str, str]]:
    if isinstance(given, Mapping):
        return list(given.items())
    try:
        return [_pair(word) for word in shlex.split(given if isinstance(given, str) else " ".join(given))]
    except (TypeError, ValueError):
        raise UsageError(f"level={given!r}; expected words, such as strict or strict de=regular.") from None


def _pair(word: str) -> tuple[str, str]:
    name, sign, level = word.rpartition("=")
    return (name, level) if sign else (DEFAULT, level)


def _place(name: str, signals: list[str], groups: Sequence[str]) -> Place:
    """Return the place of a level that was given under a name."""
    is_signal, is_group = bool(matching(name, signals)), name in groups
    if is_signal and is_group:
        raise UsageError(
            f"level: {name!r} is a signal and a group; expected one. Give the full name of the signal."
        )
    if is_signal:
        return None, one_signal("level: no signal is called", name, signals)
    if is_group:
        return name, None
    for at in (at for at, sign in enumerate(name) if sign == "."):
        if name[:at] in groups and matching(name[at + 1 :], signals):
            return name[:at], one_signal("level: no signal is called", name[at + 1 :], signals)
    known = [*map(short_name, signals), *groups]
    near = get_close_matches(name, known)
    hint = f"near it are {', '.join(near)}; " if near else ""
    raise UsageError(
        f"level: no signal or group is called {name!r}; {hint}expected one of {some(known)}, or GROUP.SIGNAL.",
        name=name,
    )


def _is_known(name: str, signals: list[str], groups: Sequence[str]) -> bool:
    try:
        return bool(_place(name, signals, groups))
    except UsageError:
        return False


def check_level(level: str) -> Level:
    """Return `level` if it names one; raise `UsageError` otherwise."""
    if level in get_args(Level):
        return cast(Level, level)
    near = get_close_matches(str(level), get_args(Level), n=1)
    lead = f"did you mean {near[0]!r}? Expected" if near else "expected"
    raise UsageError(
        f"level={level!r} is unknown; {lead} regular (10 and 90 %), strict (20 and 80 %), even_stricter (30 and 70 %) or strictest "
        "(40 and 60 %)."
    )
