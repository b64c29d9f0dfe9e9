"""Options of ModelZoo's create_hdf5_dataset.py -> a call of `hdf5`: ``dolma-dask hdf5 LMData --params FILE --input_dir raw ...``.

Its names, its sections in YAML, a truth value with or without a word behind it (``--use_ftfy``, ``--use_ftfy True``), and ``None`` for nothing.
Words of the command line come before those of the file, and only what was given counts: there, an option of the file loses against a
default of the command line. How to run and what this package adds goes under its own names (``--compat``, ``--tail``, ``--workers``...).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dolma_dask.config.yaml_nodes import Mistakes, Node, Pairs, Scalar, read_yaml
from dolma_dask.errors import UsageError
from dolma_dask.stages.hdf5 import hdf5
from dolma_dask.stages.packing.call import Hdf5Summary
from dolma_dask.stages.packing.lm_options import MODELZOO
from dolma_dask.stages.packing.raw import RawTexts
from dolma_dask.tokens.lm_specials import load_gpt2
from dolma_dask.tokens.modes import ANNOUNCED, MODES, check_mode

OUTPUT_DIR = "./data_dir/"
"""Where files go if nothing is said."""

SECTIONS = ("setup", "processing", "dataset")
"""Of the YAML file; keys may also stand without them."""

TOKENIZERS = ("GPT2Tokenizer", "NeoXTokenizer", "HuggingFaceTokenizer")

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _truth(text: str) -> bool:
    return _TRUTH[text.lower()]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.replace(",", " ").split() if word)


_SAME: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(
        ("eos_id", "pad_id", "max_seq_length", "seed", "min_sequence_len", "chunk_len_to_split"), int
    ),
    **dict.fromkeys(("short_seq_prob", "max_bad_fraction"), float),
    **dict.fromkeys(("use_ftfy", "wikitext_detokenize", "pack_sequences", "inverted_mask"), _truth),
    **dict.fromkeys(("split_text_to_tokenize", "remove_bos_in_chunks"), _truth),
    **dict.fromkeys(("overwrite", "dry_run", "progress"), _truth),
    **dict.fromkeys(("max_rows_per_file", "max_record_bytes", "workers", "prune"), int),
    **dict.fromkeys(("ftfy_normalizer", "compat", "tail", "eos", "pad", "scheduler", "on_bad_record"), str),
    "only": _words,
}
"""Options that `hdf5` takes under the same name."""

_RENAMED = {"files_per_record": "max_rows_per_file", "processes": "workers", "display_pbar": "progress"}

_OTHERS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("params", "input_dir", "output_dir", "jsonl_key"), str),
    "metadata_files": _words,
    **dict.fromkeys(("tokenizer_type", "vocab_file", "encoder_file", "huggingface_tokenizer"), str),
    **dict.fromkeys(("files_per_record", "processes", "max_chunk_size", "shuffle_seed"), int),
    **dict.fromkeys(
        ("display_pbar", "write_in_batch", "write_remainder", "resume_from_checkpoint", "shuffle"), _truth
    ),
    **dict.fromkeys(("output_name", "auth_token", "input_ids_dtype", "input_mask_dtype"), str),
}

_WITHOUT_EFFECT = {
    "output_name": "files are called part-<n>-<i>.h5",
    "write_remainder": "the last tokens are kept: --tail",
    "auth_token": "nothing is downloaded",
}
"""Options that are taken and do nothing here, and why; others of the kind decide about memory or speed there."""

OPTIONS: Mapping[str, Callable[[str], Any]] = {**_SAME, **_OTHERS}
"""Every option, and what reads its value."""


@dataclass(frozen=True)
class Given:
    """Options as they were given, by name; None where nothing was wanted."""

    values: Mapping[str, Any]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, `default` if there is none."""
        value = self.values.get(name)
        return default if value is None else value


def is_mode(word: str) -> bool:
    """Tell whether the word behind ``dolma-dask hdf5`` is a mode of create_hdf5_dataset, and no dataset."""
    return word in (*MODES, *ANNOUNCED)


def create_hdf5_dataset(words: Sequence[str]) -> Hdf5Summary:
    """Do what create_hdf5_dataset.py would, from its own words.

    Parameters
    ----------
    words : sequence of str
        The mode and options: ``["LMData", "--input_dir", "raw", "--tokenizer_type", "NeoXTokenizer", ...]``.

    Returns
    -------
    Hdf5Summary

    Raises
    ------
    UsageError
        The mode is not there, an option is unknown, lacks its value or has one that it cannot have, or something is missing.
    """
    if not words:
        raise UsageError(f"no mode was given; expected one of {', '.join(MODES)}.")
    mode, *rest = words
    check_mode(mode)
    said = _read_words(rest)
    params = said.get("params")
    given = Given({**(_read_file(params) if params else {}), **said})
    _check_possible(given)
    raw = RawTexts(given.get("input_dir"), given.get("metadata_files", ()), given.get("jsonl_key", "text"))
    summary = hdf5(
        raw,
        given.get("output_dir", OUTPUT_DIR),
        mode=mode,
        tokenizer=_tokenizer(given),
        **_same_options(given),
    )
    return replace(summary, notes=(*summary.notes, *_notes(given)))


