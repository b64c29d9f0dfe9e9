"""Files of one kind whose records have the same fields, and what a command that converts them together would set aside.

The files of a kind are one group if one choice of fields fits each file that was opened; else those of each folder are looked at by themselves.
"""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

from dolma_dask.display import percent
from dolma_dask.io.files import FileInfo
from dolma_dask.questions.look.sample import FOLDERS, Choice, FieldRow, Seen, field_rows, flat, look_at
from dolma_dask.sources.naming import OF_KNOWN_FIELDS, SINGLE, split_suffix

FEW = 0.025
"""The largest share of bad records that a command may set aside; with more of them, something is wrong with the files or the choice of fields."""


@dataclass(frozen=True)
class Group:
    """Files of a kind below a folder, and what was seen of them."""

    kind: str
    folder: str  # the deepest that holds them all, relative to the base
    paths: tuple[str, ...]
    seen: tuple[Seen, ...]
    is_flat: bool = False  # those of the folder itself, which has folders with more of them
    label: str = ""  # as it is called in tables

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The records of the sample."""
        return [record for one in self.seen for record in one.records]

    @cached_property
    def rows(self) -> list[FieldRow]:
        """What their fields hold; nothing where a file is one document."""
        return [] if self.kind in SINGLE else list(field_rows(self.label, self.records))

    @cached_property
    def choice(self) -> Choice:
        """Which field is what."""
        return Choice() if self.kind in OF_KNOWN_FIELDS else Choice.of(self.rows)

    @cached_property
    def texts(self) -> list[str]:
        """The texts of the sample, by that choice."""
        found = (flat(record).get(self.choice.text) for record in self.records)
        return [text for text in found if isinstance(text, str)]

    @property
    def lacking(self) -> float:
        """Share of records without such a text."""
        return 1 - len(self.texts) / len(self.records) if self.records else 0.0

    @property
    def bad(self) -> float:
        """Share of records that would be set aside: those that cannot be read, and those without a text."""
        unread = sum(one.bad for one in self.seen) / max(sum(one.rows for one in self.seen), 1)
        return unread + (1 - unread) * self.lacking

    @property
    def is_alike(self) -> bool:
        """Whether the choice fits each file."""
        return self.kind in OF_KNOWN_FIELDS or all(
            self._fits(one) for one in self.seen if one.records or one.bad
        )

    def _fits(self, one: Seen) -> bool:
        texts = (flat(record).get(self.choice.text) for record in one.records)
        return 2 * sum(isinstance(text, str) for text in texts) > len(one.records)

    def complaint(self) -> str:
        """Say what is wrong with the files if more than a few records, or most of those of a file, would be set aside; else nothing."""
        if self.bad <= FEW and self.is_alike:
            return ""
        lead = f"{self.label}: {percent(self.bad)} of the records looked at are bad"
        why = next((one.why for one in self.seen if one.bad), "")
        if self.lacking:
            names = ", ".join(row.field for row in self.rows if row.field != self.choice.text) or "no others"
            file = next(
                (
                    f", such as those of {one.path}"
                    for one in self.seen
                    if one.records and not self._fits(one)
                ),
                "",
            )
            text = f"{percent(self.lacking)} have no {self.choice.text!r}{file}, but these fields: {names}"
            why = f"{text}; and {why}" if why else text
        return f"{lead}; {why}. Setting them aside would lose them: mend or convert such files by themselves first."


def grouped(base: str, infos: Sequence[FileInfo], seen: Sequence[Seen]) -> list[Group]:
    """Return the files in groups: those of a kind, or of the folders in which their fields differ."""
    found: list[Group] = []
    for kind in dict.fromkeys(one.kind for one in seen):
        paths = [info.path for info in infos if split_suffix(info.path).kind == kind]
        own = list(_divided(base, infos, _group(kind, paths, [one for one in seen if one.kind == kind])))
        found += own if len(own) == 1 else [_labelled(group) for group in own]
    return found


def _group(kind: str, paths: Sequence[str], seen: Sequence[Seen], is_flat: bool = False) -> Group:
    folders = [posixpath.dirname(path).split("/") for path in paths]
    if kind == "mail":  # a message of a maildir is known by its folder
        folders = [parts[:-1] if parts[-1] in ("cur", "new") else parts for parts in folders]
    common = takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))
    folder = "/".join(parts[0] for parts in common)
    return Group(kind, folder, tuple(paths), tuple(seen), is_flat, kind)


def _labelled(group: Group) -> Group:
    label = f"{group.kind} in {group.folder or '.'}"
    return Group(group.kind, group.folder, group.paths, group.seen, group.is_flat, label)


def _divided(base: str, infos: Sequence[FileInfo], group: Group) -> Iterator[Group]:
    """Yield the group if its files are alike or cannot be told apart by folder, else the groups of its folders."""
    below = {"": [path for path in group.paths if posixpath.dirname(path) == group.folder]}
    start = len(group.folder) + 1 if group.folder else 0
    for path in group.paths:
        if posixpath.dirname(path) != group.folder:
            below.setdefault(path[start:].partition("/")[0], []).append(path)
    parts = {name: paths for name, paths in below.items() if paths}
    if group.is_alike or not 1 < len(parts) <= FOLDERS:
        yield group
        return
    for name, paths in parts.items():
        own = set(paths)
        seen = [one for one in group.seen if one.path in own]
        seen = seen or list(look_at(base, [info for info in infos if info.path in own]))
        yield from _divided(base, infos, _group(group.kind, paths, seen, is_flat=not name))
