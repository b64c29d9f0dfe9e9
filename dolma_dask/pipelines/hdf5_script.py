"""Options of ModelZoo's create_hdf5_dataset.py by mode: those of its own that `hdf5` has under no name, and all that a mode takes here, as its help shows."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from dolma_dask.options.base import Field, Opt, Options, field_of, fields_of
from dolma_dask.outputs.hdf5.modes import MODES
from dolma_dask.outputs.hdf5.modes.common import DocumentOptions, ModeOptions
from dolma_dask.outputs.hdf5.options import RowOptions
from dolma_dask.pipelines.signatures import annotated, in_words, notes
from dolma_dask.verbs.hdf5.verb import Hdf5Options, hdf5

TOKENIZERS = ("GPT2Tokenizer", "NeoXTokenizer", "HuggingFaceTokenizer")

SETUP, TOKENIZER, IDLE = "Setup", "Tokenizer", "Without effect here"
"""Groups of the help that are of the script alone."""


@dataclass(frozen=True, kw_only=True)
class IdleOptions(Options):
    """Options of the script that change nothing here; the help of each says why."""

    group = IDLE

    output_name: Annotated[str | None, Opt("files are called part-<n>-<i>.h5")] = None
    write_in_batch: Annotated[bool | None, Opt("rows are written in blocks, each compressed by itself")] = (
        None
    )
    resume_from_checkpoint: Annotated[
        bool | None, Opt("the same command always goes on where it was stopped")
    ] = None
    auth_token: Annotated[str | None, Opt("take the variable HF_TOKEN, or hf auth login")] = None
    dataset_processor: Annotated[str | None, Opt("the mode says how texts are processed")] = None
    max_chunk_size: Annotated[
        int | None, Opt("documents are read in blocks of 4 MiB, and rows do not depend on them")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ScriptOptions(IdleOptions):
    """Options of the script that `hdf5` does not have, or has under another name."""

    group = SETUP

    input_dir: Annotated[
        str | None,
        Opt("Folder of the raw files: .jsonl, .json.gz, .jsonl.zst, .jsonl.zst.tar, .parquet, .txt."),
    ] = None
    metadata_files: Annotated[
        Sequence[str] | None,
        Opt(
            "Files with a path of a raw file in each line, with commas between; in place of the folder, and before it."
        ),
    ] = None
    output_dir: Annotated[str, Opt("Folder of the .h5 files and of data_params.json.")] = "./data_dir/"
    processes: Annotated[
        int | None, Opt("Processes or threads, which do not change the rows; by default one per processor.")
    ] = None
    display_pbar: Annotated[bool | None, Opt("Show a progress bar; by default yes.")] = None
    files_per_record: Annotated[int | None, Opt("Rows of a file at most; by default 50000.")] = None
    write_remainder: Annotated[
        bool | None,
        Opt("Packed tokens that fill no row at the end: one more row with padding, or with False none."),
    ] = None
    input_ids_dtype: Annotated[str | None, Opt("int32, as all rows are written.")] = None
    input_mask_dtype: Annotated[str | None, Opt("The same.")] = None
    position_ids_dtype: Annotated[str | None, Opt("The same.")] = None
    seq_lengths_dtype: Annotated[str | None, Opt("The same.")] = None
    tokenizer_type: Annotated[
        str | None, Opt(f"Needed: one of {', '.join(TOKENIZERS)}.", group=TOKENIZER)
    ] = None
    encoder_file: Annotated[
        str | None,
        Opt("Of NeoXTokenizer: tokenizer.json. Of GPT2Tokenizer: tokens with their ids.", group=TOKENIZER),
    ] = None
    vocab_file: Annotated[str | None, Opt("Of GPT2Tokenizer: the merges.", group=TOKENIZER)] = None
    huggingface_tokenizer: Annotated[
        str | None, Opt("Of HuggingFaceTokenizer: a model on the hub, or a folder.", group=TOKENIZER)
    ] = None


@dataclass(frozen=True, kw_only=True)
class TextKey(Options):
    """The option of modes whose records are texts."""

    jsonl_key: Annotated[str, Opt("Field or column of the text.")] = "text"


WITHOUT_EFFECT = {field.name: field.option.help for field in fields_of(IdleOptions)}
"""Options that are taken and do nothing here, and why."""

HIDDEN = ("tokenizer", "where", "attributes", "source", "version", "ids_as_text", "skip", "mode")
"""Options of `hdf5` that raw files do not have, or that the script has otherwise."""

SAME = {field.name: field for field in fields_of(Hdf5Options) if field.name not in HIDDEN}
"""Options that `hdf5` takes under the same name."""

_PARAMS = field_of(  # by itself, since records of options have a method of that name
    "params",
    Annotated[
        str | None, Opt("Options in YAML, with or without the sections setup, processing and dataset.")
    ],
    None,
    SETUP,
)
_OWN = {"params": _PARAMS} | {
    field.name: field for kind in (ScriptOptions, TextKey) for field in fields_of(kind)
}

OPTIONS: Mapping[str, Any] = {
    name: in_words(field.hint, maps=True) for name, field in {**_OWN, **SAME}.items()
} | {"respose_delimiter": str}
"""Every option, and the type of its value; one is misspelled in the script."""

RENAMED = {
    "files_per_record": "max_rows_per_file",
    "processes": "workers",
    "display_pbar": "progress",
    "respose_delimiter": "response_delimiter",
}
"""Options that `hdf5` has under another name."""


def modes_with(name: str) -> tuple[str, ...]:
    """Return the modes for which an option means something."""
    name = RENAMED.get(name, name)
    if name == "jsonl_key":
        return tuple(mode for mode, kind in MODES.items() if issubclass(kind, DocumentOptions))
    name = "tail" if name == "write_remainder" else name
    if name not in _names(RowOptions):
        return tuple(MODES)
    return tuple(mode for mode, kind in MODES.items() if name in _names(kind))


def _names(kind: type[Options]) -> set[str]:
    return {field.name for field in fields_of(kind)}


def fields_in(mode: str) -> list[Field]:
    """Return the options of a mode in the order of the help, each once."""
    every = {**_OWN, **{name: field for name, field in SAME.items() if mode in modes_with(name)}}
    twice = [name for name in RENAMED.values() if name != "response_delimiter"]
    shown = [
        field
        for name, field in every.items()
        if name not in twice and (mode in modes_with(name) or name in WITHOUT_EFFECT)
    ]
    own = _names(MODES[mode]) - _names(ModeOptions) | {"jsonl_key"}
    return [
        field.grouped(f"Mode {mode}") if field.name in own and field.option.group != IDLE else field
        for field in shown
    ]


EXAMPLES = {
    "LMData": "--input_dir raw --tokenizer_type NeoXTokenizer --encoder_file neox.json",
    "LMData_VSL": "--input_dir raw --tokenizer_type NeoXTokenizer --encoder_file neox.json --max_seq_length 8192",
    "FIM": "--input_dir code --tokenizer_type HuggingFaceTokenizer --huggingface_tokenizer bigcode/starcoderbase --fim_prefix_tok <fim_prefix> "
    "--fim_middle_tok <fim_middle> --fim_suffix_tok <fim_suffix>",
    "Summarization": "--input_dir pairs --tokenizer_type NeoXTokenizer --encoder_file neox.json --prompt_key prompt --completion_key completion",
    "Summarization_VSL": "--input_dir chats --tokenizer_type NeoXTokenizer --encoder_file neox.json --multi_turn_key messages "
    "--multi_turn_content_key content",
    "DPO": "--input_dir answers --tokenizer_type NeoXTokenizer --encoder_file neox.json --prompt_key prompt --chosen_key chosen --rejected_key rejected",
}
"""A call of each mode."""

_EPILOGUE = "Truth values need no word: --use_ftfy is --use_ftfy True. None stands for nothing. Options of the command line come before those of --params."


def show_help(mode: str) -> None:
    """Print the options of a mode, as create_hdf5_dataset.py names them."""
    from cyclopts import App

    def call(**options: Any) -> None: ...

    shown = fields_in(mode)
    names = {field.name: f"--{field.name}" for field in shown}
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=annotated(field, names, as_spelled=True),
            )
            for field in shown
        ]
    )
    app = App(
        name=f"dolma-dask hdf5 {mode}",
        usage=f"Usage: dolma-dask hdf5 {mode} [--params FILE] [OPTIONS]",
        help=f"{mode}: {MODES[mode].summary}\n\nExample: dolma-dask hdf5 {mode} {EXAMPLES[mode]} --output_dir out/h5",
        help_epilogue=f"{_EPILOGUE}\n\n{notes(hdf5)}",
        help_format="plaintext",
        help_flags=(),
        version_flags=(),
    )
    app.default(call)
    app.help_print([])
