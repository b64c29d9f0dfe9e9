"""Every notebook runs from top to bottom, and leaves outputs that can be shown."""

import pytest

import notebooks

pytestmark = [pytest.mark.e2e, pytest.mark.services]


@pytest.mark.parametrize("path", notebooks.named(()), ids=lambda path: path.stem)
def test_it_runs(path, startup):
    assert notebooks.complaints(notebooks.execute(path, PYTHONSTARTUP=startup)) == []
