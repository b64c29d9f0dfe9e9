"""Nodes of a cluster on one machine: a host name, a /tmp and a view of the shared folder of its own for each (namespaces of Linux; root).

Process numbers, processors and the network are those of the machine.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from dolma_dask.testing.commands import DEADLINE_S

LATE_SECONDS = 1.0
"""So late nodes see in `Node.late` what others have done."""

HERE = Path(__file__).resolve().parent
LATE_FILES = ("/usr/bin/python3", str(HERE / "late_files.py"))

UNSHARE = ("unshare", "--mount", "--uts", "--propagation", "private")


def why_no_nodes() -> str:
    """Return why this machine can have no nodes; nothing if it can."""
    tried = subprocess.run(
        [*UNSHARE, "sh", "-c", "hostname n1 && mount -t tmpfs none /mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    return (
        "" if tried.returncode == 0 else f"no namespaces for nodes (root is needed): {tried.stderr.strip()}"
    )


def why_not_late() -> str:
    """Return why no folder can be late here; nothing if it can."""
    has_fuse = os.access("/dev/fuse", os.R_OK | os.W_OK)
    tried = subprocess.run([LATE_FILES[0], "-c", "import fuse"], capture_output=True, check=False)
    missing = [
        *([] if has_fuse else ["/dev/fuse, which root may open"]),
        *([] if tried.returncode == 0 else ["the Debian package python3-fuse"]),
    ]
    return f"no late folder without {' and '.join(missing)}" if missing else ""


class Node:
    """A node.

    Parameters
    ----------
    name : str
        Its host name.
    folder : Path
        Holds its /tmp.
    shared : sequence of Path
        Folders that lie at the same place as here, whatever its /tmp hides.
    late : Path, optional
        Folder that it sees late.
    """

    def __init__(self, name: str, folder: Path, shared: Sequence[Path], late: Path | None = None) -> None:
        self.name, self.folder, self._shared, self._late = name, folder, shared, late
        self._space = self._held = 0
        self.is_hurt = False  # since its start

    def start(self, *program: str) -> None:
        """Start a daemon on it, which makes it a node; wait until it is in the background."""
        script = "\n".join(
            ["set -e", *self._mounts(), "stat -L -c %i /proc/self/ns/uts", f"exec {' '.join(program)}"]
        )
        done = subprocess.run(
            [*UNSHARE, "sh", "-c", script], capture_output=True, text=True, check=False, timeout=DEADLINE_S
        )
        assert done.returncode == 0, f"{self.name}: {done.stdout}{done.stderr}"
        self.is_hurt = False
        self._space = int(done.stdout.split()[0])
        # else its number would be given to the next namespace of this machine once it is dead
        self._held = os.open(f"/proc/{self.processes()[0].pid}/ns/uts", os.O_RDONLY)

    def _mounts(self) -> list[str]:
        temporary = Path(tempfile.gettempdir())
        own = self.folder / "tmp"
        own.mkdir(parents=True, exist_ok=True)
        own.chmod(0o1777)
        lines = [f"hostname {self.name}"]
        for path in self._shared:
            if path.is_relative_to(temporary):
                there = own / path.relative_to(temporary)
                lines += [f"mkdir -p {there}", f"mount --rbind {path} {there}"]
        if self._late is not None:
            there = own / self._late.relative_to(temporary)
            lines += [" ".join([*LATE_FILES, str(self._late), str(there), str(LATE_SECONDS)])]
        return [*lines, f"mount --rbind {own} {temporary}"]

    def processes(self) -> list[psutil.Process]:
        """Return all that runs on it."""
        found = []
        for process in psutil.process_iter():
            with suppress(OSError):
                if Path(f"/proc/{process.pid}/ns/uts").stat().st_ino == self._space:
                    found.append(process)
        return found

    def send(self, number: int) -> None:
        """Send a signal to all that runs on it, again to what has been started meanwhile."""
        self.is_hurt = True
        told: set[int] = set()
        while new := [process for process in self.processes() if process.pid not in told]:
            for process in new:
                told.add(process.pid)
                with suppress(psutil.Error):
                    process.send_signal(number)

    def stop(self) -> None:
        """Let it lose power: nothing on it still sees how the rest dies."""
        if self._space:
            self.send(signal.SIGSTOP)
            self.send(signal.SIGKILL)
            os.close(self._held)
            self._space = 0


def shared_with_nodes(*folders: Path) -> list[Path]:
    """Return folders, and those of the package and of Python, none below another."""
    wanted = [
        *folders,
        HERE.parents[1],
        Path(sys.prefix),
        Path(shutil.which("python3") or sys.executable).resolve(),
    ]
    return [path for path in wanted if path.is_dir()]
