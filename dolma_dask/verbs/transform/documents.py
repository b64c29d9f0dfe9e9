"""Changes of whole documents by a function: members of their lines that are written anew, and all other bytes as they are.

Cost: every document is decoded for the function, and cut into members with which its own are compared.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from dolma_dask.formats.documents import METADATA
from dolma_dask.formats.json.exact import LineError, parse_object
from dolma_dask.rules.splicing import Edit, splice
from dolma_dask.sources.documents import join_members
from dolma_dask.sources.functions import json_problem, kind_in_words, problem_in_words

KEPT = ("id", "source")
"""Fields that know a document, which no function changes."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class WrongResultError(Exception):
    """Error for a function that returned no such document: what was expected, and what was found."""


class Change(NamedTuple):
    """Outcome for one document."""

    text: str | None = None  # None: it is left out
    new: Mapping[str, bytes] = {}  # JSON of members that differ
    gone: frozenset[str] = frozenset()  # members that it has no longer


def decoded(line: bytes) -> dict[str, Any]:
    """Return a document as Python's values.

    Raises `LineError`: a number is too large for them, or objects are nested too deeply.
    """
    try:
        document: dict[str, Any] = _decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise LineError("wrong_type", f"numbers and depths that Python's values have: {error}") from error
    return document


def change_of(line: bytes, made: Any) -> Change:
    """Return what differs between a line and what a function made of it.

    Raises `WrongResultError`: it is no document, or has another id or source.
    """
    if made is None:
        return Change()
    if not isinstance(made, dict):
        raise WrongResultError("a document (dict), or None to drop it", kind_in_words(made))
    before = _members(line)
    for name in KEPT:
        if made.get(name) != (_decode(before[name]) if name in before else None):
            raise WrongResultError(f"the same {name!r}", kind_in_words(made.get(name)))
    if type(made.get("text")) is not str:
        raise WrongResultError(
            "a string in field 'text'",
            kind_in_words(made["text"]) if made.get("text") is not None else "none",
        )
    if METADATA in made and type(made[METADATA]) is not dict and made[METADATA] is not None:
        raise WrongResultError(f"an object (dict) in field {METADATA!r}", kind_in_words(made[METADATA]))
    try:
        problem = json_problem(made, "")
    except RecursionError:
        problem = "", "objects that are nested too deeply, or in themselves"
    if problem is not None:
        raise WrongResultError("values that JSON has", problem_in_words(problem))
    encoded = {name: _encode(value) for name, value in made.items()}
    new = {
        name: value
        for name, value in encoded.items()
        if name not in before or not _is_same(value, bytes(before[name]))
    }
    return Change(made["text"], new, frozenset(before.keys() - made.keys()))


def _is_same(new: bytes, old: bytes) -> bool:
    """Tell whether JSON texts have the same value, however it is spelled."""
    return new == old or _encode(_decode(old)) == new


def applied(lines: Sequence[bytes], changes: Sequence[Change]) -> pa.LargeBinaryArray:
    """Return lines with what changed."""
    names = dict.fromkeys(name for change in changes if not change.gone for name in change.new)
    rows = [
        _without(line, change) if change.gone else line for line, change in zip(lines, changes, strict=True)
    ]
    edits = [
        Edit(
            name,
            pa.array(
                [None if change.gone else change.new.get(name) for change in changes], pa.large_binary()
            ),
        )
        for name in names
    ]
    return splice(pa.array(rows, pa.large_binary()), edits)


def _without(line: bytes, change: Change) -> bytes:
    """Return a line of which members are gone."""
    members = {name: value for name, value in parse_object(line).items() if name not in change.gone}
    return (join_members({**members, **change.new}) or b"{}") + b"\n"
