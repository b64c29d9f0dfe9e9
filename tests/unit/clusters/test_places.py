"""Choice of the place where a verb runs: the scheduler of the call, then Dask's configuration, then the active client, then what ends soonest."""

import copy
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import dask
import pytest

from dolma_dask import clusters
from dolma_dask.clusters import Placement, local, open_placement, places
from dolma_dask.errors import UsageError
from dolma_dask.options.groups import RunOptions
from dolma_dask.placement import Cost, choose
from dolma_dask.processes import interrupts_held_back

REAL = {name: getattr(places, name) for name in ("active_client", "local_client", "remote_client")}
CLIENT = SimpleNamespace(scheduler_info=None, asynchronous=False)
LOCAL = SimpleNamespace(scheduler_info=None, asynchronous=False)


@pytest.fixture(autouse=True)
def started(monkeypatch):
    """No client is active, and no cluster is started: only what would be."""
    started = []

    monkeypatch.setattr(places, "active_client", lambda: None)
    monkeypatch.setattr(places, "local_client", lambda workers: started.append(workers) or _yields(LOCAL))
    monkeypatch.setattr(places, "remote_client", lambda address: started.append(address) or _yields(CLIENT))
    return started


@contextmanager
def _yields(value):
    yield value


MB = 1_000_000


def place(scheduler=None, workers=None, tasks=100, **facts) -> Placement:
    with open_placement(scheduler, workers, [MB] * tasks, **facts) as found:
        return found


@pytest.mark.parametrize("named", [None, "auto"])
def test_by_default_what_ends_soonest(named, started):
    assert place(named, 2, tasks=1, verb="tokens") == Placement(scheduler="synchronous", workers=1)
    assert place(named, 2, tasks=1000, verb="mix").scheduler == "processes"
    assert place(named, 2, tasks=1, isolate=True).scheduler == "processes"
    assert started == []


@pytest.mark.parametrize("daemon", [False, True], ids=["in memory", "daemon"])
def test_processes_are_not_started_where_they_could_not_work(daemon, monkeypatch, started):
    monkeypatch.setattr(places, "is_daemon", lambda: daemon)
    facts = {} if daemon else {"in_memory": True}
    assert place(None, 2, tasks=1000, verb="mix", **facts).scheduler == "threads"
    assert place(None, 2, tasks=1, isolate=True, **facts).scheduler == "synchronous"


def test_files_in_memory_are_not_sent_to_other_processes(monkeypatch):
    assert place("threads", in_memory=True).is_here
    with pytest.raises(UsageError, match="do not see them"):
        place("processes", in_memory=True)
    for address, is_here in (("tcp://host:8786", False), ("inproc://127.0.0.1/1", True)):
        client = SimpleNamespace(
            scheduler_info=None, asynchronous=False, scheduler=SimpleNamespace(address=address)
        )
        monkeypatch.setattr(places, "active_client", lambda client=client: client)
        with nullcontext() if is_here else pytest.raises(UsageError, match="do not see them"):
            assert place(in_memory=True).client is client


