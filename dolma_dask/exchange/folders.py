"""The folder of an exchange: removed with all that is in it, its empty parents, and what earlier calls have left beside it.

Nothing is removed where another run works (`dolma_dask.exchange.owners`).
"""

from dolma_dask.exchange import owners
from dolma_dask.io import files
from dolma_dask.io.files import remove_tree as remove_tree
from dolma_dask.io.stores import filesystem

EXCHANGE = "_exchange"
"""Folder below a dataset root that holds the exchanges of its verbs, ``_exchange/<verb>-<name>/<key>``."""


def remove_exchange(folder: str) -> None:
    """Delete the folder of an exchange, and its parents up to ``_exchange`` if nothing else is in them; this run does not own it any more."""
    parent = parent_of(folder)
    if owners.is_taken(parent):
        return
    remove_tree(folder)
    if parent != folder and is_exchange_folder(parent):
        owners.release(parent)
    while is_exchange_folder(parent):
        if not _remove_empty(parent):
            return
        parent = parent_of(parent)


def remove_others(folder: str) -> list[str]:
    """Delete the exchanges of the same verb and name under other keys; return their keys."""
    parent = parent_of(folder)
    if owners.is_taken(parent):
        return []
    others = [name for name in files.list_folders(parent) if name != name_of(folder)]
    for name in others:
        remove_tree(files.join(parent, name))
    return others


def remove_abandoned(root: str, verb: str) -> None:
    """Delete all exchanges of a verb below `root` in which nobody works: a later call with other options does not go on with them."""
    place = files.join(root, EXCHANGE)
    for name in files.list_folders(place):
        folder = files.join(place, name)
        if name.startswith(f"{verb}-") and not owners.is_taken(folder):
            remove_tree(folder)
            _remove_empty(place)


def is_for_exchange(folder: str) -> bool:
    """Tell whether a folder may be filled and removed by an exchange."""
    return name_of(parent_of(parent_of(folder))) == EXCHANGE


def is_exchange_folder(url: str) -> bool:
    """Tell whether `url` is ``.../_exchange`` or a folder directly below one."""
    return EXCHANGE in (name_of(url), name_of(parent_of(url)))


def parent_of(url: str) -> str:
    """Return the folder that holds `url`."""
    return url.rstrip("/").rpartition("/")[0]


def name_of(url: str) -> str:
    """Return the last part of `url`."""
    return url.rstrip("/").rpartition("/")[2]


def _remove_empty(url: str) -> bool:
    """Delete a folder if it is empty; tell whether it is gone. Object stores have no empty folders."""
    try:
        if files.is_local(url):
            files.local_path(url).rmdir()
            return True
        fs, path = filesystem(url)
        fs.invalidate_cache()
        if fs.exists(path):
            fs.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
