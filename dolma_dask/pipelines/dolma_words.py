"""Words of the Dolma toolkit's commands -> the commands here that do the same: ``dolma tag --documents ...``, ``tokens``, ``dedupe``.

They are said, not run: a set of documents is a dataset here, and some things are done otherwise, which a person wants to know first. Options may
stand in a file as well (``-c FILE tag``); those of the command line come before them, as there. `dolma_dask.pipelines.dolma_mix` runs files of ``mix``.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from dolma_dask.formats import layout
from dolma_dask.io import files

Options = Mapping[str, Sequence[str]]
"""Values of each option by its full name, such as ``dedupe.documents.key``."""

Value = TypeVar("Value")

_YES, _NO = ["true"], ["false"]


class ToolkitCommand(Struct, frozen=True):
    """A command of the toolkit."""

    verb: str  # that does the same here
    takes: Mapping[str, Callable[[Options], list[str]]]  # option -> words here
    # option or the beginning of several -> why it has no counterpart
    left_out: Mapping[str, str] = {}
    # beginning of options -> what they ask for that does not exist here, and what the command does that is said instead
    missing: Mapping[str, tuple[str, str]] = {}
    remark: str = ""
    is_same: bool = True  # its result is that of the command here, if nothing is missing
    inputs: str = "documents"  # option with the files that are read
    selects: str = "only"  # option for a part of the dataset; empty: there is none
    adds: tuple[str, ...] = ()  # an option here and its value, without which the files are others

    def knows(self, name: str) -> bool:
        """Tell whether the toolkit has an option of this name."""
        return name in self.takes or name == self.inputs or bool(self.reason(name))

    def reason(self, name: str) -> str:
        """Return why an option has no counterpart; empty if nothing is known of it."""
        missing = _begun(self.missing, name)
        return f"{missing[0]}: not here yet" if missing else _begun(self.left_out, name) or ""


def answer(words: Sequence[str], file: str | None = None) -> str | None:
    """Say what to call instead, if these are words of the toolkit; `file` is a configuration for the verb that comes first."""
    if not words or words[0] not in COMMANDS:
        return None
    verb, command, given = words[0], COMMANDS[words[0]], _read_words(words[1:])
    if file is not None:
        given = {**_read_file(file), **given}
    places = given.pop("", [])
    if verb == command.verb and file is None and not {*filter(command.knows, given)} - _OURS_TOO:
        return None
    if not command.takes:
        return command.remark
    ours = {name: words for name, words in _own_words(command, words[1:]).items() if name in given}
    lines = [_heading(verb, command, given), *_commands(command, given, places, ours.values())]
    reasons: dict[str, list[str]] = {}
    for name in given:
        if name not in command.takes and name != command.inputs and name not in ours:
            reasons.setdefault(command.reason(name) or "not known here", []).append(name)
    lines += [f"Left out: {', '.join(names)} ({why})." for why, names in reasons.items()]
    return "\n".join([*lines, *([command.remark] if command.remark else [])])


def _heading(verb: str, command: ToolkitCommand, given: Options) -> str:
    words = f"these are words of the Dolma toolkit's {verb}"
    for name in given:
        if found := _begun(command.missing, name):
            return f"{words} for {found[0]}, which nothing here does yet. What is there {found[1]}:"
    return f"{words}. {'The same here' if command.is_same else 'What comes closest here'}:"


def _begun(known: Mapping[str, Value], name: str) -> Value | None:
    """Return what is known of an option, or of the group that it belongs to."""
    return next((value for start, value in known.items() if f"{name}.".startswith(f"{start}.")), None)


def _own_words(command: ToolkitCommand, words: Sequence[str]) -> dict[str, list[str]]:
    """Return the options of our own command among words, which stay as they are, by name."""
    from dolma_dask.pipelines.signatures import spellings
    from dolma_dask.registry import VERBS

    known = {*spellings(VERBS[command.verb].load()).values()}
    found: dict[str, list[str]] = {}
    here: list[str] = []
    for word in words:
        if word.startswith("-"):
            option = word.partition("=")[0]
            name = option.lstrip("-").replace("-", "_")
            is_ours = {option, option.replace("--no-", "--", 1)} & known and not command.knows(name)
            here = found.setdefault(name.removeprefix("no_"), []) if is_ours else []
        here.append(word)
    return found


def _read_words(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each option; those before the first stand under an empty name."""
    given: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("-"):
            name, has_value, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            given[name] = [value] if has_value else []
        else:
            given.setdefault(name, []).append(word)
    given = {name: values for name, values in given.items() if name not in ("help", "h")}
    return {
        name.removeprefix("no_") if not values else name: values or (_NO if name.startswith("no_") else _YES)
        for name, values in given.items()
    }


