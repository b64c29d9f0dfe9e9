"""Components in ranges of a parent array against one array, and the number of rounds that they take."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import DataError
from dolma_dask.minhash import ranges
from dolma_dask.minhash.components import flatten, unite
from dolma_dask.minhash.edges import label_clusters, root_bit

NODES = 4096


class Rounds:
    """Ranges of documents in memory, and messages between them."""

    def __init__(self, nodes, size, dtype=np.uint32):
        self.size = size
        self.parts = [
            np.arange(first, min(first + size, nodes), dtype=dtype) for first in range(0, nodes, size)
        ]
        self.bit = root_bit(self.parts[0])

    def exchange(self, step, words):
        """Do a step on each range to which something was sent; return what they send."""
        of = words[:, 0] // np.uint64(self.size)
        sent = [np.empty((0, words.shape[1]), np.uint64)]
        for number in np.unique(of).tolist():
            own = np.ascontiguousarray(words[of == number])
            sent.append(step(self.parts[number], number * self.size, own).copy())
        return np.concatenate(sent)

    def join(self, edges):
        """Join edges; return how many rounds it took."""
        words, rounds = np.sort(edges.astype(np.uint64), axis=1)[:, ::-1], 0
        while len(words):
            words = self.exchange(lambda part, first, own: ranges.Hanging(part, first).add(own), words)
            rounds += 1
        return rounds

    def label(self):
        """Make labels; return how often was asked."""
        asks, asked = [np.empty((0, 3), np.uint64)], 0
        for number, part in enumerate(self.parts):
            asks += self.asks(part, number * self.size)
        words = np.concatenate(asks)
        while len(words):
            words, asked = self.exchange(self.follow, self.exchange(self.answer, words)), asked + 1
        return asked

    def asks(self, part, first):
        """Yield the questions of a range, a few at a time."""
        sizes, start = np.zeros(len(part), np.uint32), 0
        ranges.unlabel(part, first, self.bit)
        ranges.settle(part, first)
        ranges.count_members(part, first, sizes)
        while start < len(part):
            rows = np.empty((3, 3), np.uint64)
            start, count = ranges.ask(part, first, start, sizes, self.bit, rows)
            yield rows[:count]

    def answer(self, part, first, asks):
        answers = np.empty_like(asks)
        ranges.answer(part, first, self.bit, asks, answers)
        return answers

    def follow(self, part, first, answers):
        asks = np.empty_like(answers)
        count = ranges.follow(part, first, answers, asks)
        if not count:
            ranges.hand_down(part, first, self.bit)
        return asks[:count]

    @property
    def labels(self):
        return np.concatenate(self.parts).tolist()


def in_one_array(nodes, edges, dtype=np.uint32):
    parents = np.arange(nodes, dtype=dtype)
    unite(parents, np.ascontiguousarray(edges, np.uint64))
    flatten(parents)
    label_clusters(parents, root_bit(parents))
    return parents.tolist()


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 40))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=60))
    return nodes, np.array(edges, np.uint64).reshape(-1, 2)


@pytest.mark.slow
@given(
    graph=graphs(),
    size=st.sampled_from([1, 2, 3, 7, 64]),
    dtype=st.sampled_from([np.uint32, np.uint64]),
    data=st.data(),
)
def test_labels_are_those_of_one_array_in_any_groups(graph, size, dtype, data):
    nodes, edges = graph
    rounds, start = Rounds(nodes, size, dtype), 0
    for end in sorted(data.draw(st.lists(st.integers(0, len(edges)), max_size=3))):
        rounds.join(edges[start:end])
        if data.draw(st.booleans()):
            rounds.label()  # labels take more edges
        start = end
    rounds.join(edges[start:])
    rounds.label()
    assert rounds.labels == in_one_array(nodes, edges, dtype)


def grid(numbers):
    rows = numbers.reshape(64, -1)
    across, down = (rows[:, :-1], rows[:, 1:]), (rows[:-1], rows[1:])
    return np.concatenate([np.stack([one.ravel(), other.ravel()], axis=1) for one, other in (across, down)])


def path(numbers):
    return np.stack([numbers[:-1], numbers[1:]], axis=1)


FORMS = {
    "chain": path(np.arange(NODES)),
    "reversed chain": path(np.arange(NODES)[::-1]),
    "star": np.stack([np.zeros(NODES, np.int64), np.arange(NODES)], axis=1),
    "hub": np.stack([np.full(NODES, NODES - 1), np.arange(NODES)], axis=1),
    "shuffled chain": path(np.random.default_rng(1).permutation(NODES)),
    "grid": grid(np.arange(NODES)),
    "shuffled grid": grid(np.random.default_rng(2).permutation(NODES)),
    "random": np.random.default_rng(3).integers(0, NODES, (NODES // 2, 2)),
    "comb": path(np.concatenate([[0], np.arange(16, NODES, 16)[::-1]])),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [16, 100, 4096])
def test_large_components(form, size):
    rounds = Rounds(NODES, size)
    rounds.join(FORMS[form])
    asked = rounds.label()
    assert rounds.labels == in_one_array(NODES, FORMS[form])
    assert asked <= len(rounds.parts).bit_length() + 1  # the way to a root is halved each time


def test_a_chain_of_neighbours_is_joined_in_one_round():
    assert Rounds(NODES, 16).join(FORMS["chain"]) == 1
    assert Rounds(NODES, 16).join(FORMS["reversed chain"]) == 1


def test_a_link_of_another_range_is_refused():
    parents = np.arange(8, 12, dtype=np.uint32)
    for high, low in ((12, 9), (7, 3), (9, 10)):
        with pytest.raises(
            DataError, match=f"{high} and {low}; expected the larger number first, from 8 to 11"
        ):
            ranges.Hanging(parents, 8).add(np.array([[9, 8], [high, low]], np.uint64))
