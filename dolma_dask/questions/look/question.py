"""look: what raw files hold, from a sample of them that takes seconds, and the command that converts them."""

import html
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec.structs import replace

from dolma_dask.display import counted, percent
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.options.base import OUTPUT, Opt, Options
from dolma_dask.options.command import command
from dolma_dask.questions.look.commands import name_of, proposals, warnings
from dolma_dask.questions.look.groups import Group, grouped
from dolma_dask.questions.look.sample import Seen, look_at
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Fact, Facts, Listing, Notes, Part, Sentences
from dolma_dask.results.table import Column, Table
from dolma_dask.sources import naming
from dolma_dask.sources.naming import OF_KNOWN_FIELDS, split_suffix
from dolma_dask.taggers.word_lists import read_stop_words

_MARK = b"<!doctype html><!-- a look by dolma-dask -->"
_JUNK: Mapping[str, Callable[[str], object]] = {
    "no text": lambda text: not text.strip(),
    "under 50 words": lambda text: len(text.split(None, 50)) < 50,
    "tags of HTML": re.compile(r"</?(?:p|div|span|br|a|table)(?: [^<>]*)?/?>").search,
    "wrongly decoded characters": re.compile("\ufffd|Ã[\x80-\xbf]|â€").search,
}
"""What texts are often dropped for: the first rule of Gopher (Rae et al. 2021, table A1), and what is left of other forms."""

_FILES = [Column("kind", "name"), Column("files"), Column("stored", "size"), Column("opened")]
_FILES += [Column("encodings", "words"), Column("bad records", is_quiet=True)]
_FIELDS = [Column("of", "name"), Column("field", "name"), Column("in", "share"), Column("type", "name")]
_FIELDS += [Column("characters"), Column("unique", "name"), Column("example", "words")]


class Look(Answer, frozen=True):
    """What raw files hold; prints as tables, with the commands to convert them."""

    where: str
    facts: dict[str, str]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    commands: tuple[str, ...]
    page: str = ""

    def parts(self) -> Iterator[Part]:
        """Yield facts, tables, notes and commands."""
        yield Facts(f"look {self.where}", [Fact(*item) for item in self.facts.items()])
        yield from self.tables
        yield Notes(self.notes)
        yield Sentences(["to convert it:"] if self.commands else [])
        yield Listing("", self.commands)
        yield Sentences([f"page: {self.page}"] if self.page else [])

    def written(self, to: str) -> "Look":
        """Write it as a page; return the answer that knows where that is."""
        from dolma_dask.io.publish import publish

        url = files.normalize(to)
        if files.stat(url) is not None and not files.read_bytes(url).startswith(_MARK):
            raise UsageError(f"{url} is there and is no page of look; expected a free path. Choose another.")
        head = f"<meta charset='utf-8'><title>{html.escape(self.where)}</title>"
        with publish(url) as out:
            out.write(_MARK + f"{head}{self._repr_html_()}\n".encode())
        return replace(self, page=url)


@dataclass(frozen=True, kw_only=True)
class LookOptions(Options):
    """Options of `look`."""

    to: Annotated[str | None, Opt("Write it as a page of HTML too.", group=OUTPUT)] = None


@command
def look(
    inputs: Annotated[Sequence[str] | str, Opt("Raw files: files, folders or globs, local or URLs.")],
    /,
    *,
    options: LookOptions,
) -> Look:
    """Tell what raw files hold, and the command that converts them.

    Example: dolma-dask look raw

    A few records of a few files of each kind are read: it takes seconds, whatever the size of the folder.

    Returns
    -------
    Look
    """
    given = [inputs] if isinstance(inputs, str) else list(inputs)
    base, found = naming.list_raw(given)
    listing = naming.sorted_out(found, ())
    if not listing.known:
        what = naming.unread(listing.odd) if listing.odd else "markers alone"
        raise UsageError(f"{base} holds no file with documents: {what}.")
    seen = list(look_at(base, listing.known))
    if is_dataset := _is_dataset(seen):
        own = [info for info in listing.known if info.path.startswith(f"{layout.DOCUMENTS}/")]
        listing, seen = naming.Listing(own, [], []), list(look_at(base, own))
    answer = _answer(given, base, listing, seen, is_dataset)
    return answer if options.to is None else answer.written(options.to)


