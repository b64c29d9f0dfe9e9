"""Commands of the Dolma toolkit -> calls of the commands here: ``dolma tag -c FILE``, ``dolma dedupe --documents ...``.

A set of files is a dataset here, or several of them; what cannot be done is refused in words before anything runs.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import yaml
from cyclopts import CycloptsError
from msgspec import Struct

from dolma_dask.dataset import Dataset, bare_dataset
from dolma_dask.display import listed
from dolma_dask.errors import StageError, UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.patterns import looks_into
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.pipelines.dolma_config import Given, read
from dolma_dask.pipelines.dolma_datasets import apart, common_part, find_anywhere, find_datasets
from dolma_dask.pipelines.dolma_options import (
    CONFIGS,
    Compression,
    Dedupe,
    Reshard,
    Stat,
    Tag,
    Tokens,
    Warc,
    format_of,
)
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
        if self.function or any(isinstance(one, Dataset) for one in self.places):
            return f"dolma-dask -c FILE {_BY_TOOLKIT.get(self.verb, self.verb)}"
        names = spellings(COMMANDS[self.verb].load())
        words = [word for name, value in self.options.items() for word in _spelled(names[name], value)]
        places = [place for one in self.places for place in ([one] if isinstance(one, str) else one)]
        return shlex.join(["dolma-dask", self.verb, *places, *words])


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
        comments = "\n".join([*self.calls, str(self.answer)]).splitlines()
        shown = yaml.safe_dump(self.config, sort_keys=True, allow_unicode=True)
        return "\n".join([shown.rstrip(), *(f"# {line}".rstrip() for line in comments)])


def run(name: str, words: Sequence[str], file: str | None = None) -> Any:
    """Do what a command of the toolkit would, from its own words and a file; return what the command here returns.

    Raises `UsageError`: something is unknown, has a value that it cannot have, is missing, or cannot be done here.
    """
    try:
        given = read(CONFIGS[name], words, file, load(OWN[name]), name)
    except CycloptsError as error:
        raise UsageError(
            f"dolma-dask {name}: {str(error).strip()} Help: dolma-dask {BY_US[name]} --help"
        ) from None
    _check_places(name, given)
    plan = _PLANS[name](given)
    notes = [*given.notes(), *plan.notes]
    is_rehearsal = getattr(given.config, "dryrun", False) or given.own.get("dry_run", False)
    more = {**given.own, **({"dry_run": True} if is_rehearsal else {})}
    try:
        made = _noted(_called(name, plan.calls, more), notes)
    except StageError as error:
        error.details["summary"] = _noted(error.details.get("summary"), notes)
        raise
    if not is_rehearsal:
        return made
    return Rehearsal(msgspec.to_builtins(given.config), tuple(map(str, plan.calls)), made)


def _check_places(name: str, given: Given) -> None:
    """Refuse words without a name that nothing takes."""
    most = {"mix": 0, "warc": 0, "reshard": 0, "tokens": 2}.get(name, 1)
    if getattr(given.config, "documents", None) or getattr(given.config, "attributes", None):
        most = 0  # they would stand for the same
    if len(given.places) > most:
        raise UsageError(
            f"dolma-dask {name}: {shlex.join(given.places[most:])}: no option is named before it; expected none, or an option such as --documents before it."
        )


def _called(name: str, calls: Sequence[Call], more: Mapping[str, Any]) -> Any:
    if not calls:
        return Summary(name, "")
    if len(calls) == 1:
        return calls[0].run(more)
    return answers(name, {_root(call.places[0]): partial(call.run, more) for call in calls})


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
    found = find_datasets(given, config.documents)
    for root in found:
        _check_destination(given, config, root)
    return Plan([Call("tag", (root,), {**options, **only}) for root, only in found.items()])


def _check_taggers(given: Given, config: Tag) -> None:
    """Refuse names of taggers that there are not, where they stand."""
    if not config.taggers:
        given.wrong(
            "taggers", "there are none; expected names such as gopher_v2. See them all: dolma-dask list."
        )
    register_toolkit(config.tagger_modules)
    _check_known(given, "taggers")


def _check_known(given: Given, option: str) -> None:
    for name in given.value(option):
        try:
            get_tagger(name)
        except UsageError as error:
            given.wrong(option, str(error))


def _check_destination(given: Given, config: Tag, root: str) -> None:
    """Refuse a place for attributes that is another than where they always lie."""
    if not config.destination:
        return
    name = config.experiment or (config.taggers[0] if len(config.taggers) == 1 else "<experiment>")
    expected = f"{root}/{layout.ATTRIBUTES}/{name}"
    if files.resolved(files.normalize(expected)) not in {
        files.resolved(files.normalize(one)) for one in config.destination
    }:
        given.wrong(
            "destination",
            f"{', '.join(config.destination)}; expected {expected}: attributes lie beside the documents, where mix finds them. Leave it out, and give an experiment.",
        )


def _dedupe(given: Given) -> Plan:
    config: Dedupe = given.config
    group = config.dedupe
    is_by_paragraph = group.paragraphs.attribute_name is not None
    key = group.paragraphs.attribute_name if is_by_paragraph else group.documents.attribute_name
    _check_dedupe(given, config, is_by_paragraph)
    name = group.name or str(key)
    notes = []
    if not 0 <= group.partition_index < group.num_partitions:
        given.wrong(
            "dedupe.partition_index",
            f"{group.partition_index} of {group.num_partitions}; expected partitions counted from 0.",
        )
    if group.num_partitions > 1:
        name = f"{name}_0"
        notes.append(
            f"dedupe.num_partitions: partition 0 goes over all documents, into the set {name}; the others have nothing to do, so leave their sets out of the mix"
        )
        if group.partition_index:
            return Plan((), notes)
    rate = _filter(config).get("bloom_rate")
    if rate and rate != (wanted := config.bloom_filter.desired_false_positive_rate):
        notes.append(
            f"bloom_filter.desired_false_positive_rate: {wanted:g}; the filter is made for {rate:g}, the least that there is; flags are exact"
        )
    found = find_datasets(given, config.documents)
    _check_input(given, config.compression, config.documents)
    first, *others = found
    only = common_part(found)
    if only is None:
        parts = listed([root for root, part in found.items() if part])
        given.wrong(
            "documents",
            f"a part of {parts}, which no patterns tell from the rest of all datasets; expected all files of each, or the same folders of all.",
        )
    options = {
        **given.options(),
        **(
            _of_paragraphs(config)
            if is_by_paragraph
            else {"by": _column(given, group.documents.key or "$.text")}
        ),
        "name": name,
        "key": key,
        **_filter(config),
        **_format(config.compression),
        **({"others": others} if others else {}),
        **({"only": only} if only else {}),
    }
    return Plan([Call("dedupe", (first,), options)], notes)


def _of_paragraphs(config: Dedupe) -> dict[str, Any]:
    """Return the options for paragraphs."""
    paragraphs, ngram = config.dedupe.paragraphs, config.dedupe.paragraphs.by_ngram
    options: dict[str, Any] = {"unit": "paragraph"}
    if paragraphs.paragraph_separator != "\n":
        options["separator"] = paragraphs.paragraph_separator
    if ngram.ngram_length:
        options |= {"ngram": ngram.ngram_length, "overlap": ngram.overlap_threshold}
        options |= {
            "stride": max(1, ngram.stride),
            **({"skip_short": True} if ngram.skip_short_paragraphs else {}),
        }
    return options


def _filter(config: Dedupe) -> dict[str, Any]:
    """Return the options for a Bloom filter."""
    given = config.bloom_filter
    if given.file is None:
        return {}
    if given.read_only:
        return {"bloom": given.file, "read_only": True}
    rate = None if given.size_in_bytes else _rate(given.desired_false_positive_rate)
    shape = {"bloom_bytes": given.size_in_bytes, "bloom_keys": given.estimated_doc_count, "bloom_rate": rate}
    return {"bloom": given.file, **{name: value for name, value in shape.items() if value}}


def _rate(wanted: float) -> float:
    """Return a rate that a filter here can have."""
    from dolma_dask.verbs.dedupe.bloom.options import LEAST_RATE  # which is loaded by now

    return max(wanted, LEAST_RATE) if wanted > 0 else wanted


def _check_dedupe(given: Given, config: Dedupe, is_by_paragraph: bool) -> None:
    """Refuse what would give other flags than the toolkit's."""
    group = config.dedupe
    if group.documents.attribute_name is None and not is_by_paragraph:
        given.wrong(
            "dedupe.documents.attribute_name",
            "it is missing, and so is dedupe.paragraphs.attribute_name; expected one of them, the key of the flags.",
        )
    if group.documents.attribute_name is not None and is_by_paragraph:
        given.wrong("dedupe.paragraphs", "dedupe.documents is there too; expected one of them.")
    there = "paragraphs" if is_by_paragraph else "documents"
    if group.dedupe_method not in (None, there):
        given.wrong("dedupe.dedupe_method", f"{group.dedupe_method!r}; expected {there}, or none.")
    if group.document_dir != layout.DOCUMENTS:
        given.wrong(
            "dedupe.document_dir",
            f"{group.document_dir!r}; expected {layout.DOCUMENTS}, the folder of a dataset's documents. Rename it.",
        )
    if config.bloom_filter.read_only and config.bloom_filter.file is None:
        given.wrong("bloom_filter.file", "it is missing; expected the filter that is read.")


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