@pytest.mark.parametrize("verb", ["tag", "mix", "dedupe", "tokens", "anything"])
def test_placement_by_the_size_of_the_work(verb):
    def chosen(megabytes, shards=40, workers=2, **facts):
        return choose(verb, [megabytes * MB // shards] * shards, workers, **facts)

    assert chosen(0.01) == "synchronous"
    assert chosen(100_000, workers=8) == "processes"
    assert chosen(100_000, may_start=False) == "threads"
    assert chosen(100_000, shards=1) == chosen(100_000, workers=1) == "synchronous"
    sizes = [chosen(1.3**power) for power in range(60)]
    order = ["synchronous", "threads", "processes"]
    assert sizes == sorted(sizes, key=order.index), "more work never runs in fewer processes"


def test_threads_are_not_started_to_save_a_blink():
    halves, cost = [50 * MB] * 2, Cost(cpu=0.008, locked=0.3)  # 0.8 seconds of work, in threads 0.62
    assert choose(cost, halves, 2, may_start=False) == "synchronous"
    assert choose(cost, halves * 2, 2, may_start=False) == "threads"


def test_what_waits_for_others_runs_in_threads():
    assert choose("download", [1, 1], 8) == "threads"
    assert choose("download", [MB] * 100, 8) == "threads"
    assert choose("download", [MB], 8) == choose("download", [1, 1], 1) == "synchronous"


def test_one_large_shard_among_small_ones_is_not_worth_processes():
    assert choose("tag", [500 * MB, *[MB] * 20], 2) == "synchronous"


@pytest.mark.parametrize("name", ["synchronous", "threads", "processes"])
def test_what_is_asked_counts_first(name, monkeypatch):
    monkeypatch.setattr(places, "active_client", lambda: CLIENT)
    with dask.config.set(scheduler="sync"):
        assert place(name, 3) == Placement(scheduler=name, workers=3)


def test_processes_of_the_fast_engine_must_earn_what_each_takes_to_start():
    shards = [8 * MB] * 11
    assert choose("tokens-fast", shards[:1] * 2, 2) == "synchronous"
    assert choose("tokens-fast", shards * 2, 2) == "threads", "as early, and cheaper"
    assert choose("tokens-fast", shards * 2, 8) == "processes"


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
    monkeypatch.setattr(places, "active_client", lambda: CLIENT)
    with dask.config.set(scheduler=name, num_workers=5):
        assert place() == Placement(scheduler=meant, workers=5)


def test_clients_and_executors_in_the_configuration_count(monkeypatch):
    with dask.config.set(scheduler=CLIENT):
        assert place().client is CLIENT
    with ThreadPoolExecutor(1) as pool, dask.config.set(scheduler=pool):
        assert place().scheduler is pool


def test_the_active_client_counts_before_the_default(monkeypatch):
    monkeypatch.setattr(places, "active_client", lambda: CLIENT)
    assert place() == Placement(CLIENT)
    with dask.config.set(scheduler="dask.distributed"):  # what a client sets when it becomes active
        assert place() == Placement(CLIENT)


def test_an_asynchronous_client_is_refused(monkeypatch):
    monkeypatch.setattr(
        places, "active_client", lambda: SimpleNamespace(scheduler_info=None, asynchronous=True)
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
    with pytest.raises(UsageError, match="laptop"), clusters.cluster("nosuch"):
        pass


def test_a_cluster_has_no_more_workers_than_tasks(started):
    place("cluster", 8, tasks=3)
    place("cluster", 2, tasks=3)
    assert started == [3, 2]


def test_an_address_is_connected_to(started):
    assert place("tcp://host:8786").client is CLIENT
    assert started == ["tcp://host:8786"]


def test_importing_and_choosing_do_not_load_distributed(tmp_path):
    code = (
        "import sys\nfrom dolma_dask.clusters import open_placement\n"
        "with open_placement(None, 1, [1]): pass\nsys.exit(bool({'dask', 'distributed'} & set(sys.modules)))"
    )
    own = {
        **os.environ,
        "HOME": str(tmp_path),
    }  # without a configuration of Dask, which dask-jobqueue puts into the user's
    assert subprocess.run([sys.executable, "-c", code], env=own, check=False).returncode == 0


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


@pytest.mark.parametrize("workers", [0, -1, "2", 2.5, True])
def test_a_number_of_workers_is_one(workers):
    with pytest.raises(UsageError, match=r"workers=.*; expected a number of processes or threads from 1 on"):
        clusters.check_workers(workers)
    with pytest.raises(UsageError), clusters.cluster(workers=workers):
        pass
    with pytest.raises(UsageError):
        RunOptions(workers=workers)


@pytest.mark.parametrize("scheduler", ["processes", "cluster"])
def test_daemonic_processes_say_that_they_may_start_no_others(scheduler, monkeypatch):
    monkeypatch.setattr(local, "is_daemon", lambda: True)
    with pytest.raises(UsageError, match="daemonic"):
        place(scheduler, 2)


def test_a_fork_does_not_wait_for_the_cluster_of_its_parent(monkeypatch):
    monkeypatch.setattr(places, "active_client", lambda: SimpleNamespace(scheduler_info=dict))
    monkeypatch.setattr(local, "_fork_of_dask", True)
    with pytest.raises(UsageError, match=r"fork of one.*scheduler='threads'"):
        place(None, 2)
    assert place("threads", 2).scheduler == "threads"


@pytest.mark.slow
def test_blocks_overlap_and_threads_use_them(monkeypatch):
    import distributed

    for name, real in REAL.items():
        monkeypatch.setattr(places, name, real)

    before = copy.deepcopy(dask.config.config), dict(os.environ), distributed.client.logger.level
    first, second = clusters.cluster(workers=1), clusters.cluster(workers=1)
    first.__enter__()
    newest = second.__enter__()
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(place).result().client is newest
    first.__exit__(None, None, None)
    assert place().client is newest
    assert dask.config.get("distributed.worker.memory.spill") is False
    second.__exit__(None, None, None)
    assert (dask.config.config, dict(os.environ), distributed.client.logger.level) == before
    assert clusters.active_client() is None


@pytest.mark.slow
def test_a_cluster_shows_itself_and_is_closed_by_hand(monkeypatch):
    for name, real in REAL.items():
        monkeypatch.setattr(places, name, real)
    found = clusters.cluster(workers=1)
    try:
        assert place().client is found.client
        assert found.dashboard_link.startswith("http://")
        assert "1 with 1 thread" in repr(found)
        assert re.search(r"memory +[\d.]+ [MG]B", repr(found))
        assert f"<a href='{found.dashboard_link}'>" in found._repr_html_()
    finally:
        found.close()
    found.close()
    assert clusters.active_client() is None
    assert "closed" in repr(found)
    assert "closed" in found._repr_html_()


KILLED = """
import os, signal, threading, time
from dolma_dask import fork_server
from dolma_dask.clusters import process_pool
from dolma_dask.errors import DolmaDaskError
from dolma_dask.processes import process_context

if __name__ == "__main__":
    process_context()
    server = fork_server._server._forkserver_pid
    os.kill(server, signal.SIGSTOP)  # it takes the order, and does not answer
    threading.Timer(0.5, os.kill, (server, signal.SIGKILL)).start()
    dying, by_pid, by_kind = time.monotonic() + 1, os.waitpid, os.waitid  # it seems to live a moment longer
    seems = lambda: time.monotonic() < dying
    os.waitpid = lambda pid, options: (0, 0) if pid == server and seems() else by_pid(pid, options)
    os.waitid = lambda *what: None if seems() else by_kind(*what)
    try:
        with process_pool(2):
            pass
    except DolmaDaskError as error:
        print(error)
    with process_pool(2) as pool:
        print(pool.submit(int, 7).result())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes are not forked from a server")
def test_a_server_that_is_killed_while_processes_start_is_said(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.startswith("the process that forks workers was killed before they had started")
    assert run.stdout.endswith("\n7\n")


FORKED = """
import multiprocessing, os, signal, sys
from dolma_dask.processes import start_processes

def look():
    blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    os._exit(blocked or "OMP_NUM_THREADS" in os.environ)

def use():
    with start_processes(1) as pool:
        return pool.submit(int, 7).result()

if __name__ == "__main__":
    os.environ.pop("OMP_NUM_THREADS", None)
    assert use() == 7
    own = multiprocessing.get_context("forkserver").Process(target=look)
    own.start()
    own.join()
    assert own.exitcode == 0, "settings of ours"
    child = os.fork()
    if not child:
        os._exit(use())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert use() == 7
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are spawned elsewhere")
def test_forks_and_processes_of_the_user_get_a_server_of_their_own(tmp_path):
    (tmp_path / "script.py").write_text(FORKED)
    ended = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="workers are not forked there")
def test_a_script_without_its_guard_is_told_once(tmp_path):
    """Workers that import it again end in silence."""
    script = tmp_path / "script.py"
    script.write_text("import dolma_dask as dk\nwith dk.cluster('laptop', workers=2):\n    pass\n")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert "belong below `if __name__ == '__main__':`" in ended.stderr.splitlines()[-1]
