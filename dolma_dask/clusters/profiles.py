"""Cluster profiles: YAML that says where workers come from; one that is shipped, or a file of the user's on top of one.

::

    base: slurm            # another profile, whose values count where this one has none
    kind: slurm            # local | slurm | address | allocation
    jobs: 4
    jobqueue:              # options of dask-jobqueue, spelled as in its own jobqueue.yaml
      account: project_1
      walltime: "04:00:00"

An option of a job is that of the call, else of the user's profile, else of the user's own ``~/.config/dask/jobqueue.yaml``, else of the shipped
profile, else the default of dask-jobqueue. Reading one costs some milliseconds; dask is not imported.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from yaml import MappingNode, Node

from dolma_dask.display import near_or_all
from dolma_dask.errors import UsageError
from dolma_dask.io.yaml_files import Mistakes, convert, convert_options, is_nothing, pairs, read_yaml, scalar

Kind = Literal["local", "slurm", "address", "allocation"]

JOBQUEUE: dict[str, Any] = {
    "name": str,
    "cores": int,
    "memory": str,
    "processes": int,
    "python": str,
    "interface": str,
    "death_timeout": int,
    "local_directory": str,
    "shared_temp_directory": str,
    "worker_command": str,
    "worker_extra_args": list[str],
    "shebang": str,
    "queue": str,
    "account": str,
    "walltime": str,
    "job_script_prologue": list[str],
    "job_cpu": int,
    "job_mem": str,
    "job_extra_directives": list[str],
    "job_directives_skip": list[str],
    "log_directory": str,
    "scheduler_options": dict[str, Any],
}
"""Options of dask-jobqueue that a profile may have, as its Python spells them, and their types."""

_MAX_BASES = 8


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The keys of a file."""

    base: str | None = None
    kind: Kind | None = None
    jobs: int | None = None
    workers: int | None = None
    address: str | None = None
    jobqueue: dict[str, Any] | None = None


class Profile(Struct, frozen=True):
    """Source of workers."""

    name: str  # as it was asked for
    kind: Kind
    jobs: int = 1  # SLURM jobs to hold
    workers: int | None = None  # processes of kind local
    address: str = ""  # of kind address
    jobqueue: Mapping[str, Any] = {}  # by the names of `JOBQUEUE`: of the user's files, and of the call
    shipped: Mapping[str, Any] = {}  # the same, of shipped profiles: what a user has said counts before
    places: Mapping[str, str] = {}  # "file, line 3" of each value
    tries: int = 3  # times in a row that jobs may end before a worker has come

    def place_of(self, option: str) -> str:
        """Return where a value stands, or where to put it."""
        return self.places.get(option, f"profile {self.name}, which does not have it yet")

    def over(self, own: Mapping[str, Any]) -> "Profile":
        """Return it with all options in `jobqueue`: of shipped profiles, over them the user's `own` jobqueue.yaml, over that the user's profiles."""
        given = {name: value for name, value in self.jobqueue.items() if value is not None}
        shipped = {name: value for name, value in self.shipped.items() if name not in self.jobqueue}
        places = dict.fromkeys(
            own.keys() - given.keys(), "`jobqueue.slurm` of your own configuration of Dask"
        )
        return replace(
            self, jobqueue={**shipped, **own, **given}, shipped={}, places={**self.places, **places}
        )


def folder() -> Path:
    """Return where the shipped profiles are: in an installed package beside the code, else in the repository."""
    installed = Path(__file__).parent / "shipped"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "configs" / "clusters"


