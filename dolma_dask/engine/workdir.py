"""Work folders of jobs, ``<root>/_work/<verb>-<name>/<key>``: staging files and the journals of the passes that make them."""

from contextlib import AbstractContextManager

from msgspec import Struct

from dolma_dask.engine import lease
from dolma_dask.formats import layout
from dolma_dask.io import files


class WorkDir(Struct, frozen=True):
    """Folder for what a job makes on the way; removed when the job has ended."""

    root: str  # output root of the job
    verb: str
    name: str  # of what the job makes
    key: str  # digest of all that decides the staging files besides the bytes of the inputs

    @property
    def parent(self) -> str:
        """Folder of all runs of this verb and name; the lease lies there."""
        return files.join(self.root, self._name)

    @property
    def path(self) -> str:
        """Path of the staging files, relative to the root."""
        return f"{self._name}/{self.key}"

    @property
    def folders(self) -> tuple[str, str]:
        """Paths of all folders that are cleared away, relative to the root: staging files and leases."""
        return self.path, f"{self._name}/{lease.LEASES}"

    @property
    def _name(self) -> str:
        return f"{layout.WORK}/{self.verb}-{self.name}"

    @property
    def url(self) -> str:
        """Folder of the staging files."""
        return files.join(self.root, self.path)

    def leased(self) -> AbstractContextManager[None]:
        """Hold the lease while the block runs; see `dolma_dask.engine.lease.leased`."""
        return lease.leased(self.parent, self.verb)

    def clear(self) -> None:
        """Delete all staging files."""
        files.remove_tree(self.url)

    def clear_others(self) -> None:
        """Delete what runs with other options or inputs have left."""
        for name in files.list_folders(self.parent):
            if name != self.key:
                files.remove_tree(files.join(self.parent, name))

    def remove_abandoned(self) -> None:
        """Delete everything of this verb and name, unless a run works there."""
        if not lease.holders(self.parent):
            self.remove()

    def remove(self) -> None:
        """Delete everything of this verb and name, but the lease of who works there."""
        self.clear_others()
        self.clear()
        lease.remove_dead(self.parent)


def remove_abandoned(root: str, verb: str) -> None:
    """Delete all work folders of a verb in which nobody works: no later call with the present options goes on with them."""
    for name in files.list_folders(files.join(root, layout.WORK)):
        if name.startswith(f"{verb}-"):
            WorkDir(root, verb, name.removeprefix(f"{verb}-"), "").remove_abandoned()
