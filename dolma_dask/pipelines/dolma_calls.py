"""Commands of the Dolma toolkit -> calls of the commands here: ``dolma tag -c FILE``, ``dolma dedupe --documents ...``.

A set of files is a dataset here, or several of them; what cannot be done is refused in words before anything runs.
"""

import re
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from glob import escape
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from dolma_dask.dataset import matches as is_chosen
from dolma_dask.display import listed
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.patterns import matches, split
from dolma_dask.pipelines.dolma_config import Given, read
from dolma_dask.pipelines.dolma_options import CONFIGS, Compression, Dedupe, Tag, format_of, leaves
from dolma_dask.pipelines.dolma_words import answer
from dolma_dask.pipelines.over_all import answers
from dolma_dask.pipelines.signatures import spellings
from dolma_dask.registry import COMMANDS, load
from dolma_dask.results.answer import Answer
from dolma_dask.results.summary import Summary
from dolma_dask.taggers.registry import get_tagger, register_toolkit


class Call(Struct, frozen=True):
    """A call of a command here."""

    verb: str
    places: tuple[Any, ...]  # its arguments without a name
    options: Mapping[str, Any]
    function: str = ""  # in place of the command's

    def run(self, more: Mapping[str, Any]) -> Any:
        """Call it, with more options, which count more."""
        return load(self.function or COMMANDS[self.verb].function)(*self.places, **{**self.options, **more})

    def __str__(self) -> str:
        if self.function:
            return f"dolma-dask -c FILE {self.verb}"
        names = spellings(COMMANDS[self.verb].load())
        words = [word for name, value in self.options.items() for word in _spelled(names[name], value)]
        return shlex.join(["dolma-dask", self.verb, *map(str, self.places), *words])