def _check_input(given: Given, compression: Compression, patterns: Sequence[str]) -> None:
    """Refuse a compression that is another than names of files say."""
    expected = None if compression.input is None else format_of(compression.input, "input")
    others = [one for one in patterns if layout.suffix_of(one) and layout.format_of(one) != expected]
    if expected is not None and others:
        given.wrong(
            "compression.input",
            f"{compression.input!r}, for {others[0]}; expected names that say so too, since readers go by names. Leave it out.",
        )


def _format(compression: Compression) -> dict[str, Any]:
    """Return the format of files that are written, as an option."""
    return {} if compression.output is None else {"format": format_of(compression.output, "output")}


def _mix(given: Given) -> Plan:
    from dolma_dask.pipelines.dolma_mix import check_expressions  # which is loaded by now

    check_expressions(given.config, given.node, given.mistakes)
    return Plan([Call("mix", (given.config,), {}, OWN["mix"])])


def _tokens(given: Given) -> Plan:
    config: Tokens = given.config
    to = config.destination or next(iter(given.places[1:]), None)
    if to is None:
        given.wrong("destination", "it is missing; expected the folder of the token files.")
    if config.fields.text_field_name != "text":
        given.wrong(
            "fields.text_field_name",
            f"{config.fields.text_field_name!r}; expected text. Documents have their text there: dolma-dask convert ... --text NAME.",
        )
    key = config.fields.id_field_name
    options = {
        "format": "dolma",
        "compat": "dolma-1.2",
        "shuffle": True,
        "seed": config.seed,
        "max_size": config.max_size,
        **_specials(given, config),
        **({} if key in ("id", None) else {"id_key": key}),
        **given.options(),
    }
    datasets, elsewhere = find_anywhere(given, config.documents)
    found: list[tuple[Dataset | str, Mapping[str, Any]]] = [*datasets.items()]
    found += [(bare_dataset(root, infos), {}) for root, infos in elsewhere.items()]
    places = apart([to], [_root(one) for one, _ in found])
    _check_beside(given, "documents", config.documents, [places[root] for root in elsewhere])
    calls = [Call("ragged", (one, places[_root(one)]), {**options, **only}) for one, only in found]
    return Plan(calls, _elsewhere(elsewhere, layout.DOCUMENTS))


