"""Refusals: what a run will not write over, replace or remove, with what people can do instead.

Files that no run of the verb has made, files behind links, and what was made of other inputs or with other options stay, unless they are to be overwritten.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

import msgspec

from dolma_dask.display import counted, listed
from dolma_dask.engine.plan import Plan, outlines
from dolma_dask.engine.resume import RunState, Surplus, last_run, origin_of
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import Input
from dolma_dask.journal import Journal, Record, canonical
from dolma_dask.options.groups import check_outside, datasets_above
from dolma_dask.ownership import Ownership


def check_place(plan: Plan) -> None:
    """Refuse a root among the documents or attributes of a dataset, which would take its folders for shards and attribute sets of its own.

    Raises `UsageError`: it lies there.
    """
    check_outside(plan.root, *datasets_above(plan.root))


def check_replaceable(plan: Plan, state: RunState) -> None:
    """Refuse to write over files that no run of this verb announced, or that were made from another input or, as a whole, with other options.

    Raises `UsageError`: there are such files.
    """
    units = {unit.name for task in outlines(state.left) for unit in task.units}
    if units:
        units |= (plan.all_units or set()) | plan.beside
    there = [path for path in state.existing if units & {path, layout.unit_of(path)}]
    foreign = [path for path in there if not state.journal.may_write(path)]
    foreign += Ownership(state.journal).of_others(there, plan.writes)
    if foreign:
        raise UsageError(
            f"{counted(len(foreign), 'output file')} not made by this command, first {foreign[0]} in {plan.root}; expected a "
            "free place. Choose another name or target, or replace them with --overwrite."
        )
    known = state.journal.records
    left = [unit for task in outlines(state.left) for unit in task.units if unit.name in known]
    check_origin(plan, state.journal, [unit.name for unit in left])
    held = [unit for unit in left if any(file.path in state.existing for file in known[unit.name].files)]
    check_options(plan, state.journal, [unit.name for unit in held if known[unit.name].key != unit.key])


def check_links(plan: Plan, state: RunState, found: Surplus, overwrite: bool) -> None:
    """Refuse to replace or remove files outside of the root, behind links.

    Raises `UsageError`: a link leads there; with `overwrite` only if bad records would be replaced.
    """
    quarantine = f"{layout.QUARANTINE}/{plan.verb}"
    written = {posixpath.join(quarantine, posixpath.dirname(task.shard)) for task in outlines(state.left)}
    for folder in sorted(written | {posixpath.dirname(path) for path in found.left_over}):
        files.check_links(plan.root, folder)
    if not overwrite:
        units = {unit.name for task in outlines(state.left) for unit in task.units}
        replaced = [path for path in state.existing if units & {path, layout.unit_of(path)}]
        for folder in sorted({posixpath.dirname(path) for path in (*replaced, *found.orphans)}):
            files.check_links(plan.root, folder, " --overwrite replaces them there.")


def check_origin(plan: Plan, journal: Journal, replaced: Sequence[str]) -> None:
    """Refuse to replace units that were made from another root.

    Raises `UsageError`: they were.
    """
    runs = [run for run in journal.runs if run.origin and set(run.writes) & set(plan.writes)]
    if replaced and runs and runs[-1].origin != origin_of(plan.root, plan.origin):
        raise UsageError(
            f"{plan.root} was made from {runs[-1].origin}; this run would replace {len(replaced)} of its files, first {replaced[0]}, by those "
            f"made from {origin_of(plan.root, plan.origin)}. Choose another target, or replace them with --overwrite."
        )


def check_inputs(
    root: str, made: Record | None, origin: str, inputs: Sequence[Input], is_narrowed: bool
) -> None:
    """Refuse to replace what a dataset-wide record tells of, if it was made from files that are not read now.

    Raises `UsageError`: options leave shards out (`is_narrowed`), or some of the files are still there, below `origin`.
    """
    read = {item.url for item in inputs}
    documents = [item.path for item in made.inputs if not _is_attribute(item.path)] if made else []
    lost = [url for url in sorted(_url_of(origin, path) for path in documents) if url not in read]
    if lost and (is_narrowed or any(files.stat(url) for url in lost)):
        raise UsageError(
            f"{root} holds what was made from {counted(len(lost), 'file')} that this run does not read, first {lost[0]}; expected all of them, since "
            "its files are made from all shards together. Leave --only, --share and --prune out, choose another target, or make all of it anew with "
            "--overwrite."
        )


def _is_attribute(path: str) -> bool:
    """Tell whether an input is an attribute file, by its path, which may begin with the root of its dataset."""
    folders = path.split("/")
    return layout.ATTRIBUTES in folders and layout.DOCUMENTS not in folders


def check_options(plan: Plan, journal: Journal, replaced: Sequence[str]) -> None:
    """Refuse to replace units of a run that ended whole, and had other options; attributes, which have no origin, are made again.

    Raises `UsageError`: there are such units.
    """
    last = last_run(plan, journal)
    if not (replaced and plan.origin and last) or last.is_open:
        return
    before, now = (
        {name: value for name, value in params.items() if name not in (*_PLACES, *_RESULTS)}
        for params in (last.params, plan.params)
    )
    if shown := differing(before, now):
        raise UsageError(
            f"{plan.root} holds {counted(len(replaced), 'file')} of a finished {journal.verb} with other options: {'; '.join(shown)}; first "
            f"{replaced[0]}. Expected the same options or a free place. Choose another target or name, or replace them with --overwrite.",
            root=plan.root,
        )


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Name the options that differ, each with both values in brief; of objects those of their members that do."""
    before, now = (dict(_flat(params)) for params in (before, now))
    values = [{name: canonical({"": value}) for name, value in params.items()} for params in (before, now)]
    return [
        "{} {}, now {}".format(name, *_brief(before.get(name), now.get(name)))
        for name in sorted(values[0] | values[1])
        if values[0].get(name) != values[1].get(name)
    ]