def _answer(
    inputs: Sequence[str], base: str, listing: naming.Listing, seen: Sequence[Seen], is_dataset: bool
) -> Look:
    groups = grouped(base, listing.known, seen)
    known = [text for group in groups for text in group.texts]
    junk = [(what, sum(map(bool, map(is_junk, known)))) for what, is_junk in _JUNK.items()]
    kinds = dict.fromkeys(group.kind for group in groups)
    tables = (
        Table("files", _FILES, [_file_row(kind, listing, groups) for kind in kinds]),
        Table("fields", _FIELDS, [row for group in groups for row in group.rows], max_rows=30),
        Table("junk", [Column("what", "words"), Column("documents")], [row for row in junk if row[1]]),
    )
    why = [one.why for group in groups for one in group.seen if one.why]
    notes = [naming.unread(listing.odd)] if listing.odd else []
    notes += [f"{counted(len(why), 'file')} with what cannot be read, the first: {why[0]}"] if why else []
    notes += [complaint for group in groups if (complaint := group.complaint())]
    each = [] if is_dataset else proposals(inputs, base, listing, groups)
    notes += [_DATASET.format(base, shlex.quote(base))] if is_dataset else warnings(listing, each)
    commands = tuple(one.line(f"corpus/{name_of(base)}") for one in each)
    return Look(base, _facts(known, groups), tables, tuple(notes), commands)


_DATASET = "{0} is a dataset already, there is nothing to convert; its fields: dolma-dask schema {1}, what is done: dolma-dask status {1}"


def _is_dataset(seen: Sequence[Seen]) -> bool:
    """Return whether a folder is a dataset: all records below its ``documents`` are documents."""
    below = [one for one in seen if one.path.startswith(f"{layout.DOCUMENTS}/")]
    records = [record for one in below for record in one.records]
    return bool(records) and all(
        isinstance(record.get(name), str) for record in records for name in ("id", "text", "source")
    )


def _facts(texts: Sequence[str], groups: Sequence[Group]) -> dict[str, str]:
    having = [group for group in groups if group.rows and group.kind not in OF_KNOWN_FIELDS]
    fields = sorted({f"{group.choice.text} ({group.label})" for group in having})
    names = {group.choice.id or "id" for group in groups if group.rows}
    found = [str(row[name]) for group in groups for row in group.records for name in names if name in row]
    ids = f"{', '.join(sorted(names))}: {len(set(found)):,} different ones in {counted(len(found), 'record')}"
    lists = {language: frozenset(words) for language, words in read_stop_words().items()}
    spoken = Counter(_language(text[:5000], lists) for text in texts)
    different = {" ".join(re.findall(r"\w+", text.lower())) for text in texts}
    return {
        "looked at": counted(len(texts), "document"),
        "text": f"{', '.join(fields) or 'that of the files'}; {sum(map(len, texts)) // max(len(texts), 1):,} characters on average",
        "ids": ids if found else "none: they are made of the file and the row",
        "languages": ", ".join(f"{name} {percent(n, len(texts))}" for name, n in spoken.most_common(6)),
        "copies": f"{len(texts) - len(different):,} have the words of an earlier one",
    }


def _file_row(kind: str, listing: naming.Listing, groups: Sequence[Group]) -> tuple[Any, ...]:
    own = [info.bytes for info in listing.known if split_suffix(info.path).kind == kind]
    opened = [one for group in groups if group.kind == kind for one in group.seen]
    counts = Counter(one.encoding for one in opened).most_common()
    encodings = ", ".join(f"{name} {n:,}" if len(counts) > 1 else name for name, n in counts)
    return kind, len(own), sum(own), len(opened), encodings, sum(one.bad for one in opened)


def _language(text: str, lists: Mapping[str, frozenset[str]]) -> str:
    """Return the language of a text by its commonest words, where the lists of RedPajama-V2 have them, else its script."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    shares = {sum(word in own for word in words) / max(len(words), 1): name for name, own in lists.items()}
    if max(shares) > 0.2:
        return shares[max(shares)]
    scripts = Counter(unicodedata.name(word[0], "?").split()[0].capitalize() for word in words)
    return f"other ({scripts.most_common(1)[0][0]})" if scripts else "no words"
