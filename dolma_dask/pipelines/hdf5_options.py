"""Options of ModelZoo's create_hdf5_dataset.py -> a call of `hdf5`: ``dolma-dask hdf5 LMData --params FILE --input_dir raw ...``.

Its names, its sections in YAML, a truth value with or without a word behind it (``--use_ftfy``, ``--use_ftfy True``), and ``None`` for nothing.
Words of the command line come before those of the file, and only what was given counts: there, an option of the file loses against a
default of the command line. How to run and what this package adds goes under its own names (``--compat``, ``--tail``, ``--workers``...).
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.yaml_files import Mistakes, convert_options, is_nothing, pairs, read_yaml, scalar
from dolma_dask.outputs.hdf5.job import Hdf5Summary
from dolma_dask.outputs.hdf5.modes import MODES
from dolma_dask.outputs.hdf5.modes.common import MODELZOO
from dolma_dask.outputs.hdf5.options import check_mode, is_cut_in_chunks
from dolma_dask.outputs.hdf5.raw import RawTexts
from dolma_dask.pipelines.signatures import arguments_of
from dolma_dask.tokens.specials import load_gpt2
from dolma_dask.verbs.hdf5.verb import hdf5

OUTPUT_DIR = "./data_dir/"
"""Default folder of the files."""

SECTIONS = ("setup", "processing", "dataset")
"""Sections of the YAML file; keys may also stand without them."""

TOKENIZERS = ("GPT2Tokenizer", "NeoXTokenizer", "HuggingFaceTokenizer")

_OURS = {
    name: argument.hint
    for name, argument in arguments_of(hdf5).items()
    if name not in ("dataset", "to", "tokenizer", "mode", "where", "attributes", "source", "version")
}
"""Options that `hdf5` takes under the same name."""

_RENAMED = {"files_per_record": "max_rows_per_file", "processes": "workers", "display_pbar": "progress"}

OPTIONS: Mapping[str, Any] = {
    **_OURS,
    **dict.fromkeys(("params", "input_dir", "output_dir", "jsonl_key"), str),
    "metadata_files": Sequence[str],
    **dict.fromkeys(("tokenizer_type", "vocab_file", "encoder_file", "huggingface_tokenizer"), str),
    **dict.fromkeys(("files_per_record", "processes", "max_chunk_size"), int),
    **dict.fromkeys(("display_pbar", "write_in_batch", "write_remainder", "resume_from_checkpoint"), bool),
    **dict.fromkeys(("output_name", "auth_token", "input_ids_dtype", "input_mask_dtype"), str),
}
"""Every option, and the type of its value."""

_WITHOUT_EFFECT = {
    "output_name": "files are called part-<n>-<i>.h5",
    "max_chunk_size": "documents are read in blocks of 2 MiB, and rows do not depend on them",
    "resume_from_checkpoint": "the same command always goes on where it was stopped",
    "auth_token": "take the variable HF_TOKEN, or hf auth login",
}
"""Options that are taken and do nothing here, and why; others of the kind decide about speed there."""


def is_mode(word: str) -> bool:
    """Tell whether the word behind ``dolma-dask hdf5`` is a mode of create_hdf5_dataset, and no dataset.

    Raises `UsageError`: it is nearly one.
    """
    modes = {mode.lower(): mode for mode in MODES}
    near = get_close_matches(word.lower(), modes, n=1, cutoff=0.8)
    if near and word not in modes.values() and not files.local_path(word).exists():
        raise UsageError(
            f"{word!r} is neither a mode nor a dataset; did you mean {modes[near[0]]!r}?", name=word
        )
    return word in modes.values()


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
    given = _read_words(rest)
    if given.get("params"):
        given = _read_file(given["params"]) | given
    known = {name: value for name, value in given.items() if value is not None}
    _check_possible(known)
    raw = RawTexts(known.get("input_dir"), known.get("metadata_files", ()), known.get("jsonl_key", "text"))
    options = _our_options(given)
    if not is_cut_in_chunks(mode, options):
        options.pop("max_chunk_size", None)
    summary = hdf5(
        raw,
        known.get("output_dir", OUTPUT_DIR),
        mode=mode,
        tokenizer=_tokenizer(known),
        **options,
    )
    notes = [
        f"{name} has no effect: {why}"
        for name, why in _WITHOUT_EFFECT.items()
        if name in known and name not in options
    ]
    return replace(summary, notes=(*summary.notes, *notes))


def _read_words(words: Sequence[str]) -> dict[str, Any]:
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
    return _values(values, Mistakes("dolma-dask hdf5 LMData"))


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
        if isinstance(node, ScalarNode) and name == "eos":
            node = scalar(node.value, node, quoted=not is_nothing(node))
        elif isinstance(node, ScalarNode) and node.value in ("None", "none", "null"):
            node = scalar("null", node)
        elif isinstance(node, ScalarNode) and OPTIONS.get(name) == Sequence[str]:
            words = [scalar(word, node) for word in node.value.replace(",", " ").split()]
            node = SequenceNode("tag:yaml.org,2002:seq", words, node.start_mark)
        nodes.append((key, node))
    hints = {name: hint | None for name, hint in OPTIONS.items()}
    values = convert_options(MappingNode("tag:yaml.org,2002:map", nodes), hints, (), "", mistakes, lax=True)
    mistakes.check()
    return values


def _check_possible(given: Mapping[str, Any]) -> None:
    """Refuse what would give other rows than were requested."""
    for name in ("input_ids_dtype", "input_mask_dtype"):
        kind = given.get(name, "int32")
        if kind != "int32" and given.get("compat") != MODELZOO:
            raise UsageError(f"{name}={kind!r}; expected int32, in which all rows are written.")


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


def _our_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that `hdf5` takes; None is only passed on where it means something."""
    renamed = {_RENAMED.get(name, name): value for name, value in given.items()}
    values = {name: value for name, value in renamed.items() if name in _OURS and value is not None}
    if given.get("write_remainder") is False:
        values.setdefault("tail", "drop")
    if "ftfy_normalizer" in renamed:
        values["ftfy_normalizer"] = renamed["ftfy_normalizer"]
    if values.get("workers") == 0:  # all processors
        del values["workers"]
    if given.get("compat") == MODELZOO and given.get("tokenizer_type") == "GPT2Tokenizer":
        values.pop("pad_id", None)  # forced to be the end of a document there
    return values
