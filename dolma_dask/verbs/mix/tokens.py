"""Token files of a mix, beside its documents or instead of them: options in the words of the verbs `ragged` and `hdf5`.

Everything that can be wrong with them is found out before a document is read or written: a mix takes hours, a tokenizer a second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from os import PathLike, fspath
from typing import Any, TypeVar

import msgspec

from dolma_dask.dataset import Dataset
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.summary import Summary
from dolma_dask.verbs.hdf5.job import Documents, Hdf5Job
from dolma_dask.verbs.hdf5.verb import LmOptions, Target, make_job
from dolma_dask.verbs.hdf5.verb import hdf5 as make_rows
from dolma_dask.verbs.mix.transform import Mixture
from dolma_dask.verbs.options import ReadArgs, check_outside, dataset_notes
from dolma_dask.verbs.ragged import open_output
from dolma_dask.verbs.ragged import ragged as make_arrays

TokensLike = str | Mapping[str, Any] | None
"""Options of `ragged` or `hdf5`, ``to`` and ``tokenizer`` among them, also as JSON text."""

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class RaggedOptions:
    """Options of `ragged`; see there."""

    to: str
    tokenizer: str
    bos: str | None = None
    eos: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class TokenOptions:
    """Token files that a mix makes."""

    ragged: RaggedOptions | None = None
    hdf5: tuple[Target, LmOptions] | None = None

    def __bool__(self) -> bool:
        return self.ragged is not None or self.hdf5 is not None


def token_options(ragged: TokensLike, hdf5: TokensLike) -> TokenOptions:
    """Check the options of token files."""
    rows = _options("hdf5", hdf5, Target, LmOptions)
    arrays = _options("ragged", ragged, RaggedOptions)
    return TokenOptions(
        None if arrays is None else _make("ragged", arrays, RaggedOptions),
        None if rows is None else (_make("hdf5", rows, Target), _make("hdf5", rows, LmOptions)),
    )


def _options(verb: str, given: TokensLike, *kinds: type[Any]) -> dict[str, Any] | None:
    """Return the options of a verb by name, all of which are known."""
    if given is None:
        return None
    options = _decoded(verb, given)
    known = [item.name for kind in kinds for item in fields(kind)]
    for name in options:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            what_next = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}."
            raise UsageError(f"{verb} has no option {name!r} here; {what_next}", name=name)
    for name in ("to", "tokenizer"):
        if name not in options:
            raise UsageError(
                f'{verb} of a mix lacks {name!r}; expected {{"to": FOLDER, "tokenizer": FILE, ...}}.'
            )
    return {name: fspath(value) if isinstance(value, PathLike) else value for name, value in options.items()}


def _decoded(verb: str, given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except (msgspec.DecodeError, TypeError) as error:
        raise UsageError(
            f'cannot read {verb} {given!r}: {error}; expected its options in JSON: {{"to": FOLDER, "tokenizer": FILE, ...}}.'
        ) from None


def _make(verb: str, options: Mapping[str, Any], kind: type[Kind]) -> Kind:
    own = {item.name: options[item.name] for item in fields(kind) if item.name in options}  # type: ignore[arg-type]
    try:
        checked = msgspec.convert(own, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{verb} of a mix: {error}; see the options of dolma-dask {verb} --help.") from None
    # made anew, since msgspec leaves defaults to the class, and `vars` must know them
    return kind(**{name: getattr(checked, name) for name in own})


def job_of(
    rows: tuple[Target, LmOptions],
    found: Dataset,
    mixture: Mixture,
    params: Mapping[str, Any],
    shown: Mapping[str, Any],
    policy: RecordPolicy,
) -> Hdf5Job:
    """Return the call of `hdf5` that makes rows of the documents of a mix."""
    documents = Documents(found.root, mixture.sources, params, shown, dataset_notes(found))
    return make_job(documents, *rows, policy)


def check_tokens(tokens: TokenOptions, roots: Sequence[str]) -> None:
    """Refuse token files that cannot be made, or would lie among documents, before anything is written."""
    if tokens.ragged is not None:
        arrays = tokens.ragged
        check_outside(open_output(arrays.to, arrays.tokenizer, arrays.bos, arrays.eos).root, *roots)
    if tokens.hdf5 is not None:
        target, wanted = tokens.hdf5
        wanted.mode(open_tokenizer(target.tokenizer))
        check_outside(files.normalize(target.to), *roots)


def tokens_of_packed(
    target: str, tokens: TokenOptions, source: str | None, name: str, options: ReadArgs
) -> list[tuple[str, Summary]]:
    """Make token files of documents that were packed or shuffled: in the new order, so from the new files."""
    passed = options.copy()
    passed.pop("only", None)  # both select from the files that were mixed
    passed.pop("prune", None)
    made: list[tuple[str, Summary]] = []
    if tokens.ragged is not None:
        to, arrays = _apart({**vars(tokens.ragged), "name": tokens.ragged.name or name})
        made.append(("ragged", make_arrays(target, to, source=source, **arrays, **passed)))
    if tokens.hdf5 is not None:
        to, rows = _apart({**vars(tokens.hdf5[0]), **vars(tokens.hdf5[1])})
        made.append(("hdf5", make_rows(target, to, source=source, **rows, **passed)))
    return made


def _apart(options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return where to write, and the other options."""
    return options.pop("to"), options
