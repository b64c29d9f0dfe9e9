"""Where a verb runs: what is asked, then Dask's configuration, then the active client, then the default of the way of calling."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import dask
import pytest

from dolma_dask import clusters
from dolma_dask.clusters import Place, interrupts_held_back, open_place
from dolma_dask.errors import UsageError
from dolma_dask.settings import DEFAULT_SCHEDULER

CLIENT = SimpleNamespace(scheduler_info=None, asynchronous=False)
LOCAL = SimpleNamespace(scheduler_info=None, asynchronous=False)


@pytest.fixture(autouse=True)
def started(monkeypatch):
    """No client is active, and no cluster is started: only what would be."""
    started = []

    monkeypatch.setattr(clusters, "active_client", lambda: None)
    monkeypatch.setattr(clusters, "local_client", lambda workers: started.append(workers) or _yields(LOCAL))
    monkeypatch.setattr(clusters, "remote_client", lambda address: started.append(address) or _yields(CLIENT))
    return started


@contextmanager
def _yields(value):
    yield value


def place(asked=None, workers=None, tasks=100) -> Place:
    with open_place(asked, workers, tasks) as found:
        return found


def test_threads_from_python_and_a_cluster_from_the_command_line(started):
    assert place() == Place(scheduler="threads", workers=clusters.cpu_count())
    token = DEFAULT_SCHEDULER.set("cluster")
    try:
        assert place().client is LOCAL
    finally:
        DEFAULT_SCHEDULER.reset(token)
    assert started == [clusters.cpu_count()]


@pytest.mark.parametrize("name", ["synchronous", "threads", "processes"])
def test_what_is_asked_counts_first(name, monkeypatch):
    monkeypatch.setattr(clusters, "active_client", lambda: CLIENT)
    with dask.config.set(scheduler="sync"):
        assert place(name, 3) == Place(scheduler=name, workers=3)


@pytest.mark.parametrize(
    "name, meant",
    [
        ("sync", "synchronous"),
        ("single-threaded", "synchronous"),
        ("threading", "threads"),
        ("multiprocessing", "processes"),
    ],
)
def test_the_configuration_of_dask_counts(name, meant, monkeypatch):
    monkeypatch.setattr(clusters, "active_client", lambda: CLIENT)
    with dask.config.set(scheduler=name, num_workers=5):
        assert place() == Place(scheduler=meant, workers=5)


def test_clients_and_executors_in_the_configuration_count(monkeypatch):
    with dask.config.set(scheduler=CLIENT):
        assert place().client is CLIENT
    with ThreadPoolExecutor(1) as pool, dask.config.set(scheduler=pool):
        assert place().scheduler is pool


def test_the_active_client_counts_before_the_default(monkeypatch):
    monkeypatch.setattr(clusters, "active_client", lambda: CLIENT)
    assert place() == Place(CLIENT)
    with dask.config.set(scheduler="dask.distributed"):  # what a client sets when it becomes active
        assert place() == Place(CLIENT)


def test_an_asynchronous_client_is_refused(monkeypatch):
    monkeypatch.setattr(
        clusters, "active_client", lambda: SimpleNamespace(scheduler_info=None, asynchronous=True)
    )
    with pytest.raises(UsageError, match="asynchronous=False"):
        place()


def test_unknown_names_are_refused():
    with pytest.raises(UsageError, match="synchronous, threads, processes, cluster"):
        place("thread")
    with dask.config.set(scheduler="nonsense"), pytest.raises(UsageError, match="nonsense"):
        place()
    with dask.config.set(scheduler="distributed"), pytest.raises(UsageError, match="no client is active"):
        place()
    with pytest.raises(UsageError, match="laptop"), clusters.cluster("lumi"):
        pass


def test_a_cluster_has_no_more_workers_than_tasks(started):
    place("cluster", 8, tasks=3)
    place("cluster", 2, tasks=3)
    assert started == [3, 2]


def test_an_address_is_connected_to(started):
    assert place("tcp://host:8786").client is CLIENT
    assert started == ["tcp://host:8786"]


def test_importing_and_choosing_do_not_load_distributed():
    code = (
        "import sys\nfrom dolma_dask.clusters import open_place\n"
        "with open_place('threads', 1, 1): pass\nsys.exit('distributed' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_interrupts_wait_for_the_end_of_the_block():
    reached = []

    def interrupted():
        with interrupts_held_back():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("end of block")
        reached.append("never")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached == ["end of block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_interrupts_that_are_ignored_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_held_back():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_holding_back_does_nothing_in_other_threads():
    reached = []

    def work():
        with interrupts_held_back():
            reached.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reached == [signal.default_int_handler]


def test_processes_started_meanwhile_never_get_an_interrupt():
    code = "import signal, sys; sys.exit(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    with interrupts_held_back():
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 1
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