def _read_file(url: str) -> dict[str, list[str]]:
    """Return the options of a configuration file; raise `UsageError` if it cannot be read."""
    from dolma_dask.io.yaml_files import Mistakes, natural, read_yaml
    from dolma_dask.pipelines.dolma_config import CONFIGURATION, ToolkitReferences

    mistakes = Mistakes(url)
    node = read_yaml(url, mistakes, CONFIGURATION)
    given: dict[str, list[str]] = {}
    content = natural(ToolkitReferences(node, mistakes).resolve(node))
    mistakes.check()
    _flatten(content, "", given)
    return given


def _flatten(value: object, name: str, given: dict[str, list[str]]) -> None:
    if isinstance(value, Mapping):
        for key, inside in value.items():
            _flatten(inside, f"{name}.{key}" if name else str(key), given)
    elif value is not None and name:
        values = value if isinstance(value, list) else [value]
        given[name] = [str(item).lower() if isinstance(item, bool) else str(item) for item in values]


# ------------------------------------------------------------------------------------------------ datasets

_EVERYTHING = re.compile(r"(\*\*/)?(\*\*|\*)(\.[\w.]+)?|")
_MAGIC = re.compile(r"[*?\[{]")
_EACH, _QUOTED = "EACH_DATASET", '"$each"'


def _commands(
    command: ToolkitCommand, given: Options, places: Sequence[str], ours: Iterable[Sequence[str]]
) -> list[str]:
    """Return a command for each dataset; `places` are words before all options, `ours` options that stay as they are."""
    if "destination" in command.takes and "destination" not in given:
        given = {**given, "destination": places[1:2]}
    options = [word for read in command.takes.values() for word in read(given)]
    own = [word for words in ours for word in words]
    options += [*own, *(() if {*command.adds} & {*own} else command.adds)]
    lines = []
    is_place = places and command.inputs not in given
    found = {places[0]: [""]} if is_place else _datasets(given.get(command.inputs, ()), command)
    for root, parts in found.items():
        chosen = [f"--{command.selects}", *parts] if command.selects and all(parts) else []
        each = root if _MAGIC.search(root) and files.is_local(root) else ""
        line = shlex.join(["dolma-dask", command.verb, _EACH if each else root, *options, *chosen])
        lines.append(f"for each in {each}; do {line.replace(_EACH, _QUOTED)}; done" if each else line)
    return [f"  {line}" for line in lines]


def _datasets(patterns: Sequence[str], command: ToolkitCommand) -> dict[str, list[str]]:
    """Return the roots of the datasets in which files lie, and the part of each that is meant; empty for all of it."""
    folder = layout.ATTRIBUTES if command.inputs == "attributes" else layout.DOCUMENTS
    found: dict[str, list[str]] = {}
    for pattern in patterns:
        match = re.fullmatch(rf"(.*)/{folder}/*(?:/(.*))?", f"/{pattern}")
        root, part = match.groups(default="") if match else ("/DATASET", "")
        parts = found.setdefault(root[1:] or ".", [])
        part = part.partition("/")[0] if command.inputs == "attributes" else part
        part = "" if _EVERYTHING.fullmatch(part) else part
        parts += [part] if part not in parts else []
    return found or {"DATASET": [""]}


# ------------------------------------------------------------------------------------------------ options


def _option(name: str, to: str, of: Callable[[str], str] = str) -> Callable[[Options], list[str]]:
    return lambda given: [f"--{to}", *map(of, given[name])] if name in given else []


def _flag(name: str, *words: str) -> Callable[[Options], list[str]]:
    return lambda given: list(words) if given.get(name) == _YES else []


def _set_name(given: Options) -> list[str]:
    """Return the attribute set of flags, and their key where it has another name."""
    keys = given.get("dedupe.documents.attribute_name") or ()
    names = given.get("dedupe.name") or keys
    key = ["--key", keys[0]] if keys and keys[0] != names[0] else []
    return ["--name", names[0], *key] if names else []


