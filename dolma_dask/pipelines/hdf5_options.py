"""Options of ModelZoo's create_hdf5_dataset.py -> a call of `hdf5`: ``dolma-dask hdf5 LMData --params FILE --input_dir raw ...``.

Its names, its sections in YAML, a truth value with or without a word behind it (``--use_ftfy``, ``--use_ftfy True``), and ``None`` for nothing.
Words of the command line come before those of the file, and only what was given counts: there, an option of the file loses against a
default of the command line. How to run and what this package adds goes under its own names (``--compat``, ``--tail``, ``--workers``...).
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from dolma_dask.errors import UsageError
from dolma_dask.io.yaml_files import Mistakes, convert_options, is_nothing, pairs, read_yaml, scalar
from dolma_dask.options.base import fields_of, members
from dolma_dask.outputs.hdf5.job import Hdf5Summary
from dolma_dask.outputs.hdf5.modes import MODES
from dolma_dask.outputs.hdf5.modes.common import MODELZOO
from dolma_dask.outputs.hdf5.options import check_mode
from dolma_dask.outputs.hdf5.raw import RawTexts
from dolma_dask.pipelines.hdf5_script import (
    OPTIONS,
    RENAMED,
    SAME,
    TOKENIZERS,
    WITHOUT_EFFECT,
    ScriptOptions,
    modes_with,
)
from dolma_dask.tokens.specials import load_gpt2
from dolma_dask.verbs.hdf5.verb import hdf5

SECTIONS = ("setup", "processing", "dataset")
"""Sections of the YAML file; keys may also stand without them."""

TOLD = {
    "setup": ("input_dir", "metadata_files", "output_dir", "processes"),
    "processing": ("tokenizer_type", "vocab_file", "encoder_file", "huggingface_tokenizer"),
}
"""Options that ``data_params.json`` has as they were given, by section."""

DTYPES = ("input_ids_dtype", "input_mask_dtype", "position_ids_dtype", "seq_lengths_dtype")

PROCESSORS = {
    "LMData": "LMDataPreprocessor",
    "LMData_VSL": "VSLLMDataPreprocessor",
    "FIM": "FIMDataPreprocessor",
    "Summarization": "SummarizationPreprocessor",
    "Summarization_VSL": "VSLSummarizationPreprocessor",
    "DPO": "DPOPreprocessor",
}
"""What older files of options call the modes."""


def without_mode(words: Sequence[str]) -> str | None:
    """Say what is missing before words behind ``dolma-dask hdf5`` of which some are options of create_hdf5_dataset alone."""
    own = {f"--{name}" for name in OPTIONS.keys() - SAME.keys()}
    names = [
        "--" + word[2:].partition("=")[0].replace("-", "_") if word[:2] == "--" else "" for word in words
    ]
    at = next((at for at, name in enumerate(names) if name in own), None)
    if at is None:
        return None
    value = [] if "=" in words[at] else [word for word in words[at + 1 : at + 2] if word[:2] != "--"]
    first = "" if words[0].startswith("--") else f", which {words[0]!r} is not"
    return f"{words[at]} is an option of a mode; expected a mode before it{first}: dolma-dask hdf5 DPO {shlex.join([words[at], *value])}. Modes: {', '.join(MODES)}."


def create_hdf5_dataset(words: Sequence[str]) -> Hdf5Summary:
    """Do what create_hdf5_dataset.py would, from its own words.

    Raises `UsageError`: the mode is not there, an option is unknown, lacks its value or has one that it cannot have, or something is
    missing.

    Parameters
    ----------
    words : sequence of str
        The mode and options: ``["LMData", "--input_dir", "raw", "--tokenizer_type", "NeoXTokenizer", ...]``.
    """
    if not words:
        raise UsageError(f"no mode was given; expected one of {', '.join(MODES)}.")
    mode, *rest = words
    check_mode(mode)
    given = _read_words(mode, rest)
    if given.get("params"):
        given = _read_file(given["params"]) | given
    known = {name: value for name, value in given.items() if value is not None}
    _check_possible(mode, known)
    raw = RawTexts(
        known.get("input_dir"),
        known.get("metadata_files", ()),
        known.get("jsonl_key", "text"),
        told=_told(known),
    )
    options = _our_options(mode, given)
    to = known.get("output_dir", ScriptOptions.output_dir)
    summary = hdf5(raw, to, mode=mode, tokenizer=_tokenizer(known), **options)
    return replace(summary, notes=(*summary.notes, *_notes(mode, known, options)))


def _notes(mode: str, known: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[str]:
    """Name the options that were given and change nothing, and say why."""
    for name, why in WITHOUT_EFFECT.items():
        if name in known and name not in options:
            yield f"{name} has no effect: {why}"
    for name in DTYPES:
        if known.get(name, "int32") != "int32":
            yield f"{name} has no effect: all rows are int32, as in ModelZoo 2.2"
    if known.get("write_remainder") is False and "tail" not in options:
        yield f"write_remainder has no effect: rows of mode {mode} never go on from one document to the next, so that none is left over"


def _read_words(mode: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command line; a truth value needs no word behind it."""
    values: dict[str, tuple[Node, Node]] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--"):
            raise UsageError(f"{word!r} belongs to no option; expected --NAME VALUE.")
        name, has_value, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not has_value and waiting and not waiting[0].startswith("--"):
            value = waiting.pop(0)
        elif not has_value and OPTIONS.get(name, bool) in (bool, bool | None):
            value = "true"
        elif not has_value:
            raise UsageError(f"--{name} has no value; expected one behind it.")
        values[name] = scalar(name), scalar(value, quoted=not value)
    return _values(values, Mistakes(f"dolma-dask hdf5 {mode}"))


