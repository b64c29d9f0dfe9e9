"""What the end-to-end tests share: a small world, made once, and what undisturbed runs make of it."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import small_world


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> Path:
    """A world in which every verb has run in one process, without disturbance."""
    world = tmp_path_factory.mktemp("undisturbed") / "world"
    small_world.make_world(world)
    shutil.copytree(world, pristine_path(world))
    for verb in small_world.VERBS.values():
        assert small_world.run_here(verb.command(world)) == 0
    return world


def pristine_path(world: Path) -> Path:
    """Where the world lies as it was before the verbs ran."""
    return world.with_name("pristine")


@pytest.fixture(scope="session")
def expected(undisturbed) -> dict[str, dict[str, str]]:
    """Digests of all files that each verb must leave, by verb."""
    trees = {name: small_world.tree(undisturbed / verb.output) for name, verb in small_world.VERBS.items()}
    assert all(len(found) >= 12 for found in trees.values())
    return trees


@pytest.fixture
def world(undisturbed, tmp_path) -> Path:
    """A world of one's own, before any verb ran."""
    return Path(shutil.copytree(pristine_path(undisturbed), tmp_path / "world"))
