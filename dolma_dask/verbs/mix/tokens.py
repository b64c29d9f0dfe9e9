"""Token files of a mix, beside its documents or instead of them: options in the words of the verbs `ragged` and `hdf5`.

Everything that can be wrong with them is checked before a document is read or written: a mix takes hours, a tokenizer a second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike, fspath
from typing import Any, TypeVar

import msgspec

from dolma_dask.dataset import Dataset
from dolma_dask.display import near_or_all
from dolma_dask.engine import Job, MapJob, run_job
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.journal import dataset_notes
from dolma_dask.options.shared import (
    ReadArgs,
    TokensLike,
    as_dataset,
    check_outside,
    from_json,
    record_policy,
    run_options,
)
from dolma_dask.outputs.hdf5.job import Documents
from dolma_dask.outputs.hdf5.options import LmOptions, Target, make_job
from dolma_dask.outputs.ragged import RaggedOutput, make_arrays, open_output
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.kept.transform import Mixture
from dolma_dask.reading.selection import select
from dolma_dask.results.summary import Summary
from dolma_dask.tokens.engine import TokenEngine

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class RaggedOptions:
    """Options of `ragged`; see there."""

    to: str
    tokenizer: str
    bos: str | None = None
    eos: str | None = None
    name: str | None = None

    def output(self) -> RaggedOutput:
        """Return the output of a mix."""
        return open_output(self.to, self.tokenizer, self.bos, self.eos)


@dataclass(frozen=True)
class TokenOptions:
    """Token files that a mix makes."""

    ragged: RaggedOptions | None = None
    hdf5: tuple[Target, LmOptions] | None = None

    def check(self, roots: Sequence[str]) -> None:
        """Refuse token files that cannot be made, or would lie among documents, before anything is written."""
        if self.ragged is not None:
            check_outside(self.ragged.output().root, *roots)
        if self.hdf5 is not None:
            target, options = self.hdf5
            options.mode(open_tokenizer(target.tokenizer))
            check_outside(files.normalize(target.to), *roots)

    def counted(self) -> tuple[TokenEngine, int]:
        """Return the tokenizer that counts the tokens of documents, that of `ragged` first, and how many are put around each."""
        if self.ragged is not None:
            output = self.ragged.output()
            return output.engine, sum(one is not None for one in (output.framing.bos, output.framing.eos))
        assert self.hdf5 is not None
        return open_tokenizer(self.hdf5[0].tokenizer), 0

    @property
    def root(self) -> str:
        """Where they are written, `ragged` first."""
        return files.normalize(self.ragged.to if self.ragged is not None else self.hdf5[0].to)  # type: ignore[index]

    def jobs(
        self,
        dataset: Dataset,
        mixture: Mixture,
        name: str,
        params: Mapping[str, Any],
        shown: Mapping[str, Any],
        policy: RecordPolicy,
    ) -> dict[str, Job[Summary]]:
        """Return the job of each kind of token files, from the documents of a mix."""
        jobs: dict[str, Job[Summary]] = {}
        if self.ragged is not None:
            output = self.ragged.output()
            plan = output.plan(mixture, dataset, self.ragged.name or name, params, shown, policy)
            jobs["ragged"] = MapJob(plan)
        if self.hdf5 is not None:
            is_narrowed = len(mixture.dataset.shards) < len(dataset.shards)
            notes = dataset_notes(dataset)
            documents = Documents(dataset.root, mixture.sources, params, shown, notes, is_narrowed)
            jobs["hdf5"] = make_job(documents, *self.hdf5, policy)
        return jobs

    def of_packed(
        self, target: str, source: str | None, name: str, options: ReadArgs
    ) -> list[tuple[str, Summary]]:
        """Make token files of documents that were packed or shuffled: in the new order, so from the new files."""
        passed = options.copy()
        for selecting in ("only", "share", "prune"):  # from the files that were mixed
            passed.pop(selecting, None)  # type: ignore[misc]
        made: list[tuple[str, Summary]] = []
        opened, shown, policy = as_dataset(target, source), {"source": source}, record_policy(passed)
        mixture = make_mixture(select(opened, None, ()))
        params = mixture.params()
        if self.ragged is not None:
            output = self.ragged.output()
            plan = output.plan(mixture, opened, self.ragged.name or name, params, shown, policy)
            # the files that it is made from were all made anew, perhaps of another number
            made.append(("ragged", make_arrays(replace(plan, replaces_own=True), mixture, passed)))
        if self.hdf5 is not None:
            notes = (*dataset_notes(opened), *mixture.notes)
            documents = Documents(opened.root, mixture.sources, params, shown, notes)
            made.append(("hdf5", run_job(make_job(documents, *self.hdf5, policy), run_options(passed))))
        return made


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
    form = '{"to": FOLDER, "tokenizer": FILE, ...}'
    options = from_json(verb, given, f"its options in JSON: {form}.")
    known = [item.name for kind in kinds for item in fields(kind)]
    for name in options:
        if name not in known:
            raise UsageError(f"{verb} has no option {name!r} here; {near_or_all(name, known)}", name=name)
    for name in ("to", "tokenizer"):
        if name not in options:
            raise UsageError(f"{verb} of a mix lacks {name!r}; expected {form}.")
    return {name: fspath(value) if isinstance(value, PathLike) else value for name, value in options.items()}


def _make(verb: str, options: Mapping[str, Any], kind: type[Kind]) -> Kind:
    own = {item.name: options[item.name] for item in fields(kind) if item.name in options}  # type: ignore[arg-type]
    try:
        checked = msgspec.convert(own, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{verb} of a mix: {error}; see the options of dolma-dask {verb} --help.") from None
    # made anew, since msgspec leaves defaults to the class, and `vars` must know them
    return kind(**{name: getattr(checked, name) for name in own})
