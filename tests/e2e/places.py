"""Where verbs run in the tests of laws, and how files change under them."""

import gzip
import os
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import dask

import dolma_dask as dk

PLACES = ("synchronous", "threads", "processes", "config", "cluster of 1", "cluster of 2", "active client")


@contextmanager
def running_at(place):
    """Yield the options with which a verb runs at `place`."""
    with ExitStack() as stack:
        if place.startswith("cluster"):
            stack.enter_context(dk.cluster("laptop", workers=int(place[-1])))
        elif place == "config":
            stack.enter_context(dask.config.set(scheduler="threading", num_workers=3))
        elif place == "active client":
            from distributed import Client

            stack.enter_context(
                Client(processes=False, n_workers=1, threads_per_worker=3, dashboard_address=None)
            )
        yield ["--scheduler", place, "--workers", "2"] if place in PLACES[:3] else []


def change_same_size(path: Path) -> None:
    """Change one letter in a text of a document file, keeping its stored size."""
    data = bytearray(path.read_bytes())
    at = data.index(b" the ") + 1
    data[at : at + 3] = b"teh"
    path.write_bytes(data)


def change(path: Path) -> None:
    """Change one letter in a gzipped document or attribute file."""
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(
        gzip.compress(
            text.replace(b" the ", b" teh ", 1) if b" the " in text else text.replace(b"[[0", b"[[ 0", 1)
        )
    )


def displaced(world: Path, how: str) -> Path:
    """Move, copy or touch a world, which changes names or time stamps and no byte; return where it is now."""
    if how == "touch":
        for path in world.rglob("*"):
            path.touch()
        return world
    place = world.with_name("elsewhere") / "world"
    place.parent.mkdir()
    if how == "move":
        return world.rename(place)
    shutil.copytree(world, place, copy_function=shutil.copyfile)
    for path in (path for path in place.rglob("*") if path.is_file()):
        os.utime(path, ns=(10**18, 10**18 + path.stat().st_size))
    return place


@dataclass(frozen=True)
class Worlds:
    """A world before any of the verbs ran, and one after all of them did."""

    before: Path
    after: Path
    expected: dict[str, dict[str, str]]
