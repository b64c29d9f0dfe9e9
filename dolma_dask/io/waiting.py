"""Files of a task that wait for the disk while the next task works.

A file is published in two acts: it is written, which takes the processor, and it appears, which waits for the disk or a store. Within a task of the engine
the second act of files that are published with ``publish_later`` comes after the task, in a thread (`dolma_dask.engine.batches`), in the order in which they
were written; its record is believed only when all of them are there. Whoever publishes at once, moves or removes a file in the same task lets those that wait
appear first, so that the order of what is done to a folder is that of the calls.
"""

from collections.abc import Iterator, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Protocol, Self


class WrittenFile(Protocol):
    """A file that is written and has not appeared."""

    @property
    def url(self) -> str: ...
    @property
    def bytes(self) -> int: ...

    def sync(self) -> None:
        """Wait until the bytes are safe."""
        ...

    def appear(self) -> None:
        """Let the file appear under its name, which is safe after `sync_name`."""
        ...

    @property
    def folder(self) -> str: ...  # whose names are synced together

    def sync_name(self) -> None:
        """Wait until the names in its folder are safe."""
        ...

    def discard(self) -> None:
        """Leave nothing of it."""
        ...


_waiting: ContextVar["Waiting | None"] = ContextVar("waiting", default=None)


class Waiting:
    """The files of one task, or of several, that have not appeared; takes those that are written within its block, and discards them if it raises."""

    def __init__(self) -> None:
        self._tasks: list[list[WrittenFile]] = [[]]  # in the order of each
        self._token: Token[Waiting | None] | None = None

    def __enter__(self) -> Self:
        self._token = _waiting.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        _waiting.reset(self._token)
        if kind is not None:
            self.discard()

    @property
    def _files(self) -> Iterator[WrittenFile]:
        return (file for files in self._tasks for file in files)

    def __len__(self) -> int:
        return sum(map(len, self._tasks))

    @property
    def urls(self) -> Sequence[str]:
        """URLs of the files, in the order in which they appear."""
        return [file.url for file in self._files]

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self._files)

    def add(self, file: WrittenFile) -> None:
        """Let a file wait."""
        self._tasks[-1].append(file)

    def begin_task(self) -> None:
        """Take files from now on for those of another task, which need not wait for those before."""
        self._tasks.append([])

    def appear(self) -> None:
        """Let all files appear, those of a task in their order, when the bytes of all are safe; those that have not appeared when one fails never do."""
        try:
            for file in self._files:
                file.sync()
            while firsts := [files for files in self._tasks if files]:
                _appear(firsts)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Leave nothing of files that have not appeared."""
        for files in reversed(self._tasks):
            while files:
                files.pop().discard()


def _appear(tasks: Sequence[list[WrittenFile]]) -> None:
    """Let the first file of each task appear, and wait once for the names in each folder."""
    appeared: dict[str, WrittenFile] = {}
    for files in tasks:
        files[0].appear()
        file = files.pop(0)
        appeared[file.folder] = file
    for file in appeared.values():
        file.sync_name()


def waiting_here() -> Waiting | None:
    """Return where files of the task that this thread works on wait; None outside of tasks."""
    return _waiting.get()


def waits(url: str) -> bool:
    """Tell whether a file of this task waits to appear at `url`."""
    waiting = _waiting.get()
    return waiting is not None and url in waiting.urls


def let_appear() -> None:
    """Let files that wait in this task appear now."""
    if waiting := _waiting.get():
        waiting.appear()


def begin_task() -> None:
    """Tell that files from now on are those of another task, of several that are done as one; see `Waiting.begin_task`."""
    if waiting := _waiting.get():
        waiting.begin_task()