def _elsewhere(roots: Iterable[str], folder: str) -> list[str]:
    return [f"{root}: files in no folder `{folder}`, which are read where they are" for root in roots]


def _check_beside(given: Given, option: str, patterns: Sequence[str], targets: Iterable[str]) -> None:
    """Refuse to write where the next call would take what was written for files to read."""
    for target in targets:
        for pattern in patterns:
            if looks_into(pattern, target):
                given.wrong(
                    option,
                    f"{pattern} would find what is written to {target}, too; expected another folder to write to.",
                )


def _root(dataset: Dataset | str) -> str:
    return dataset if isinstance(dataset, str) else dataset.root


_NO_IDS = {"bos": None, "eos": None}


def _specials(given: Given, config: Tokens) -> dict[str, Any]:
    """Return the tokenizer and the texts of its tokens that stand around documents; "none" for none."""
    name = config.tokenizer.name_or_path or config.tokenizer_name_or_path
    if name is None:
        given.wrong(
            "tokenizer.name_or_path", "it is missing; expected a tokenizer.json or a model on the hub."
        )
    ids: dict[str, int | None] = {"bos": config.tokenizer.bos_token_id, "eos": config.tokenizer.eos_token_id}
    if ids == _NO_IDS and config.tokenizer.name_or_path is not None:
        given.wrong(
            "tokenizer.eos_token_id", "it is missing, and so is bos_token_id; expected one of them, or both."
        )
    engine = open_tokenizer(name)
    if ids == _NO_IDS:  # by the name that is deprecated
        ids = {**_NO_IDS, "eos": engine.vocab_size - 1}
    texts = {option: "none" if number is None else engine.token(number) for option, number in ids.items()}
    for option, text in texts.items():
        if text is None:
            given.wrong(
                f"tokenizer.{option}_token_id",
                f"{ids[option]}; expected an id of {name}, up to {engine.max_id}.",
            )
    return {"tokenizer": name, **texts}