def shipped() -> list[str]:
    """Return the names of the shipped profiles."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def read_profile(name: str, options: Mapping[str, Any] | None = None) -> Profile:
    """Read a profile; `options` replace its values, by their names in Python.

    Parameters
    ----------
    name : str
        One of those that are shipped, the path of a YAML file, or the address of a scheduler.
    options : map, optional
        ``jobs``, ``workers``, ``address`` or an option of dask-jobqueue.

    Raises
    ------
    UsageError
        There is no such profile, or it is wrong: with file, line and what is valid.
    """
    if "://" in name:
        values: dict[str, Any] = {"kind": "address", "address": name}
        places: dict[str, str] = {}
    else:
        values, places = _read(_find(name, None), ())
    values = _with_options(name, values, options or {})
    return _checked(name, values, places)


def _find(name: str, beside: Path | None) -> Path:
    """Return the file of a profile: a path, relative to the file that names it, or the name of a shipped one."""
    if name in shipped():
        return folder() / f"{name}.yaml"
    path = Path(name).expanduser()
    path = beside.parent / path if beside is not None else path
    if path.is_file():
        return path
    raise UsageError(
        f"unknown cluster profile {name!r}; expected one of {', '.join(map(repr, shipped()))}, the path of a YAML file, or an address such as "
        "tcp://host:8786."
    )


def _read(path: Path, above: tuple[Path, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of a file over those of its base, and where each stands."""
    mistakes = Mistakes(str(path))
    top = read_yaml(str(path), mistakes, "a cluster profile in YAML, such as `base: slurm`")
    made = convert(top, _File, "", mistakes)
    options = pairs(top).get("jobqueue") if isinstance(top, MappingNode) else None
    jobqueue, places = _jobqueue(options[1], mistakes) if options is not None else ({}, {})
    mistakes.check()
    own = {name: value for name in _File.__struct_fields__ if (value := getattr(made, name)) is not None} | {
        "jobqueue": jobqueue
    }
    places |= {name: key for name, (key, _) in pairs(top).items()}
    lines = {name: f"{path}, line {node.start_mark.line + 1}" for name, node in places.items()}
    if path.parent == folder():
        own |= {"jobqueue": {}, "shipped": jobqueue}
    base = own.pop("base", None)
    if base is None:
        return own, lines
    if len(above) >= _MAX_BASES or path.resolve() in above:
        raise UsageError(
            f"{lines['base']}: {path} is its own base; expected one that stands alone, such as `base: slurm`."
        )
    below, lines_below = _read(_find(base, path), (*above, path.resolve()))
    for layer in ("jobqueue", "shipped"):
        own[layer] = {**below.get(layer, {}), **own.get(layer, {})}
    return {**below, **own}, {**lines_below, **lines}


def _jobqueue(node: Node, mistakes: Mistakes) -> tuple[dict[str, Any], dict[str, Node]]:
    """Return the options of dask-jobqueue that a file has, and their nodes; nothing stands for its own default."""
    if is_nothing(node) or not isinstance(node, MappingNode):
        return {}, {}
    found = {key.replace("-", "_"): (at, value) for key, (at, value) in pairs(node).items()}
    given = [(scalar(name, at), value) for name, (at, value) in found.items() if not is_nothing(value)]
    block = MappingNode("tag:yaml.org,2002:map", given, node.start_mark)
    values = convert_options(block, JOBQUEUE, (), "jobqueue", mistakes)
    empty = {name: None for name, (_, value) in found.items() if is_nothing(value)}
    for name in empty.keys() - JOBQUEUE.keys():
        mistakes.add(found[name][0], f"jobqueue.{name}: there is no such key; {near_or_all(name, JOBQUEUE)}")
    return {**values, **empty}, {name: at for name, (at, _) in found.items()}


def _with_options(name: str, values: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with those of a call over them."""
    own = ("jobs", "workers", "address")
    for option, value in options.items():
        if option not in own and option not in JOBQUEUE:
            raise UsageError(
                f"cluster({name!r}) takes no argument {option!r}; {near_or_all(option, [*own, *JOBQUEUE])}",
                name=option,
            )
        if value is None:
            continue
        if option in own:
            values[option] = value
        else:
            values["jobqueue"] = {**values.get("jobqueue", {}), option: value}
    return values


def _checked(name: str, values: dict[str, Any], places: Mapping[str, str]) -> Profile:
    """Return a profile whose values go together."""
    kind = values.pop("kind", None)
    if kind is None:
        raise UsageError(
            f"{name} has no `kind`; expected one of {', '.join(get_args(Kind))}, or a `base:` that has one."
        )
    profile = Profile(name, kind, **values, places=dict(places))
    for option in ("jobs", "workers"):
        value = getattr(profile, option)
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(f"{profile.place_of(option)}: {option}={value!r}; expected a number from 1 on.")
    if kind == "address" and "://" not in profile.address:
        raise UsageError(
            f"{profile.place_of('address')}: {profile.address!r} is no address; expected that of a Dask scheduler, such as tcp://host:8786."
        )
    if kind != "local" and profile.workers is not None and kind != "allocation":
        raise UsageError(
            f"{profile.place_of('workers')}: workers={profile.workers} with `kind: {kind}`; expected them for local workers. Jobs have `jobs` and `jobqueue.processes`."
        )
    return profile
