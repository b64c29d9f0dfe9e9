"""Cost of each verb before it does anything: lines, modules loaded, CPU of a command that has little or nothing to do.

    python tools/footprint.py [--json]

Every verb runs on the small corpus of `same_content.py`, each command in a process of its own. Modules are those of this package that are
loaded when the verb's function has been fetched, and when a command has ended. CPU-seconds are user and system time with all child
processes, the least of three: of a command whose work is done, and of one that does it again (390 documents or fewer) in one process and
where commands run by default. The last column names large libraries that a command loads although its work is done.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from same_content import CASES, make_world

PACKAGE = Path(__file__).resolve().parent.parent / "dolma_dask"
VERBS = ("convert", "tag", "quantiles", "dedupe", "block", "validate", "mix", "ragged", "hdf5", "report")
LARGE = (
    "numba",
    "pandas",
    "distributed",
    "scipy",
    "pyarrow",
    "h5py",
    "tokenizers",
    "cyclopts",
    "bokeh",
    "dask",
)
COUNT = f"""
ours = [name for name in sys.modules if name.split(".")[0] == "dolma_dask"]
print(json.dumps([len(ours), [name for name in {LARGE} if name in sys.modules]]), file=sys.__stderr__)
"""
FETCH = "import json, sys\nimport dolma_dask\ngetattr(dolma_dask, sys.argv[1])" + COUNT
CALL = f"""import json, sys
from importlib.metadata import entry_points
script, = entry_points(group="console_scripts", name="dolma-dask")
if __name__ == "__main__":  # worker processes import this
    try:
        script.load()()
    except SystemExit as end:
        assert not end.code, end.code
    {COUNT.strip().replace(chr(10), chr(10) + "    ")}
"""


def run(code: str, *words: str) -> tuple[float, int, list[str]]:
    """Return CPU-seconds, modules of this package and large libraries of a process."""
    Path("call.py").write_text(code)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "call.py", *words], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    modules, large = json.loads(done.stderr.splitlines()[-1])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, modules, large


def measure(verb: str) -> dict[str, object]:
    """Return the row of a verb, whose inputs are in the current folder."""
    words = CASES[verb if verb in CASES else f"{verb} pages"].words
    one_process = ("--scheduler", "synchronous")
    run(CALL, *words, *one_process)  # compiles kernels
    idle, busy = (
        min(run(CALL, *words, *one_process, *more) for _ in range(3)) for more in ((), ("--overwrite",))
    )
    default = (
        min(run(CALL, *words, "--overwrite") for _ in range(3))
        if verb in ("tag", "mix", "dedupe", "ragged")
        else None
    )
    return {
        "verb": verb,
        "fetched": run(FETCH, verb)[1],
        "called": busy[1],
        "nothing to do": round(idle[0], 2),
        "again": round(busy[0], 2),
        "again, by default": round(default[0], 2) if default else "",
        "loaded for nothing": " ".join(idle[2]),
    }


def main() -> None:
    """Print the lines and modules of the package and a row per verb."""
    files = list(PACKAGE.rglob("*.py"))
    size = {"modules": len(files), "lines": sum(path.read_bytes().count(b"\n") for path in files)}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_world()
        rows = [measure(verb) for verb in VERBS]
        os.chdir("/")
    if "--json" in sys.argv:
        print(json.dumps({**size, "verbs": rows}))
        return
    print(f"{size['modules']} modules, {size['lines']:,} lines\n")
    for row in [{name: name for name in rows[0]}, *rows]:
        print("  ".join(f"{row[name]!s:<{len(name) + 2}}" for name in rows[0]))


if __name__ == "__main__":
    main()
