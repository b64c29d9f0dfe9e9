"""Files of the user's that taggers compare documents with: lists of words and domains, in one folder.

The call reads them once, for their checksums, which are part of the key of what is made with them. Each process loads them when a shard first needs them, and keeps what
the tagger made of them.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from threading import Lock

from msgspec import Struct

from dolma_dask.errors import SourceChangedError, UsageError
from dolma_dask.io import files
from dolma_dask.io.files import join
from dolma_dask.taggers.base import Tagger, ViewTagger

_loaded: dict[tuple[str, ...], ViewTagger] = {}
_loading = Lock()


class Artifacts(Struct, frozen=True):
    """Files that taggers use."""

    folder: str = ""
    checksums: tuple[tuple[str, str], ...] = ()  # name below the folder, and xxh3-128 of the stored bytes

    @classmethod
    def of(cls, folder: str, taggers: Sequence[Tagger]) -> "Artifacts":
        """Find the files in a folder that one of the taggers uses.

        Raises `UsageError`: there are none, or no tagger uses any.
        """
        root = files.normalize(folder)
        patterns = sorted({pattern for tagger in taggers for pattern in files_of(tagger)})
        if not patterns:
            names = ", ".join(tagger.name for tagger in taggers)
            why = (
                f"none of the taggers {names} uses files" if names else "there are no taggers that use files"
            )
            raise UsageError(f"artifacts={folder!r}, but {why}. Leave artifacts out.")
        found = [info.path for info in files.list_files(root) if _matches(info.path, patterns)]
        if not found:
            wanted = {tagger.name: " or ".join(files_of(tagger)) for tagger in taggers if files_of(tagger)}
            raise UsageError(
                f"{root} has no file that the taggers use; expected {', '.join(f'{names} for {name}' for name, names in wanted.items())}. "
                "Put them there under these names; dolma-dask list NAME says where to get them."
            )
        return cls(root, tuple((name, files.checksum(join(root, name))) for name in found))

    def used_by(self, tagger: Tagger) -> tuple[tuple[str, str], ...]:
        """Return the files that a tagger uses, with their checksums."""
        patterns = files_of(tagger)
        return tuple(item for item in self.checksums if _matches(item[0], patterns))

    def all_loaded(self, taggers: Sequence[Tagger]) -> list[Tagger]:
        """Return the taggers, those that use files with them; see `loaded`."""
        return [self.loaded(tagger) if isinstance(tagger, ViewTagger) else tagger for tagger in taggers]

    def loaded(self, tagger: ViewTagger) -> ViewTagger:
        """Return the tagger with its files, once for each process.

        Raises `SourceChangedError`: a file is not as it was when the call began.
        """
        used = self.used_by(tagger)
        if not used:
            return tagger
        key = (
            tagger.name,
            str(tagger.version),
            tagger.params,
            self.folder,
            *(part for item in used for part in item),
        )
        with _loading:
            if key not in _loaded:
                self._check(used)
                urls = {name: join(self.folder, name) for name, _ in used}
                _loaded[key] = tagger.with_files(
                    {name: partial(files.open_read, url) for name, url in urls.items()}
                )
            return _loaded[key]

    def check_needs(self, taggers: Sequence[Tagger]) -> None:
        """Refuse taggers whose package or files are not there, or whose files are of no use."""
        for tagger in taggers:
            if isinstance(tagger, ViewTagger):
                message = tagger.lacks(has_files=bool(self.used_by(tagger)))
                if message is not None:
                    raise UsageError(message)
                if tagger.loads_first:
                    self.loaded(tagger)

    def notes(self, taggers: Sequence[Tagger]) -> Iterator[str]:
        """Yield what people should know of files that taggers use."""
        for tagger in taggers:
            if isinstance(tagger, ViewTagger) and tagger.note is not None:
                note = tagger.note(self.loaded(tagger).function)
                if note:
                    yield f"{tagger.name}: {note}"

    def _check(self, used: tuple[tuple[str, str], ...]) -> None:
        for name, checksum in used:
            url = join(self.folder, name)
            if files.checksum(url) != checksum:
                raise SourceChangedError(
                    f"{url} is not the file that was there when the command began. Run it again.", url=url
                )


def files_of(tagger: Tagger) -> tuple[str, ...]:
    """Return the patterns of the files that a tagger uses."""
    return tagger.files if isinstance(tagger, ViewTagger) else ()


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
