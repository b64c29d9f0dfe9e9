"""An exchange from its arguments to its result, going on where an earlier call was stopped."""

from collections.abc import Sequence
from dataclasses import replace

from dolma_dask import clusters
from dolma_dask.engine import RunOptions, Task
from dolma_dask.errors import StageError
from dolma_dask.exchange import folders, owners, p2p, through_files
from dolma_dask.exchange.contract import Emitter, Reducer
from dolma_dask.exchange.exchanged import Exchanged
from dolma_dask.exchange.phases import full_disk_explained
from dolma_dask.exchange.wanted import BUCKETS, RANGE_BYTES, SEGMENT_BYTES, Shuffle, Wanted
from dolma_dask.io import files

MENDINGS = 2
"""How often files found damaged are made again before it counts as a failure."""


def exchange(
    emitter: Emitter,
    tasks: Sequence[Task],
    reducer: Reducer,
    *,
    folder: str,
    key: str,
    shards: int,
    options: RunOptions,
    shuffle: Shuffle = "files",
    verb: str = "exchange",
    range_bytes: int = RANGE_BYTES,
    segment_bytes: int = SEGMENT_BYTES,
    buckets: int = BUCKETS,
) -> Exchanged:
    """Regroup fixed-width records of all tasks by key, reduce them range by range, and regroup what comes out by shard.

    Parameters
    ----------
    emitter : Emitter
        Makes the records of a task.
    tasks : sequence of Task
        What is read: a shard or a group of small ones each, with different names. Their units are not looked at.
    reducer : Reducer
        Gets the sorted records of each range of keys once.
    folder : str
        Where files lie meanwhile: ``<dataset root>/_exchange/<verb>-<name>/<key>``. Exchanges of the same verb and name under another
        key are removed.
    key : str
        Digest of all that decides the result besides the bytes of the inputs.
    shards : int
        Number of shards; the places that the reducer gives out lie in them.
    options : RunOptions
        How to run; `overwrite` begins anew, `dry_run` is refused.
    shuffle : {"files", "p2p"}
        Through files below `folder`: restartable, in bounded memory. Or through Dask's own shuffle between the workers of a distributed
        cluster (`dolma_dask.exchange.p2p`), for clusters whose shared storage is slow. The records of each shard are the same.
    verb : str
        For progress and messages.
    range_bytes : int
        Records that a task sorts in memory; it needs about twice as much. Larger ranges go through disk.
    segment_bytes : int
        Records that a task collects before it writes them; it needs about three times as much.
    buckets : int
        The least that can be a range is one of so many equal parts of the values of the first word; a power of two.

    Returns
    -------
    Exchanged
        What the reducer told and gave out; `Exchanged.remove` deletes the files. A caller that needs them for longer than this call
        owns the folder meanwhile (`dolma_dask.exchange.owners.owned`).

    Raises
    ------
    StageError
        Some tasks failed; the others are finished, and the same call goes on from there.
    InterruptedStageError
        Ctrl-C.
    UsageError
        Records of a wrong type, tasks with the same name, ``shuffle="p2p"`` without a distributed cluster; or another run works in the
        folder, which belongs to this one until the exchange is removed, or has failed.
    """
    wanted = Wanted(
        emitter=emitter,
        tasks=tasks,
        reducer=reducer,
        folder=files.normalize(folder),
        key=key,
        shards=shards,
        options=replace(options, overwrite=False),
        shuffle=shuffle,
        verb=verb,
        range_bytes=range_bytes,
        segment_bytes=segment_bytes,
        buckets=buckets,
    )
    wanted.check()
    with full_disk_explained(wanted.folder), owners.owned(folders.parent_of(wanted.folder), verb):
        folders.remove_others(wanted.folder)
        if options.overwrite:
            folders.remove_tree(wanted.folder)
        with clusters.shared_cluster():
            return _mended(wanted)


def _mended(wanted: Wanted) -> Exchanged:
    """Run all passes; once more if files of an earlier pass were found damaged, and so removed."""
    run = p2p.run if wanted.shuffle == "p2p" else through_files.run
    for _ in range(MENDINGS):
        try:
            return run(wanted)
        except StageError as error:
            if not _is_damage(wanted, error):
                raise
    return run(wanted)


def _is_damage(wanted: Wanted, error: StageError) -> bool:
    """Tell whether all that failed was the reading of files of the exchange."""
    return all(
        failure.error == "CorruptFileError" and failure.message.startswith(wanted.folder)
        for failure in error.failures
    )
