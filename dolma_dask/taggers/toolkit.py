"""Taggers written for the Dolma toolkit, unchanged: files with ``@add_tagger`` classes, whose ``predict`` takes a document and returns spans.

While such a file is executed, the modules of the toolkit that it may import are stood in for by what is here; the toolkit itself is not needed. A key is made for each type of
its spans, as there; ``defaults`` without a span write nothing. Each document costs Python objects, as in the toolkit.
"""

import inspect
import json
import operator
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from dolma_dask.errors import DataError, UsageError
from dolma_dask.functions.digest import digest
from dolma_dask.functions.places import execute_file, what_failed
from dolma_dask.taggers.base import Kind, Tagger
from dolma_dask.taggers.functions import FunctionTagger
from dolma_dask.text.columns import string_parts
from dolma_dask.text.units import cut
from dolma_dask.text.view import TextView
from dolma_dask.text.word_breaks import load_word_breaks, word_stop

T = TypeVar("T", bound=type)


@dataclass(eq=True)
class Span:
    """What a tagger found from `start` to `end`, in code points."""

    start: int
    end: int
    type: str
    score: float = 1.0
    experiment: str | None = None
    tagger: str | None = None

    def __len__(self) -> int:
        return self.end - self.start

    def mention(self, text: str, window: int = 0) -> str:
        """Return the text of the span and of a window around it."""
        return text[max(0, self.start - window) : self.end + window]

    def select(self, doc: "Document") -> str:
        """Return the text of the span."""
        return doc.text[self.start : self.end]


@dataclass
class TextSlice:
    """A part of a text."""

    doc: str
    start: int
    end: int

    @property
    def text(self) -> str:
        """The text of the part."""
        return self.doc[self.start : self.end]


@dataclass
class Document:
    """A document as taggers see it."""

    source: str
    id: str
    text: str
    version: str | None = None


@dataclass
class DocumentWithMetadata(Document):
    """The same with its metadata."""

    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class DocResult:
    """What a tagger found in a document."""

    doc: Document
    spans: list[Span]


class BaseTagger:
    """Base of taggers of the toolkit."""

    def predict(self, doc: Document) -> DocResult:
        """Return what is found in a document."""
        raise NotImplementedError(f"{type(self).__name__}.predict")


class BaseTaggerWithMetadata(BaseTagger):
    """Base of those that read metadata."""


class Registry:
    """Takes the classes of the file that is executed."""

    found: dict[str, type] = {}  # noqa: RUF012  one for all: files are executed one at a time

    @classmethod
    def add(cls, name: str) -> Callable[[T], T]:
        """Make a class a tagger of this name."""

        def added(tagger: T) -> T:
            cls.found[name] = tagger
            return tagger

        return added


def split_paragraphs(text: str, remove_empty: bool = True) -> list[TextSlice]:
    """Return the lines of a text with their newlines, but for blank ones."""
    found = [TextSlice(text, *match.span()) for match in re.finditer(r"[^\n]*\n|[^\n]+$", text)]
    return [piece for piece in found if piece.text.strip() or not remove_empty]


def split_words(text: str, remove_empty: bool = True) -> list[TextSlice]:
    """Return the words of a text by the rules of Unicode, signs among them; those of white space only if asked for."""
    (offsets, data), at, place, found = string_parts(pa.array([text], pa.large_string())), 0, 0, []
    while at < offsets[1]:
        stop = int(word_stop(data, at, int(offsets[1]), *load_word_breaks()))
        end = place + len(bytes(data[at:stop]).decode())
        found.append(TextSlice(text, place, end))
        at, place = stop, end
    return [piece for piece in found if piece.text.strip() or not remove_empty]


def split_sentences(text: str, remove_empty: bool = True) -> list[TextSlice]:
    """Return the sentences of a text, by the package sentencex, where the toolkit takes blingfire."""
    pieces = cut(TextView(pa.array([text], pa.large_string())), "sentence")
    found = [
        TextSlice(text, *place) for place in zip(pieces.starts.tolist(), pieces.ends.tolist(), strict=True)
    ]
    return [piece for piece in found if piece.text.strip() or not remove_empty]


_NAMES: Mapping[str, Mapping[str, Any]] = {
    "dolma": {"add_tagger": Registry.add, "BaseTagger": BaseTagger},
    "dolma.core": {"TaggerRegistry": Registry},
    "dolma.core.data_types": {
        kind.__name__: kind for kind in (Span, TextSlice, Document, DocumentWithMetadata, DocResult)
    },
    "dolma.core.registry": {"TaggerRegistry": Registry},
    "dolma.core.taggers": {"BaseTagger": BaseTagger, "BaseTaggerWithMetadata": BaseTaggerWithMetadata},
    "dolma.core.utils": {
        function.__name__: function for function in (split_paragraphs, split_sentences, split_words)
    },
}
"""Modules of the toolkit, and what stands in for their names."""