def _flat(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the options, the members of objects, and of texts that are such, by a dotted name."""
    for name, value in params.items():
        members = value
        if isinstance(value, str) and value.startswith("{"):
            with suppress(msgspec.DecodeError):
                members = msgspec.json.decode(value)
        if isinstance(members, Mapping) and members:
            yield from ((f"{name}.{own}", one) for own, one in members.items())
        else:
            yield name, value


_PLACES = ("from", "inputs")
"""Parameters that say where the input is: `check_origin` compares it."""

_RESULTS = ("downsampled", "function_version", "distrusts")
"""Parameters that were not requested, but follow from others, the input, the source of a function (one that was edited does its work again), or a fast engine that gave
other ids.
"""


def _brief(*values: object) -> list[str]:
    """Return values that differ as texts, of long ones the part in which they do."""
    texts = ["not given" if value is None else repr(value) for value in values]
    alike = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))))
    first = max(alike - _SHOWN // 3, 0) if max(map(len, texts)) > _SHOWN else 0
    before = "..." if first else ""
    return [
        before + (text[first:] if len(text) <= first + _SHOWN else f"{text[first : first + _SHOWN]}...")
        for text in texts
    ]


_SHOWN = 60
"""Characters of an option that a message shows."""


def check_orphans(plan: Plan, state: RunState, found: Surplus, overwrite: bool) -> None:
    """Refuse to leave files in place that belong to no unit; with `overwrite` only those that no run of this verb has made, or a run with other folders.

    Raises `UsageError`: there are such files.
    """
    _check_neighbours(plan, state, found.of_others)
    present = found.orphans
    made = state.journal.by_file() if present else {}
    if foreign := [path for path in present if path not in made]:
        stopped = any(not run.finished and foreign[0].startswith(run.writes) for run in state.journal.runs)
        origin = "may be what a stopped run has left, or yours" if stopped else f"no {plan.verb} has made"
        raise UsageError(
            f"{plan.root} holds {counted(len(foreign), 'file')} that {origin}, first {foreign[0]!r}; expected only its own "
            "outputs, since later stages read all of them. Choose another name or target, or move them away."
        )
    if plan.replaces_own:
        check_origin(plan, state.journal, present)
        check_options(plan, state.journal, present)
    elif present and not overwrite:
        gone = _gone_input(plan, state, made[present[0]])
        other = " (in another format)" if layout.unit_of(present[0]) in plan.other_formats else ""
        other = f", made from {gone}, which is not there any more" if gone else other
        advice = (
            "Remove them with --overwrite, or put back what they were made from."
            if gone
            else f"{plan.how_to_add}Choose another name or target, or remove them with --overwrite."
        )
        raise UsageError(
            f"{plan.root} holds {counted(len(present), 'file')} that this run does not make, first {present[0]!r}{other}; expected only its own "
            f"outputs, since later stages read all of them. {advice}"
        )


def _gone_input(plan: Plan, state: RunState, record: Record) -> str:
    """Return the first of the files that an output was made from, if none of them is there any more; nothing if some are, or that cannot be told."""
    last, origin = last_run(plan, state.journal), plan.origin or plan.root
    if files.is_web(origin) or last is None or last.origin != origin_of(plan.root, plan.origin):
        return ""
    urls = [_url_of(origin, item.path) for item in record.inputs if not _is_attribute(item.path)]
    return "" if any(files.stat(url) for url in urls) else next(iter(urls), "")


def _url_of(origin: str, path: str) -> str:
    """Return where an input of a record is; a run over several datasets knows paths with their roots."""
    return path if path.startswith("/") or "://" in path else files.join(origin, path)


def _check_neighbours(plan: Plan, state: RunState, of_others: Sequence[str]) -> None:
    """Refuse to begin around files of runs that announced other folders; what this one has made there before may be gone on with.

    Raises `UsageError`: there are such files, and none of its own.
    """
    if not of_others:
        return
    owned, made = Ownership(state.journal), state.journal.by_file()
    units = {unit.name for task in outlines(plan.tasks) for unit in task.units}
    own = [path for path in state.existing if path in made or layout.unit_of(path) in units]
    if len(owned.of_others(own, plan.writes)) < len(own):
        return
    folders = sorted({owned.prefix_of(path) for path in of_others})
    raise UsageError(
        f"{plan.root} holds {counted(len(of_others), 'file')} of another {plan.verb}, in {listed(folders)}, first {of_others[0]!r}; expected only its "
        f"own outputs, since later stages read all of them. {plan.how_to_add}Choose another name or target, or move these away, which --overwrite never does."
    )
