"""Commands of `convert` for groups of raw files, each with a folder and a source of its own, and what to know before they are run."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import NamedTuple

from dolma_dask.display import counted
from dolma_dask.io import files
from dolma_dask.questions.look.groups import Group
from dolma_dask.sources import naming
from dolma_dask.sources.naming import OF_KNOWN_FIELDS, SINGLE, split_suffix

_ABOUT = re.compile(
    r"(?:README|LICEN[CS]E|COPYING|NOTICE|CHANGELOG|CHANGES|CITATION|AUTHORS|CONTRIBUTORS)(?:[._-].*)?", re.I
)
"""Names of text files that tell of the data beside them, as a rule."""

_SHOWN = 8
"""Files that are named one by one, at most."""

_LEAST, _MOST = 0.01, 0.05
"""The share of bad records that a command allows: twice that of the sample, within these."""


class Proposal(NamedTuple):
    """A command: the groups that it converts, the words that name their files, and the folder and source of their documents."""

    groups: Sequence[Group]
    words: Sequence[str]
    under: str
    source: str

    def line(self, to: str) -> str:
        """Return it as it is typed."""
        under = ["--under", self.under] if self.under else []
        choice = next((group.choice for group in self.groups if group.rows), self.groups[0].choice)
        words = [*self.words, *under, "--to", to, *choice.words(), *self._sources(), *self._more()]
        return f"dolma-dask convert {shlex.join(words)}"

    def _sources(self) -> Iterator[str]:
        records = [record for group in self.groups for record in group.records]
        having = sum(isinstance(record.get("source"), str) for record in records)
        if having < len(records) or not records:
            yield from ("--source", self.source)
            yield from ("--source-field", "source") if having else ()

    def _more(self) -> Iterator[str]:
        if any(one.encoding != "UTF-8" for group in self.groups for one in group.seen):
            yield from ("--encoding", "auto")
        bad = max(group.bad for group in self.groups)
        if bad and not any(group.complaint() for group in self.groups):
            allowed = min(max(2 * bad, _LEAST), _MOST)
            yield from ("--on-bad-record", "quarantine", "--max-bad-fraction", f"{allowed:.2g}")


def proposals(
    inputs: Sequence[str], base: str, listing: naming.Listing, groups: Sequence[Group]
) -> list[Proposal]:
    """Return one command for all groups where their fields are the same and no names or ids meet, else one for each; none for files without a good record."""
    name = name_of(base)
    if all(group.bad < 1 for group in groups) and _go_together(groups):
        skip = ["--skip", *naming.patterns_of(listing.odd)] if listing.odd else []
        return [Proposal(groups, [*inputs, *skip], "", name)]
    names = _names(groups)
    sources = [own if group.folder else f"{name}-{own}" for group, own in zip(groups, names, strict=True)]
    return [
        Proposal([group], _files(inputs, base, listing, group), under, source)
        for group, under, source in zip(groups, names, sources, strict=True)
        if group.bad < 1
    ]


def _names(groups: Sequence[Group]) -> list[str]:
    """Return a name for each group: its folder, with its kind where several have that, and a number where that is not enough."""
    folders = [_plain(group.folder) for group in groups]
    found: list[str] = []
    for group, own in zip(groups, folders, strict=True):
        is_own = own and folders.count(own) == 1
        name = own if is_own else "-".join(filter(None, (own, group.kind)))
        numbered = (f"{name}-{number}" for number in count(2))
        found.append(next(one for one in chain([name], numbered) if one not in found))
    return found


def name_of(base: str) -> str:
    """Return what documents of a raw folder are called, in paths and as a source."""
    return _plain(posixpath.basename(base.rstrip("/"))) or "raw"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")


def _go_together(groups: Sequence[Group]) -> bool:
    choices = {group.choice for group in groups if group.kind not in OF_KNOWN_FIELDS}
    shards = [
        naming.document_path(path) for group in groups if group.kind not in SINGLE for path in group.paths
    ]
    ids = [
        {str(row[name]) for row in group.records if (name := group.choice.id or "id") in row}
        for group in groups
    ]
    is_one = len(set().union(*ids)) == sum(map(len, ids)) and len(set(shards)) == len(shards)
    return len(groups) == 1 or (len(choices) <= 1 and is_one)


def _files(inputs: Sequence[str], base: str, listing: naming.Listing, group: Group) -> list[str]:
    """Return what names the files of a group: their folder if it holds no others, else patterns; a few that were given without their folder by themselves."""
    start = f"{group.folder}/" if group.folder else ""
    beside = [info.path for info in listing.known if info.path.startswith(start)]
    where = posixpath.join(base, group.folder).rstrip("/")
    given = [files.normalize(item).rstrip("/") for item in inputs]
    if len(group.paths) <= _SHOWN and not any(f"{where}/".startswith(f"{one}/") for one in given):
        return [posixpath.join(base, path) for path in group.paths]
    if group.folder and not group.is_flat and len(beside) == len(group.paths):
        odd = [info for info in listing.odd if info.path.startswith(start)]
        return [where, *(["--skip", *naming.patterns_of(odd)] if odd else [])]
    return _patterns(where if group.is_flat else f"{where}/**", group.paths)


def _patterns(where: str, paths: Sequence[str]) -> list[str]:
    """Return patterns of the files of a kind; messages of a maildir have no suffix, but a folder."""
    found = set()
    for path in paths:
        end = ".tar" if path.endswith(".tar") else path[len(split_suffix(path).stem) :]
        folder = posixpath.basename(posixpath.dirname(path))
        found.add(f"{where}/*{end}" if end or not folder else f"{where}/{folder}/*")
    return sorted(found)


def warnings(listing: naming.Listing, each: Sequence[Proposal]) -> Iterator[str]:
    """Yield what to know before the commands are run: files that tell of the data, and files that would become one."""
    about = [info.path for info in listing.known if _is_about(info.path)]
    if about and len(about) < len(listing.known):
        names = dict.fromkeys(posixpath.basename(path) for path in about)
        yield (
            f"{counted(len(about), 'file')} that by the name {'tells' if len(about) == 1 else 'tell'} of the data, and would become documents: "
            f"{shlex.join(about[:_SHOWN])}. To leave them out: --skip {shlex.join(names)}"
        )
    for one in each:
        shards: dict[str, str] = {}
        for path in (path for group in one.groups if group.kind not in SINGLE for path in group.paths):
            if (first := shards.setdefault(naming.document_path(path), path)) != path:
                yield (
                    f"{first} and {path} would become one file of documents, which convert refuses: rename one of them, or, if it is a copy, "
                    f"leave it out: --skip {shlex.quote(path)}"
                )


def _is_about(path: str) -> bool:
    return split_suffix(path).kind in SINGLE and bool(_ABOUT.fullmatch(posixpath.basename(path)))
