"""The laws of `dolma_dask.testing.VerbLaws` for every verb."""

import pytest
from small_world import Verbs


@pytest.mark.e2e
class TestVerbs(Verbs):
    @pytest.fixture(scope="class")
    @classmethod
    def worlds(cls, worlds):
        """The worlds that all end-to-end tests share."""
        return worlds
