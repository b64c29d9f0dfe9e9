"""A command over all datasets of a root: one section each; the exit status is the worst."""

import functools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from dolma_dask.dataset import datasets_below
from dolma_dask.display import counted
from dolma_dask.errors import (
    ClusterError,
    DiskFullError,
    DolmaDaskError,
    InterruptedStageError,
    StoreUnreachableError,
    UsageError,
    message_of,
)
from dolma_dask.io import files

OF_ONE = ("to", "against")
"""Options of `validate` that name something of one dataset."""


_OF_ALL = (ClusterError, DiskFullError, StoreUnreachableError)
"""Errors that each further dataset would wait for, or be made for in vain."""


class Answers(Struct, frozen=True):
    """Answers of a command for each dataset of a root."""

    verb: str
    root: str
    parts: dict[str, Any]  # by path relative to the root: what the command returned, or its error
    notes: tuple[str, ...] = ()

    @property
    def exit_status(self) -> int:
        """The worst of all datasets."""
        return max(map(_status, self.parts.values()))

    def to_json(self) -> dict[str, Any]:
        """Return the answers as JSON-able values."""
        parts = [{"dataset": path, **_to_json(part)} for path, part in self.parts.items()]
        return {"verb": self.verb, "root": self.root, "notes": list(self.notes), "datasets": parts}

    def __str__(self) -> str:
        head = f"{self.verb} of {counted(len(self.parts), 'dataset')}{' below ' * bool(self.root)}{self.root}"
        wrong = [path for path, part in self.parts.items() if _status(part)]
        end = f"look at {', '.join(wrong)}" if wrong else "nothing is wrong or left in any of them"
        head = "\n".join([head, *(f"  note: {note}" for note in self.notes)])
        return "\n\n".join([head, *(_shown(path, part) for path, part in self.parts.items()), end])


def over_all(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that goes over all datasets below a root which is none itself."""

    @functools.wraps(verb)
    def command(dataset: str, /, **options: Any) -> Any:
        root = files.normalize(dataset)
        below = [] if options.get("version") else datasets_below(root)
        if below in ([], [""]):
            return verb(dataset, **options)
        for name in OF_ONE:
            if options.get(name) is not None:
                raise UsageError(
                    f"--{name} is of one dataset, and {root} holds {len(below)}, first {below[0]}; expected the path of one, or "
                    "--source and --version."
                )
        calls = {path: partial(verb, files.join(root, path), **options) for path in below}
        return answers(verb.__name__, calls, root)

    return command


def answers(name: str, calls: Mapping[str, Callable[[], Any]], root: str = "") -> Answers:
    """Return the answers of a command for several datasets, by their paths below a root, if they have one.

    Raises `UsageError`: none of them can be done.
    """
    from dolma_dask.clusters import shared_cluster  # commands whose help is asked for need none

    found = dict[str, Any]()
    with shared_cluster():
        for path, call in calls.items():
            found[path] = _answer(call)
            if isinstance(found[path], _OF_ALL):
                break
    left = len(calls) - len(found)
    notes = (
        (f"{counted(left, 'dataset')} behind the last one NOT looked at: they would lack the same",)
        if left
        else ()
    )
    wrong = [answer for answer in found.values() if isinstance(answer, UsageError)]
    if len(wrong) == len(found):
        raise wrong[0]
    return Answers(name, root, found, notes)


def _answer(call: Callable[[], Any]) -> Any:
    """Return the answer for one dataset; an error is one too, so that the others get theirs."""
    try:
        return call()
    except InterruptedStageError:
        raise
    except (DolmaDaskError, OSError) as error:
        return error


def _status(part: Any) -> int:
    return int(getattr(part, "exit_status", 1))  # errors of the system have none


def _to_json(part: Any) -> dict[str, Any]:
    if not isinstance(part, Exception):
        return {**part.to_json(), "exit_status": part.exit_status}
    description = {"type": type(part).__name__, "message": message_of(part)}
    return {"error": description, "exit_status": _status(part)}


def _shown(path: str, part: Any) -> str:
    if not isinstance(part, Exception):
        return str(part)
    summary = part.details.get("summary") if isinstance(part, DolmaDaskError) else None
    message = f"{path}: {type(part).__name__}: {message_of(part)}"
    return message if summary is None else f"{summary}\n{message}"