def _read_file(url: str) -> dict[str, Any]:
    """Return the options of a YAML file, with or without its sections."""
    mistakes = Mistakes(url)
    top = read_yaml(url, mistakes, "parameters of create_hdf5_dataset.py in YAML")
    if not isinstance(top, MappingNode):
        mistakes.add(top, f"expected options, in the sections {', '.join(SECTIONS)}")
        mistakes.check()
    values: dict[str, tuple[Node, Node]] = {}
    for name, option in pairs(top).items():
        is_section = name in SECTIONS and isinstance(option[1], MappingNode)
        values.update(pairs(option[1]) if is_section else {name: option})
    return _values(values, mistakes)


def _values(options: Mapping[str, tuple[Node, Node]], mistakes: Mistakes) -> dict[str, Any]:
    """Read options by their types: ``None`` means nothing, and a list is words with spaces or commas between."""
    nodes = []
    for name, (key, node) in options.items():
        if name not in OPTIONS:
            mistakes.add(key, f"{name}: there is no such option; {_near(name)}")
            continue
        if isinstance(node, ScalarNode) and name == "eos":
            node = scalar(node.value, node, quoted=not is_nothing(node))
        elif isinstance(node, ScalarNode) and node.value in ("None", "none", "null"):
            node = scalar("null", node)
        elif isinstance(node, ScalarNode) and Sequence[str] in members(OPTIONS.get(name)):
            words = [scalar(word, node) for word in node.value.replace(",", " ").split()]
            node = SequenceNode("tag:yaml.org,2002:seq", words, node.start_mark)
        nodes.append((key, node))
    hints = {name: hint | None for name, hint in OPTIONS.items()}
    values = convert_options(MappingNode("tag:yaml.org,2002:map", nodes), hints, (), "", mistakes, lax=True)
    mistakes.check()
    return values


def _near(name: str) -> str:
    near = get_close_matches(name, OPTIONS, n=1)
    return f"did you mean {near[0]!r}?" if near else "expected one that dolma-dask hdf5 MODE --help shows"


def _check_possible(mode: str, given: Mapping[str, Any]) -> None:
    """Refuse what the mode does not have, and what would give other rows than were requested; False and 0 ask for nothing."""
    for name, value in given.items():
        modes = modes_with(name)
        asks = value not in (False, 0) and name not in (*WITHOUT_EFFECT, "write_remainder")
        if asks and mode not in modes:
            raise UsageError(
                f"{name} is no option of mode {mode}, but of {', '.join(modes)}. {_instead(mode, name)}"
            )
    for name in DTYPES:
        kind = given.get(name, "int32")
        if kind != "int32" and given.get("compat") != MODELZOO:
            raise UsageError(f"{name}={kind!r}; expected int32, in which all rows are written.")
    processor = given.get("dataset_processor", PROCESSORS[mode])
    if processor != PROCESSORS[mode]:
        raise UsageError(
            f"dataset_processor={processor!r}; expected {PROCESSORS[mode]}, which mode {mode} is. The mode stands behind hdf5."
        )


def _instead(mode: str, name: str) -> str:
    """Say what a person wants who gives a key of the fields to a mode that reads others."""
    keys = [field.name for field in fields_of(MODES[mode]) if field.name.endswith("_key")] or ["jsonl_key"]
    return (
        f"Expected the fields of records in {', '.join(keys)}."
        if name.endswith("_key")
        else f"Leave it out: dolma-dask hdf5 {mode} --help shows its options."
    )


def _tokenizer(given: Mapping[str, Any]) -> str:
    """Return the tokenizer as a path or as its JSON text."""
    kind = given.get("tokenizer_type")
    if kind not in TOKENIZERS:
        raise UsageError(f"tokenizer_type={kind!r}; expected one of {', '.join(TOKENIZERS)}.")
    if kind == "GPT2Tokenizer":
        return load_gpt2(_needed(given, "vocab_file", kind), _needed(given, "encoder_file", kind)).read()
    if kind == "NeoXTokenizer":
        return str(_needed(given, "encoder_file", kind))
    return _needed(given, "huggingface_tokenizer", kind)


def _needed(given: Mapping[str, Any], name: str, kind: str) -> str:
    value = given.get(name)
    if value is None:
        raise UsageError(f"{name} is missing; a {kind} is made from it.")
    return str(value)


def _our_options(mode: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that `hdf5` takes; None is only passed on where it means something."""
    renamed = {RENAMED.get(name, name): value for name, value in given.items()}
    values = {name: value for name, value in renamed.items() if name in SAME and value is not None}
    values = {name: value for name, value in values.items() if mode in modes_with(name)}
    if given.get("write_remainder") is False and mode in modes_with("tail"):
        values.setdefault("tail", "drop")
    if "ftfy_normalizer" in renamed:
        values["ftfy_normalizer"] = renamed["ftfy_normalizer"]
    if values.get("workers") == 0:  # all processors
        del values["workers"]
    if given.get("compat") == MODELZOO and given.get("tokenizer_type") == "GPT2Tokenizer":
        values.pop("pad_id", None)  # forced to be the end of a document there
    return values


def _told(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what ``data_params.json`` says of the call as it was given, without secrets; of places on this machine the last folder alone."""
    named = {name: given[name] for names in TOLD.values() for name in names if name in given}
    shown = {name: _place(value) if isinstance(value, str) else value for name, value in named.items()}
    if "metadata_files" in shown:
        shown["metadata_files"] = [_place(url) for url in given["metadata_files"]]
    return {part: {name: shown[name] for name in names if name in shown} for part, names in TOLD.items()}


def _place(url: str) -> str:
    """Return a relative path as it is, and the last name of any other."""
    is_relative = "://" not in url and not os.path.isabs(url)  # noqa: PTH117  URLs too
    return url if is_relative else url.rstrip("/").rpartition("/")[2]