def _spelled(option: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [option if value else option.replace("--", "--no-", 1)]
    values = list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
    if any(text.startswith("-") or not text for text in values):
        return [f"{option}={text}" for text in values]
    return [option, *values]


class Plan(Struct):
    """What is called for a command of the toolkit, and what a person should know of it."""

    calls: Sequence[Call]
    notes: Sequence[str] = ()


class Rehearsal(Answer, frozen=True):
    """The answer to ``--dryrun``: the resolved configuration in YAML, and as comments what would be called and done."""

    config: dict[str, Any]
    calls: tuple[str, ...]
    answer: Any

    @property
    def exit_status(self) -> int:
        """That of what would be done."""
        return int(self.answer.exit_status)

    def __str__(self) -> str:
        comments = [*self.calls, *str(self.answer).splitlines()]
        shown = yaml.safe_dump(self.config, sort_keys=True, allow_unicode=True)
        return "\n".join([shown.rstrip(), *(f"# {line}".rstrip() for line in comments)])


def run(name: str, words: Sequence[str], file: str | None = None) -> Any:
    """Do what a command of the toolkit would, from its own words and a file; return what the command here returns.

    Raises `UsageError`: something is unknown, has a value that it cannot have, is missing, or cannot be done here.
    """
    if name not in CONFIGS:
        raise UsageError(answer([name, *words], file) or name)
    given = read(CONFIGS[name], words, file, load(OWN[name]), name)
    _check_places(name, given.places)
    plan = _PLANS[name](given)
    notes = [*given.notes(), *plan.notes]
    is_rehearsal = getattr(given.config, "dryrun", False) or given.own.get("dry_run", False)
    more = {**given.own, **({"dry_run": True} if is_rehearsal else {})}
    made = _noted(_called(name, plan.calls, more), notes)
    if not is_rehearsal:
        return made
    return Rehearsal(msgspec.to_builtins(given.config), tuple(map(str, plan.calls)), made)


def _check_places(name: str, places: Sequence[str]) -> None:
    """Refuse words without a name that nothing takes."""
    most = {"mix": 0, "tokens": 2}.get(name, 1)
    if len(places) > most:
        raise UsageError(
            f"dolma-dask {name}: {shlex.join(places[most:])}: no option is named before it; expected none, or an option such as --documents before it."
        )


def help_of(name: str) -> str:
    """Return the options of a command of the toolkit, with what each does here."""
    if name not in CONFIGS:
        return answer([name]) or ""
    head = f"Usage: dolma-dask [-c FILE] {name} [OPTIONS]\n\nOptions of the Dolma toolkit's {name}, also in a file in YAML or JSON, and what they do here:\n"
    lines = [
        f"--{leaf.name}  {leaf.kind}, {leaf.shown_default}\n{_filled(leaf.row.here)}"
        for leaf in leaves(CONFIGS[name])
    ]
    more = (
        f"\nOptions of dolma-dask {name} --help count too, such as --scheduler and --on-bad-record."
        if name != "list"
        else ""
    )
    return "\n".join([head, *lines]) + more


def _filled(text: str) -> str:
    return textwrap.fill(text, 96, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def _called(name: str, calls: Sequence[Call], more: Mapping[str, Any]) -> Any:
    if not calls:
        return Summary(name, "")
    if len(calls) == 1:
        return calls[0].run(more)
    return answers(name, {str(call.places[0]): partial(call.run, more) for call in calls})


def _noted(answer: Any, notes: Sequence[str]) -> Any:
    """Return an answer with more notes, before its own."""
    if notes and isinstance(answer, Struct) and hasattr(answer, "notes"):
        return msgspec.structs.replace(answer, notes=(*notes, *answer.notes))
    return answer


# ------------------------------------------------------------------------------------------------ commands


def _tag(given: Given) -> Plan:
    config: Tag = given.config
    options = {"taggers": config.taggers, **given.options()}
    _check_taggers(given, config)
    found, notes = _datasets(given, config.documents)
    for root in found:
        _check_destination(given, config, root)
    return Plan([Call("tag", (root,), {**options, **only}) for root, only in found.items()], notes)


def _check_taggers(given: Given, config: Tag) -> None:
    """Refuse names of taggers that there are not, where they stand."""
    if not config.taggers:
        given.wrong(
            "taggers", "there are none; expected names such as gopher_v2. See them all: dolma-dask list."
        )
    register_toolkit(config.tagger_modules)
    for name in config.taggers:
        try:
            get_tagger(name)
        except UsageError as error:
            given.wrong("taggers", str(error))


def _check_destination(given: Given, config: Tag, root: str) -> None:
    """Refuse a place for attributes that is another than where they always lie."""
    if not config.destination:
        return
    name = config.experiment or (config.taggers[0] if len(config.taggers) == 1 else "<experiment>")
    expected = f"{root}/{layout.ATTRIBUTES}/{name}"
    if files.resolved(expected) not in {files.resolved(files.normalize(one)) for one in config.destination}:
        given.wrong(
            "destination",
            f"{', '.join(config.destination)}; expected {expected}: attributes lie beside the documents, where mix finds them. Leave it out, and give an experiment.",
        )


def _dedupe(given: Given) -> Plan:
    config: Dedupe = given.config
    group, flags = config.dedupe, config.dedupe.documents
    _check_dedupe(given, config)
    name = group.name or str(flags.attribute_name)
    notes = []
    if group.num_partitions > 1:
        name = f"{name}_0"
        notes.append(
            f"dedupe.num_partitions: partition 0 goes over all documents, into the set {name}; the others have nothing to do, so leave their sets out of the mix"
        )
        if group.partition_index:
            return Plan((), notes)
    found, more = _datasets(given, config.documents)
    first, *others = found
    only = found[first].get("only")
    if others and any(found.values()):
        parts = listed([root for root, part in found.items() if part])
        given.wrong(
            "documents", f"a part of {parts}; expected all files of each dataset where there are several."
        )
    options = {
        **given.options(),
        "by": _column(given, flags.key or "$.text"),
        "name": name,
        **_format(config.compression),
        **({"others": others} if others else {}),
        **({"only": only} if only else {}),
    }
    return Plan([Call("dedupe", (first,), options)], [*notes, *more])


def _check_dedupe(given: Given, config: Dedupe) -> None:
    """Refuse what would give other flags than the toolkit's."""
    group, bloom = config.dedupe, config.bloom_filter
    if group.paragraphs.attribute_name is not None:
        given.wrong(
            "dedupe.paragraphs",
            "nothing here finds duplicates among paragraphs or their n-grams yet; dedupe.documents flags whole documents.",
        )
    if group.documents.attribute_name is None:
        given.wrong("dedupe.documents.attribute_name", "it is missing; expected the key of the flags.")
    for name in ("skip_empty", "min_length", "min_words"):
        if getattr(group, name):
            given.wrong(
                f"dedupe.{name}",
                "every value counts here; expected it left out. Let short texts pass in the filter of the mix.",
            )
    if group.document_dir != layout.DOCUMENTS:
        given.wrong(
            "dedupe.document_dir",
            f"{group.document_dir!r}; expected {layout.DOCUMENTS}, the folder of a dataset's documents. Rename it.",
        )
    is_there = bloom.file is not None and files.stat(files.normalize(bloom.file))
    if bloom.read_only or is_there:
        given.wrong(
            "bloom_filter.file",
            f"{bloom.file} is {'there' if is_there else 'read_only'}; expected none: values are compared exactly with each other, and filters of earlier runs are not "
            "read. Give all datasets in one call.",
        )


_PATH = re.compile(r"(?:\$\.?)?(\w[\w-]*(?:\.\w[\w-]*)*)")


def _column(given: Given, key: str) -> str:
    """Return the column that a JSONPath names."""
    path = _PATH.fullmatch(re.sub(r"""\[(['"])([\w-]+)\1\]""", r".\2", key))
    if path is None:
        given.wrong(
            "dedupe.documents.key",
            f"{key!r}; expected the path of one value, such as $.text or $.metadata.url.",
        )
    return path[1]


def _format(compression: Compression) -> dict[str, Any]:
    """Return the format of files that are written, as an option."""
    return {} if compression.output is None else {"format": format_of(compression.output, "output")}


def _mix(given: Given) -> Plan:
    return Plan([Call("mix", (given.config,), {}, OWN["mix"])])


def _list(given: Given) -> Plan:
    return Plan([Call("list", tuple(given.places), given.options())])


_PLANS: Mapping[str, Callable[[Given], Plan]] = {"tag": _tag, "dedupe": _dedupe, "mix": _mix, "list": _list}

OWN: Mapping[str, str] = {
    **{name: COMMANDS[name].function for name in ("tag", "dedupe", "list")},
    "mix": "dolma_dask.pipelines.dolma_mix:mix_config",
}
"""Functions whose options may stand among the toolkit's, by its command."""


# ------------------------------------------------------------------------------------------------ datasets


def _datasets(given: Given, patterns: Sequence[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the datasets in which files lie, in order, with the options that name a part of one; and notes about patterns without files.

    Raises `UsageError`: there are no files, or one lies outside of a folder of documents.
    """
    if given.places:
        return {str(given.places[0]): {}}, []
    found: dict[str, dict[str, None]] = {}
    notes = []
    for pattern in patterns:
        urls = [url for url, _ in matches(pattern)]
        notes += [] if urls else [f"documents: no file matches {pattern}"]
        for url in urls:
            root, path = split(url, layout.DOCUMENTS)
            found.setdefault(root, {})[path] = None
    if not found:
        raise UsageError(
            f"documents: no file matches {', '.join(patterns) or 'nothing, since none are given'}; expected paths or patterns such as corpus/documents/*.jsonl.gz."
        )
    return {root: _part(root, set(paths), patterns) for root, paths in found.items()}, notes


def _part(root: str, wanted: set[str], patterns: Sequence[str]) -> dict[str, Any]:
    """Return the option that leaves the files of a dataset that are wanted: none for all, the ends of patterns, else each by its name."""
    every = [info.path for info in files.list_files(files.join(root, layout.DOCUMENTS))]
    documents = [path for path in every if layout.suffix_of(path)]
    if wanted >= set(documents):
        return {}
    ends = [f"/{pattern}".rpartition(f"/{layout.DOCUMENTS}/")[2] for pattern in patterns]
    for only in (ends, list(map(_exactly, sorted(wanted)))):
        if {path for path in documents if is_chosen(path, only)} == wanted & set(documents):
            return {"only": only}
    raise UsageError(
        f"documents: files of {root} cannot be told from others of nearly the same names; rename them."
    )


def _exactly(path: str) -> str:
    """Return a pattern that matches a path and is a part of none."""
    at = next((at for at, sign in enumerate(path) if sign.isalnum()), 0)
    return f"{escape(path[:at])}[{path[at]}]{escape(path[at + 1 :])}"
