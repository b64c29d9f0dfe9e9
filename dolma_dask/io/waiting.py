"""Files of a task that wait for the disk while the next task works.

A file is published in two acts: it is written, which takes the processor, and it appears, which waits for the disk or a store. Within a task of the engine
the second act of files that are published with ``publish_later`` comes after the task, in a thread (`dolma_dask.engine.batches`), in the order in which they
were written; its record is believed only when all of them are there. Whoever publishes at once, moves or removes a file in the same task lets those that wait
appear first, so that the order of what is done to a folder is that of the calls.
"""

from collections.abc import Sequence
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
        """Let the file appear, and wait until its name is safe."""
        ...

    def discard(self) -> None:
        """Leave nothing of it."""
        ...


_waiting: ContextVar["Waiting | None"] = ContextVar("waiting", default=None)


class Waiting:
    """The files of one task that have not appeared; takes those that are written within its block, and discards them if it raises."""

    def __init__(self) -> None:
        self._files: list[WrittenFile] = []
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

    def __len__(self) -> int:
        return len(self._files)

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
        self._files.append(file)

    def appear(self) -> None:
        """Let all files appear in their order, when the bytes of all are safe; those that have not appeared when one fails never do."""
        try:
            for file in self._files:
                file.sync()
            while self._files:
                self._files[0].appear()
                del self._files[0]
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Leave nothing of files that have not appeared."""
        while self._files:
            self._files.pop().discard()


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
