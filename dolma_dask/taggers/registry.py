"""Finding taggers by name: those shipped, those defined in this session, and those of installed plug-ins.

A plug-in is any installed package with entry points in the group ``dolma_dask.taggers``, each naming a tagger object::

    [project.entry-points."dolma_dask.taggers"]
    my_signal_v1 = "my_package.signals:my_signal_v1"

Nothing is imported before it is needed, and a plug-in that cannot be loaded is reported by name and hides no other.
In a notebook or a module the `tagger` decorator makes a tagger of a function. Taggers travel to workers as objects
(by cloudpickle), so a worker need not know their names.
"""

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.errors import UsageError
from dolma_dask.functions.digest import source_of
from dolma_dask.functions.places import find_object, is_place
from dolma_dask.taggers.base import Kind, Tagger, ViewTagger
from dolma_dask.taggers.functions import SCALARS, FunctionTagger

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "dolma_dask.taggers"
"""Entry point group of plug-ins."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REGISTERED: dict[str, Tagger] = {}
_FOLDER = Path(__file__).parent


class TaggerInfo(Struct, frozen=True):
    """One line of `list_taggers`; `error` says why a plug-in cannot be used, and the rest is then empty.

    `origin` is the distribution that brings the tagger, or the module of a tagger defined in this session. `meanings` has a line for
    each type where the tagger says what it is.
    """

    name: str
    version: int | str
    types: Mapping[str, Kind]
    reads: tuple[str, ...]
    description: str
    origin: str
    error: str | None = None
    meanings: Mapping[str, str] = {}
    family: str = ""  # of those shipped: the module
    units: tuple[str, ...] = ("document",)
    differs: str = ""  # from the published tagger of its name
    extra: str = ""  # package that it needs
    files: tuple[str, ...] = ()  # that it uses, of the user's
    option: str = ""  # of `tag`, that it does nothing without
    source: str = ""  # where to get these, if it does nothing without


def tagger(
    *,
    name: str | None = None,
    types: str | Iterable[str] | Mapping[str, Kind | type],
    reads: Iterable[str] = ("text",),
    version: int | str | None = None,
    batch: bool | None = None,
) -> Callable[[Callable[..., Any]], FunctionTagger]:
    """Make a tagger of a function, and register it under its name for this session.

    Parameters
    ----------
    name : str, optional
        Letters, digits and underscores; by default the function's own name. End it with a version, as ``_v1``.
    types : str, iterable of str or mapping
        The attributes it makes. Names alone are numbers about the document (kind ``document``). A mapping gives each
        name a kind, ``document``, ``spans``, ``scalar`` or ``dict``, or one of bool, int, float and str for
        a bare value of this type.
    reads : iterable of str
        Columns it looks at; the function gets one str for each, in this order.
    version : int or str, optional
        By default a digest of the function's source and of what it names in its module; see
        `dolma_dask.functions.digest` for what that does not cover.
    batch : bool, optional
        Whether the function takes and returns a whole `pyarrow.RecordBatch`; by default seen from the annotation
        of its first parameter.

    Returns
    -------
    callable
        A decorator that returns a `FunctionTagger`. A function of one text returns the value of its only type (a
        number, bool or str, a dict of numbers, a list of (start, end, score) in characters), or, with several types, a
        dict of such values by type. None, or a type left out, means that a document does not have this attribute.

    Raises
    ------
    UsageError
        If a name, kind or signature cannot work, or the name belongs to a tagger shipped with dolma_dask.

    Examples
    --------
    >>> @tagger(name="question_marks_v1", types="count")
    ... def question_marks(text: str) -> float:
    ...     "Number of question marks."
    ...     return text.count("?")
    """

    def lift(function: Callable[..., Any]) -> FunctionTagger:
        given = name or str(getattr(function, "__name__", type(function).__name__))
        columns = tuple([reads] if isinstance(reads, str) else reads)
        whole = _takes_batch(function) if batch is None else batch
        kinds, scalars = _kinds(given, types, None if whole else function)
        _check_signature(given, function, ("batch",) if whole else columns)
        lifted = FunctionTagger(given, kinds, columns, function, whole, scalars, source_of(function), version)
        register_tagger(lifted)
        return lifted

    return lift


def register_tagger(new: Tagger) -> Tagger:
    """Make a tagger object known by its name in this session; one registered before under that name is replaced."""
    check_tagger(new)
    if find_built_in(new.name) is not None:
        raise UsageError(f"{new.name!r} is a tagger shipped with dolma_dask; give yours another name")
    _REGISTERED[new.name] = new
    return new


def register_toolkit(modules: Sequence[str] | str | None) -> None:
    """Make the taggers of files of the Dolma toolkit known by their names in this session; see `dolma_dask.taggers.toolkit`."""
    by_name: dict[str, str] = {}
    for module in [modules] if isinstance(modules, str) else modules or ():
        from dolma_dask.taggers.toolkit import load_taggers

        for found in load_taggers(module):
            if found.name in by_name:
                raise UsageError(
                    f"{by_name[found.name]} and {module} both make a tagger {found.name!r}; give one another name."
                )
            by_name[found.name] = module
            register_tagger(found)


def get_tagger(name: str) -> Tagger:
    """Find a tagger by name, or a tagger or function of yours by ``file.py:name`` or ``module:name``.

    Raises
    ------
    UsageError
        If no tagger has this name (near names are listed), or its plug-in cannot be loaded.
    """
    if is_place(name):
        from dolma_dask.taggers.lifting import as_tagger  # which makes taggers with this module

        return as_tagger(find_object(name), name)
    if (built_in := find_built_in(name)) is not None:
        return built_in
    if name in _REGISTERED:
        return _REGISTERED[name]
    points = [point for point in _entry_points() if point.name == name]
    if len(points) > 1:
        origins = ", ".join(sorted(_origin(point) for point in points))
        raise UsageError(
            f"several plug-ins bring a tagger {name!r}: {origins}. Uninstall all but one of them."
        )
    if points:
        return _load(points[0])
    raise _unknown(name)


def list_taggers() -> list[TaggerInfo]:
    """Describe every tagger there is, sorted by name; plug-ins that cannot be used have their `error` set."""
    infos = [describe(known, "dolma-dask", family) for family, known in _built_in_by_family()]
    points = _entry_points()
    for point in points:
        infos.append(_describe_plug_in(point, clash=sum(other.name == point.name for other in points) > 1))
    installed = {(point.name, point.module) for point in points}
    for name, known in _REGISTERED.items():
        if (name, _module(known)) not in installed:
            infos.append(describe(known, _module(known)))
    return sorted(infos, key=lambda info: (info.name, info.origin))


def check_tagger(candidate: object) -> None:
    """Refuse (`UsageError`) an object that is no tagger, or whose attributes are not well formed; the message says what is missing or wrong."""
    if isinstance(candidate, type) or not isinstance(candidate, Tagger):
        raise UsageError(
            f"{candidate!r:.100} is not a tagger; expected an object (not a class) with name, version, params, types and "
            "reads that can be called with a RecordBatch. The decorator `tagger` makes one from a function."
        )
    for kind_of_name, names in (
        ("name", [candidate.name]),
        ("type", candidate.types),
        ("column", candidate.reads),
    ):
        for value in names:
            spelled = value.replace("-", "_") if kind_of_name == "name" else value
            if kind_of_name != "column" and not _NAME.fullmatch(spelled):
                raise UsageError(
                    f"tagger {candidate.name!r} has the {kind_of_name} {value!r}; expected letters, digits and "
                    "underscores, not beginning with a digit"
                )
    if not candidate.types or not candidate.reads:
        raise UsageError(f"tagger {candidate.name!r} needs at least one type and one column to read")
    for name, kind in candidate.types.items():
        if kind not in get_args(Kind):
            raise UsageError(
                f"tagger {candidate.name!r} has type {name!r} of kind {kind!r}; expected one of {get_args(Kind)}"
            )


def _kinds(
    name: str, types: str | Iterable[str] | Mapping[str, Kind | type], function: Callable[..., Any] | None
) -> tuple[dict[str, Kind], dict[str, type]]:
    """Kind of each type, and Python type of each scalar, which for a `function` of one text must be known."""
    if isinstance(types, str):
        types = [types]
    given: dict[str, Any] = dict(types) if isinstance(types, Mapping) else dict.fromkeys(types, "document")
    kinds: dict[str, Kind] = {}
    scalars: dict[str, type] = {}
    for key, kind in given.items():
        if kind == "scalar" and function is not None:
            kind = _returned_type(function) if len(given) == 1 else None
            if kind not in SCALARS:
                raise UsageError(
                    f"tagger {name!r} does not say what type {key!r} holds: write bool, int, float or str in place of "
                    f"'scalar', as types={{{key!r}: bool}}"
                )
        if isinstance(kind, type) and kind in SCALARS:
            scalars[key] = kind
        kinds[key] = "scalar" if key in scalars else kind
    return kinds, scalars


def _returned_type(function: Callable[..., Any]) -> Any:
    annotation = getattr(function, "__annotations__", {}).get("return")
    by_name = {kind.__name__: kind for kind in SCALARS}
    return by_name.get(annotation, annotation) if isinstance(annotation, str) else annotation


def _takes_batch(function: Callable[..., Any]) -> bool:
    annotations = dict(getattr(function, "__annotations__", {}))
    annotations.pop("return", None)
    first = next(iter(annotations.values()), None)
    return first is pa.RecordBatch or (isinstance(first, str) and first.rpartition(".")[2] == "RecordBatch")


def _check_signature(name: str, function: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise UsageError(
            f"the function of tagger {name!r} takes {signature}, but is called with {len(arguments)} "
            f"value(s): {', '.join(arguments)}. Change its parameters, or `reads`."
        ) from None


@cache
def speeds() -> Mapping[str, float]:
    """Return MB of text per CPU-second of each tagger alone, as ``benchmarks/bench_taggers.py --write`` measured them; empty if it never did."""
    measured = _FOLDER / "speeds.json"
    return msgspec.json.decode(measured.read_bytes(), type=dict[str, float]) if measured.exists() else {}


def built_in() -> dict[str, Tagger]:
    """Return all taggers shipped: those in the table ``TAGGERS`` of each module of `dolma_dask.taggers`."""
    return {known.name: known for _, known in _built_in_by_family()}


def find_built_in(name: str) -> Tagger | None:
    """Return a tagger shipped, None if there is none of this name; imports only modules that spell the name."""
    for path in sorted(_FOLDER.glob("*.py")):
        if f'"{name}"' in path.read_text("utf-8"):
            for known in _table_of(path.stem):
                if known.name == name:
                    return known
    return None


def known_labels(name: str, wanted: str) -> Iterator[tuple[str, Literal["document", "spans"]]]:
    """Yield the labels that a tagger shipped may write, with the kind of their values; if nobody knows them before, the one of a key such as NAME__LABEL."""
    known = find_built_in(name)
    if not isinstance(known, ViewTagger):
        return
    tagger, mark, label = wanted.rpartition("__")
    asked = [label] if mark and f"__{tagger}".endswith(f"__{name.replace('-', '_')}") else []
    for part in known.parts:
        for type, kind in part.written.items():
            labels = asked if known.labels is None else known.labels(type)
            for one in labels if kind == "labels" else ():
                yield one, "document" if part.unit == "document" else "spans"


def _built_in_by_family() -> Iterator[tuple[str, Tagger]]:
    for path in sorted(_FOLDER.glob("*.py")):
        for known in _table_of(path.stem):
            yield path.stem, known


def _table_of(module: str) -> tuple[Tagger, ...]:
    return getattr(importlib.import_module(f"dolma_dask.taggers.{module}"), "TAGGERS", ())


def _entry_points() -> "list[EntryPoint]":
    from importlib.metadata import entry_points

    return sorted(entry_points(group=GROUP), key=lambda point: (point.name, _origin(point)))


def _origin(point: "EntryPoint") -> str:
    return point.dist.name if point.dist is not None else "an unnamed distribution"


def _load(point: "EntryPoint") -> Tagger:
    """Import the object of an entry point and check it."""
    try:
        loaded = point.load()
        check_tagger(loaded)
    except Exception as error:
        raise UsageError(
            f"the plug-in tagger {point.name!r} of {_origin(point)} ({point.value}) cannot be used: "
            f"{type(error).__name__}: {error}. Repair or uninstall {_origin(point)}; other taggers are not affected.",
            tagger=point.name,
            origin=_origin(point),
        ) from error
    if loaded.name != point.name:
        raise UsageError(
            f"the plug-in tagger {point.name!r} of {_origin(point)} calls itself {loaded.name!r}; "
            "the entry point and the tagger must have the same name",
            tagger=point.name,
            origin=_origin(point),
        )
    return loaded  # type: ignore[no-any-return]


def describe(known: Tagger, origin: str, family: str = "") -> TaggerInfo:
    """Describe a tagger by its attribute ``description``, or the first line of the docstring of its function, or of its class."""
    source = known.function if isinstance(known, (FunctionTagger, ViewTagger)) else type(known)
    text = getattr(known, "description", None) or (inspect.getdoc(source) or "").partition("\n")[0]
    meanings = getattr(known, "meanings", {}) or (
        dict.fromkeys(known.types, text) if len(known.types) == 1 else {}
    )
    info = TaggerInfo(known.name, known.version, known.types, known.reads, text, origin, meanings=meanings)
    if not isinstance(known, ViewTagger):
        return info
    return replace(
        info,
        family=family,
        units=known.units,
        differs=known.differs,
        extra=known.extra,
        files=known.files,
        option=known.option,
        source=known.source,
    )


def _describe_plug_in(point: "EntryPoint", clash: bool) -> TaggerInfo:
    def unusable(error: str) -> TaggerInfo:
        return TaggerInfo(point.name, "", {}, (), "", _origin(point), error)

    if find_built_in(point.name) is not None:
        return unusable(f"{point.name!r} is a tagger shipped with dolma_dask, which is used instead")
    if clash:
        return unusable(f"several plug-ins bring a tagger {point.name!r}")
    try:
        return describe(_load(point), _origin(point))
    except UsageError as error:
        return unusable(str(error))


def _module(known: Tagger) -> str:
    function = getattr(known, "function", known)
    return str(getattr(function, "__module__", type(known).__module__))


def _unknown(name: str) -> UsageError:
    names = sorted({*built_in(), *_REGISTERED, *(point.name for point in _entry_points())})
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "see them all: dolma-dask list."
    hint = f"names are separated by spaces: {name.replace(',', ' ')}." if "," in name else hint
    return UsageError(
        f"there is no tagger {name!r}; {hint} A plug-in must be installed in this environment; one of your own "
        "is named by its place, file.py:name, or passed as an object.",
        near=near,
    )