_STOOD_IN = f"of the toolkit these names can be imported, at the top of the file: {', '.join(sorted({name for names in _NAMES.values() for name in names}))}"

_lock = threading.Lock()


@contextmanager
def _stood_in() -> Iterator[None]:
    """Let the modules of the toolkit be found in this block."""
    before = {name: sys.modules.get(name) for name in _NAMES}
    for name, members in _NAMES.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(members, __path__=[])
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, sys.modules[name])
    try:
        yield
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module


def load_taggers(module: str) -> list[Tagger]:
    """Return the taggers of a file of the toolkit's, or of a module by its name.

    Raises `UsageError`: there is no such file, its code raises, or it has no tagger.
    """
    path = module if module.endswith(".py") or "/" in module else _file_of(module)
    with _lock, _stood_in():
        Registry.found = {}
        made = _executed(path)
        found = made.setdefault("_taggers_of_toolkit", Registry.found)
    if not found:
        raise UsageError(
            f"{module} makes no tagger; expected classes with @add_tagger(name), of package dolma."
        )
    version = digest(Path(path).read_bytes())
    return [_lifted(name, tagger, version) for name, tagger in found.items()]


def _executed(path: str) -> dict[str, Any]:
    """Return what the code of a file made, once for each content of it."""
    try:
        return vars(execute_file(path))
    except UsageError as error:
        lacks = error.__cause__
        if isinstance(lacks, ImportError) and (lacks.name or "").partition(".")[0] == "dolma":
            raise UsageError(f"{path}: {lacks}; {_STOOD_IN}.", path=path) from error
        raise


def _file_of(module: str) -> str:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise UsageError(
            f"there is no module {module!r}; expected a file such as taggers.py, or a module that can be imported."
        )
    return spec.origin


def _lifted(name: str, tagger: type[BaseTagger], version: str) -> Tagger:
    with_metadata = issubclass(tagger, BaseTaggerWithMetadata)
    reads = ("text", "id", "source", "metadata") if with_metadata else ("text", "id", "source")
    kinds: dict[str, Kind] = {"labels": "labels"}
    return FunctionTagger(name, kinds, reads, _Predict(tagger), False, {}, name, version)


class _Predict:
    """Calls a tagger of the toolkit, which each process makes once."""

    def __init__(self, tagger: type[BaseTagger]) -> None:
        self._class = tagger
        self._made: Any = None
        self._why: UsageError | None = None
        self.__doc__ = tagger.__doc__ or f"Tagger {tagger.__name__}, written for the Dolma toolkit."

    def __reduce__(self) -> Any:
        return type(self), (self._class,)

    @property
    def calls(self) -> tuple[Any, str]:
        """What is called of it, and what people should do where that fails."""
        predict = inspect.unwrap(self._class.predict)
        code = getattr(predict, "__code__", None)
        place = f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""
        return (
            predict,
            f"Call {self._class.__name__}().predict{place} on a Document with this text to see why; let it return a DocResult, without spans where there are none.",
        )

    def prepare(self) -> None:
        """Make the tagger; raise `UsageError` each time if that fails, since it is the fault of no document."""
        if self._why is not None:
            raise self._why
        if self._made is None:
            try:
                self._made = self._class()
            except Exception as error:
                code = getattr(getattr(self._class, "__init__", None), "__code__", None)
                what = what_failed(error, code.co_filename if code else "")
                advice = f"; {_STOOD_IN}." if isinstance(error, ImportError) else ". Correct it there."
                self._why = UsageError(f"the tagger {self._class.__name__} cannot be made: {what}{advice}")
                raise self._why from error

    def __call__(
        self, text: str, id: str, source: str, metadata: str | None = None
    ) -> list[tuple[str, int, int, float]]:
        if metadata is None:
            document = Document(source, id, text)
        else:
            document = DocumentWithMetadata(source, id, text, metadata=json.loads(metadata or "{}") or {})
        try:
            found = self._made.predict(document)
        except ImportError as error:
            raise ImportError(f"{error}; {_STOOD_IN}") from error
        if not hasattr(found, "spans"):
            raise DataError(f"predict returned {found!r:.80}; expected a DocResult")
        return sorted(map(_labelled, found.spans), key=lambda span: span[1:3])


def _labelled(span: Any) -> tuple[str, int, int, float]:
    try:
        return span.type, operator.index(span.start), operator.index(span.end), float(span.score)
    except (AttributeError, TypeError, ValueError):
        raise DataError(
            f"predict returned the span {span!r:.120}; expected a Span of whole numbers start and end, a type, and a number as score"
        ) from None
