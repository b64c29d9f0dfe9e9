"""A sample of raw files, read by the sources of `convert`: a few records of a few files of each kind, and what their fields hold."""

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dolma_dask.errors import DolmaDaskError
from dolma_dask.functions.calls import UserFunction
from dolma_dask.io.files import FileInfo
from dolma_dask.sources import FieldMapping, open_sources
from dolma_dask.sources.encoding import AUTO
from dolma_dask.sources.naming import SINGLE, split_suffix
from dolma_dask.sources.rows import USUAL_TEXTS

FILES, SINGLE_FILES, RECORDS = 12, 200, 200
"""Files of each kind that are opened, spread over the listing; the same of files that are one document each; records that are kept of a file."""

FOLDERS = 24
"""Further files of a kind that are opened: one of each folder that has none among the others, since folders are sources of their own."""

_LONGEST = 8_000_000
_IDS = (
    "id",
    "_id",
    "doc_id",
    "docid",
    "document_id",
    "page_id",
    "article_id",
    "record_id",
    "uuid",
    "guid",
    "url",
    "uri",
    "link",
    "number",
)
_TIMES = ("timestamp", "date", "published", "published_at", "created_at", "date_download", "time")
_ENDINGS = ("uuid", "guid", "timestamp", "date")
"""Names that are as good with words before them."""

_KINDS = {str: "text", int: "whole number", float: "number", bool: "truth value", dict: "object"}


@dataclass
class Seen:
    """What was seen of one raw file."""

    kind: str
    path: str
    encoding: str = "UTF-8"
    records: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0  # that were read, bad ones and those that are not kept too
    bad: int = 0
    why: str = ""  # the first bad record, or why the file cannot be read


def look_at(base: str, infos: Sequence[FileInfo]) -> Iterator[Seen]:
    """Yield what is seen of the files of each kind, up to so many."""
    kinds: dict[str, list[FileInfo]] = {}
    for info in infos:
        kinds.setdefault(split_suffix(info.path).kind, []).append(info)
    for kind, own in kinds.items():
        yield from (
            _seen(base, info, kind) for info in _sample(own, SINGLE_FILES if kind in SINGLE else FILES)
        )


def _sample(infos: Sequence[FileInfo], most: int) -> list[FileInfo]:
    """Return files spread over the listing, and one of each folder that has none among these, up to so many."""
    spread = _spread(infos, most)
    known = {posixpath.dirname(info.path) for info in spread}
    others: dict[str, FileInfo] = {}
    for info in infos:
        if (folder := posixpath.dirname(info.path)) not in known:
            others.setdefault(folder, info)
    return spread + _spread(list(others.values()), FOLDERS)


def _spread(infos: Sequence[FileInfo], most: int) -> list[FileInfo]:
    number = min(most, len(infos))
    return [infos[n * len(infos) // number] for n in range(number)]


def _seen(base: str, info: FileInfo, kind: str) -> Seen:
    seen = Seen(kind, info.path)

    def keep(record: dict[str, Any]) -> None:
        if len(seen.records) < RECORDS:
            seen.records.append(record)

    how: dict[str, Any] = {"function": UserFunction("look", keep, "1"), "encoding": AUTO}
    try:
        for source in open_sources(base, [info], FieldMapping(), max_record_bytes=_LONGEST, **how):
            for block in source.read():
                seen.rows += block.num_rows
                seen.bad += len(block.bad)
                seen.encoding = next(iter(block.encodings), seen.encoding)
                seen.why = seen.why or (str(block.bad[0]) if block.bad else "")
                if block.num_rows:
                    break
    except (DolmaDaskError, OSError) as error:
        seen.why = str(error)
    for record in seen.records:
        if record.get("encoding") == seen.encoding != "UTF-8":
            del record["encoding"]  # that is no field of the file: the source adds it
    return seen


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that hold something, those of objects in it by a dotted name."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        inner = value.items() if isinstance(value, dict) else ()
        found |= {f"{name}.{own}": one for own, one in inner} if inner else {name: value}
    return {name: value for name, value in found.items() if value not in (None, {})}


class FieldRow(NamedTuple):
    """A field of the records of a kind of files: its share of these, the type of most values, characters on average, whether each record has its own."""

    of: str
    field: str
    share: float
    type: str
    length: float | None
    unique: str
    example: str


def field_rows(kind: str, records: Sequence[dict[str, Any]]) -> Iterator[FieldRow]:
    """Yield what the fields of records hold, in the order in which they come."""
    values: dict[str, list[Any]] = {}
    for record in records:
        for name, value in flat(record).items():
            values.setdefault(name, []).append(value)
    for name, own in values.items():
        ((most, _),) = Counter(map(type, own)).most_common(1)
        texts = [len(value) for value in own if isinstance(value, str)]
        unique = "yes" if len(set(map(repr, own))) == len(own) == len(records) else ""
        length = sum(texts) / len(texts) if texts else None
        example = " ".join(str(own[0])[:200].split())[:40]
        share = len(own) / len(records)
        yield FieldRow(kind, name, share, _KINDS.get(most, most.__name__), length, unique, example)
    empty = dict.fromkeys(name for record in records for name, value in record.items() if value is None)
    yield from (FieldRow(kind, name, 0.0, "null", None, "", "") for name in empty if name not in values)


def _first(usual: Sequence[str], fields: Sequence[str]) -> str | None:
    """Return the field with the first of some usual names, with objects or words before it (``meta.id``, ``page_uuid``); None if there is none."""
    for name in usual:
        whole = [one for one in fields if one.rpartition(".")[2].lower() == name]
        ending = [one for one in fields if name in _ENDINGS and one.lower().endswith(f"_{name}")]
        if found := sorted(whole, key=lambda one: one.count(".")) + ending:
            return found[0]
    return None


class Choice(NamedTuple):
    """Which field of the records of a kind is what, as `convert` asks for it."""

    text: str = "text"
    id: str | None = None
    created: str | None = None

    @classmethod
    def of(cls, rows: Sequence[FieldRow]) -> "Choice":
        """Choose among fields: the text is called so, or has a usual name, or is the longest; ids are unique; a time stamp has a usual name."""
        texts = {row.field: row.length or 0.0 for row in rows if row.type == "text" and row.share > 0.5}
        usual = {name: 4 if name.rpartition(".")[2].lower() in USUAL_TEXTS else 1 for name in texts}
        is_text = "text" in texts or not texts
        text = "text" if is_text else max(texts, key=lambda name: texts[name] * usual[name])
        short = {row.field: row for row in rows if row.type in ("text", "whole number") and row.field != text}
        unique = [name for name, row in short.items() if row.unique]
        id = None if "id" in short else _first(_IDS, unique)
        return cls(text, id, None if "created" in short else _first(_TIMES, list(short)))

    def words(self) -> list[str]:
        """Return the options that say so."""
        text = None if self.text == "text" else self.text
        given = {"--text": text, "--id": self.id, "--created": self.created}
        return [word for name, value in given.items() if value for word in (name, value)]