def _read_words(words: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command line."""
    found: dict[str, Any] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--"):
            raise UsageError(f"{word!r} belongs to no option; expected --NAME VALUE.")
        name, has_value, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        read = _reader(name)
        if not has_value:
            value = _next_value(name, read, waiting)
        found[name] = _value(name, read, value)
    return found


def _next_value(name: str, read: Callable[[str], Any], waiting: list[str]) -> str:
    if waiting and not waiting[0].startswith("--"):
        return waiting.pop(0)
    if read is _truth:
        return "True"
    raise UsageError(f"--{name} has no value; expected one behind it.")


def _reader(name: str) -> Callable[[str], Any]:
    read = OPTIONS.get(name)
    if read is None:
        near = get_close_matches(name, OPTIONS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(sorted(OPTIONS))}."
        raise UsageError(f"there is no option {name!r} of LMData; {hint}", option=name)
    return read


def _value(name: str, read: Callable[[str], Any], text: str) -> Any:
    if text in ("None", "none", "null") and name != "eos":
        return None
    try:
        return read(text)
    except (ValueError, KeyError):
        expected = {int: "a whole number", float: "a number", _truth: "True or False"}.get(read, "a text")
        raise UsageError(f"{name}={text!r}; expected {expected}.", option=name) from None


def _read_file(url: str) -> dict[str, Any]:
    """Return the options of a YAML file, with or without its sections."""
    mistakes = Mistakes(url)
    node = read_yaml(url, mistakes)
    found: dict[str, Any] = {}
    if isinstance(node, Pairs):
        _read_pairs(node, found, mistakes)
    elif not (isinstance(node, Scalar) and node.is_nothing):
        mistakes.add(node.place, f"expected options, in the sections {', '.join(SECTIONS)}")
    mistakes.check()
    return found


def _read_pairs(pairs: Pairs, found: dict[str, Any], mistakes: Mistakes) -> None:
    for name, node in pairs.values.items():
        if name in SECTIONS and isinstance(node, Pairs):
            _read_pairs(node, found, mistakes)
            continue
        try:
            found[name] = _node_value(name, _reader(name), node)
        except UsageError as error:
            mistakes.add(pairs.keys[name], str(error))


def _node_value(name: str, read: Callable[[str], Any], node: Node) -> Any:
    if not isinstance(node, Scalar):
        raise UsageError(f"{name}: expected one value.")
    return None if node.is_nothing else _value(name, read, node.text)


def _check_possible(given: Given) -> None:
    """Refuse what would give other rows than were asked for."""
    if given.get("shuffle"):
        raise UsageError(
            "shuffle: rows are written in the order of documents; expected documents that are shuffled before. Shuffle them: dolma-dask mix."
        )
    for name in ("input_ids_dtype", "input_mask_dtype"):
        asked = given.get(name, "int32")
        if asked != "int32" and given.get("compat") != MODELZOO:
            raise UsageError(f"{name}={asked!r}; expected int32, in which all rows are written.")


def _tokenizer(given: Given) -> str:
    """Return the tokenizer as a path or as its JSON text."""
    kind = given.get("tokenizer_type")
    if kind not in TOKENIZERS:
        raise UsageError(f"tokenizer_type={kind!r}; expected one of {', '.join(TOKENIZERS)}.")
    if kind == "GPT2Tokenizer":
        return load_gpt2(
            _needed(given, "vocab_file", kind), _needed(given, "encoder_file", kind)
        ).source.read()
    if kind == "NeoXTokenizer":
        return str(_needed(given, "encoder_file", kind))
    name = _needed(given, "huggingface_tokenizer", kind)
    if not Path(name).expanduser().exists():
        raise UsageError(
            f"huggingface_tokenizer={name!r} is no file or folder here, and nothing is downloaded; expected the folder with tokenizer.json and "
            "tokenizer_config.json. Fetch both once, for example with huggingface-cli download NAME --local-dir FOLDER."
        )
    return str(name)


def _needed(given: Given, name: str, kind: str) -> str:
    value = given.get(name)
    if value is None:
        raise UsageError(f"{name} is missing; a {kind} is made from it.")
    return str(value)


def _same_options(given: Given) -> dict[str, Any]:
    """Return the options that `hdf5` takes; None is only passed on where it means something."""
    renamed = {_RENAMED.get(name, name): value for name, value in given.values.items()}
    found = {name: value for name, value in renamed.items() if name in _SAME and value is not None}
    if "ftfy_normalizer" in renamed:
        found["ftfy_normalizer"] = renamed["ftfy_normalizer"]
    if found.get("workers") == 0:  # all processors
        del found["workers"]
    if given.get("compat") == MODELZOO and given.get("tokenizer_type") == "GPT2Tokenizer":
        found.pop("pad_id", None)  # forced to be the end of a document there
    return found


def _notes(given: Given) -> list[str]:
    return [
        f"{name} has no effect: {why}" for name, why in _WITHOUT_EFFECT.items() if given.get(name) is not None
    ]