def _stat(given: Given) -> Plan:
    config: Stat = given.config
    found, elsewhere = find_anywhere(given, config.attributes, layout.ATTRIBUTES)
    reports = apart([config.report] if config.report else [], [*found, *elsewhere])
    _check_beside(given, "attributes", config.attributes, [reports[root] for root in elsewhere if reports])

    def options(root: str) -> dict[str, Any]:
        return {**given.options(), **({"report": reports[root]} if reports else {})}

    calls = [Call("stat", (root,), {**options(root), **part}) for root, part in found.items()]
    alone = "dolma_dask.questions.stat:stat_files"
    calls += [Call("stat", (root, infos), options(root), alone) for root, infos in elsewhere.items()]
    return Plan(calls, _elsewhere(elsewhere, layout.ATTRIBUTES))


def _warc(given: Given) -> Plan:
    config: Warc = given.config
    for name in ("pre", "post"):
        _check_known(given, f"{name}.taggers")
    if len(config.destination) != 1:
        given.wrong(
            "destination", f"{len(config.destination)} of them; expected one folder, of the new dataset."
        )
    if not config.documents:
        given.wrong("documents", "there are none; expected WARC files, folders or patterns.")
    to = config.destination[0].rstrip("/").removesuffix(f"/{layout.DOCUMENTS}")
    return Plan([Call("convert", (config.documents,), {"to": to, **given.options()})])


def _reshard(given: Given) -> Plan:
    config: Reshard = given.config
    taken = {
        "sources": [one.prefix for one in config.source_prefixes],
        "rates": [one.sample_rate for one in config.source_prefixes],
    }
    return Plan([Call("reshard", (config.destination_prefix,), {**taken, **given.options()})])


def _list(given: Given) -> Plan:
    return Plan([Call("list", tuple(given.places), given.options())])


_PLANS: Mapping[str, Callable[[Given], Plan]] = {
    "tag": _tag,
    "dedupe": _dedupe,
    "mix": _mix,
    "tokens": _tokens,
    "list": _list,
    "stat": _stat,
    "warc": _warc,
    "reshard": _reshard,
}

BY_US = {**{name: name for name in _PLANS}, "tokens": "ragged", "warc": "convert"}
"""Commands here that do the work, by the toolkit's."""

_BY_TOOLKIT = {command: name for name, command in BY_US.items()}

OWN = {
    **{name: COMMANDS[command].function for name, command in BY_US.items()},
    "mix": "dolma_dask.pipelines.dolma_mix:mix_config",
}
"""Functions whose options may stand among the toolkit's, by its command."""