def _token(which: str) -> Callable[[Options], list[str]]:
    """Return the option for a token that the toolkit names by its id."""

    def read(given: Options) -> list[str]:
        ids = given.get(f"tokenizer.{which}_token_id")
        if not ids:
            return []
        names = given.get("tokenizer.name_or_path", given.get("tokenizer_name_or_path", ("",)))
        return [f"--{which}", _token_text(names[0], ids[0]) or f"<text of token {ids[0]}>"]

    return read


def _token_text(tokenizer: str, number: str) -> str | None:
    """Return the text of a token, if the tokenizer is a file here."""
    if not files.is_local(tokenizer) or not files.local_path(tokenizer).is_file():
        return None
    try:
        content = msgspec.json.decode(files.local_path(tokenizer).read_bytes())
        added = {str(item["id"]): item["content"] for item in content.get("added_tokens") or ()}
        vocabulary = content["model"]["vocab"]
        pairs_of = (
            vocabulary.items()
            if isinstance(vocabulary, dict)
            else ((item[0], k) for k, item in enumerate(vocabulary))
        )
        return {**{str(place): text for text, place in pairs_of}, **added}.get(number)
    except (OSError, msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return None


def _positional(name: str, otherwise: str) -> Callable[[Options], list[str]]:
    return lambda given: list(given.get(name, ()))[:1] or [otherwise]


_RUN = {"processes": _option("processes", "workers"), "dryrun": _flag("dryrun", "--dry-run")}
_DEBUG = {"debug": _flag("debug", "--scheduler", "synchronous")}
_WORK = {
    "work_dir": "what a run needs to go on lies beside what it writes",
    "compression.input": "files are read by their names",
}
_FORMATS = {"gz": "jsonl.gz", "zst": "jsonl.zst", "": "jsonl"}
_OURS_TOO = {"taggers", "experiment", "tagger_modules"}
"""Options that verbs here have under the same name: by themselves they are no words of the toolkit."""

_WARC = """WARC files are not read here. What the toolkit's warc writes, documents in a folder `documents`, is a dataset here; other texts become one with
  dolma-dask convert FOLDER --to DATASET"""

COMMANDS: Mapping[str, ToolkitCommand] = {
    "tokens": ToolkitCommand(
        "ragged",
        {
            "destination": _positional("destination", "OUT"),
            "tokenizer.name_or_path": _option("tokenizer.name_or_path", "tokenizer"),
            "tokenizer_name_or_path": _option("tokenizer_name_or_path", "tokenizer"),
            "tokenizer.bos_token_id": _token("bos"),
            "tokenizer.eos_token_id": _token("eos"),
            **_RUN,
            **_DEBUG,
        },
        {
            "tokenizer.pad_token_id": "documents are not padded",
            "tokenizer": "the tokenizer is a complete tokenizer.json, used as it is",
            "dtype": "uint16, or uint32 if the vocabulary has more than 65,536 ids",
            **dict.fromkeys(
                ("max_size", "files_per_process"), "a shard becomes one file; cut them before: mix --max-size"
            ),
            **dict.fromkeys(
                ("seed", "batch_size", "ring_size", "sample_ring_prop"),
                "documents stay in their order; shuffle them before: mix --shuffle --seed N",
            ),
            "fields": "documents have their text in `text`: dolma-dask convert ... --text NAME",
            **_WORK,
        },
        adds=("--format", "dolma"),
        remark="Files are NumPy arrays of ids and of tokens per document, with a .json beside them, not memory maps with a csv. The tokenizer is a path here.",
        is_same=False,
    ),
    "stat": ToolkitCommand(
        "quantiles",
        {**_RUN, **_DEBUG},
        {
            "report": "the page of a dataset: dolma-dask report DATASET --to FILE.html",
            **dict.fromkeys(("bins", "total", "regex", "seed"), "quantiles are exact"),
            **_WORK,
        },
        remark="Attribute sets are chosen with --attributes, their keys with --signals.",
        is_same=False,
        inputs="attributes",
        selects="attributes",
    ),
    "warc": ToolkitCommand("", {}, remark=_WARC),
}
