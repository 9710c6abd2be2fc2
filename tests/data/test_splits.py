from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenmesh.data import ContiguousSplit, DirichletSplit, LabelSplit, RandomSplit, SizesSplit, split_by_name
from eigenmesh.errors import DataError, InputError, UnknownNameError


@st.composite
def problems(draw):
    n_samples = draw(st.integers(1, 60))
    n_nodes = draw(st.integers(1, n_samples))
    labels = draw(st.lists(st.integers(0, 8), min_size=n_samples, max_size=n_samples))
    return n_samples, n_nodes, np.array(labels)


def as_lists(rows, n_samples):
    return [np.arange(n_samples)[part].tolist() for part in rows]


SEEDED = [
    RandomSplit(3),
    ContiguousSplit(),
    LabelSplit(),
    DirichletSplit(0.1, 5),
    DirichletSplit(1e-10),
    DirichletSplit(1e6),
]


@pytest.mark.parametrize("split", SEEDED, ids=repr)
@given(problem=problems())
def test_rows_are_partitioned_and_no_node_is_empty(split, problem):
    n_samples, n_nodes, labels = problem
    parts = as_lists(split.rows(n_samples, n_nodes, labels), n_samples)
    assert len(parts) == n_nodes
    assert all(parts)
    assert sorted(chain.from_iterable(parts)) == list(range(n_samples))
    assert all(part == sorted(part) for part in parts)
    assert parts == as_lists(split.rows(n_samples, n_nodes, labels), n_samples)


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8), seed=st.integers(0, 2**32))
def test_sizes_are_kept(sizes, seed):
    parts = as_lists(SizesSplit(sizes, seed).rows(sum(sizes), len(sizes)), sum(sizes))
    assert [len(part) for part in parts] == sizes
    assert sorted(chain.from_iterable(parts)) == list(range(sum(sizes)))


@given(weights=st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=8), extra=st.integers(0, 50))
def test_proportions_are_kept_to_within_one_sample_or_one_at_least(weights, extra):
    proportions = np.array(weights) / sum(weights)
    n_samples = len(weights) + extra
    parts = as_lists(SizesSplit(list(proportions)).rows(n_samples, len(weights)), n_samples)
    assert sorted(chain.from_iterable(parts)) == list(range(n_samples))
    sizes = np.array([len(part) for part in parts])
    assert sizes.min() >= 1
    if (proportions * n_samples >= 1).all():
        assert np.abs(sizes - proportions * n_samples).max() < 1


def test_random_and_contiguous_are_even():
    for split in (RandomSplit(0), ContiguousSplit()):
        assert [len(part) for part in as_lists(split.rows(11, 4), 11)] == [3, 3, 3, 2]


@pytest.mark.parametrize("many", [0, 2048])
def test_all_splits_into_given_sizes_are_equally_likely(many, monkeypatch):
    monkeypatch.setattr("eigenmesh.data.split.MANY_ROWS", many)
    counts = Counter(str(as_lists(SizesSplit([1, 2, 1], seed).rows(4, 3), 4)) for seed in range(3000))
    assert len(counts) == 12
    # The expected number of each is 250, with a standard deviation of 15.
    assert max(abs(count - 250) for count in counts.values()) < 75


@given(sizes=st.lists(st.integers(2048, 5000), min_size=1, max_size=4), seed=st.integers(0, 2**32))
@settings(max_examples=10)
def test_sizes_of_many_rows_are_kept(sizes, seed):
    parts = SizesSplit(sizes, seed).rows(sum(sizes), len(sizes))
    assert [len(part) for part in parts] == sizes
    assert all((np.diff(part) > 0).all() for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(sum(sizes)))


def test_seeds_differ_and_the_global_state_is_not_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (as_lists(RandomSplit(seed).rows(50, 5), 50) for seed in (1, 2))
    assert first != second
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_label_split_one_label_a_node():
    labels = np.array(["b", "a", "c", "a", "b", "a"])
    parts = as_lists(LabelSplit().rows(6, 3, labels), 6)
    assert parts == [[1, 3, 5], [0, 4], [2]]


@given(problem=problems())
def test_label_split_gives_as_few_labels_as_can_be(problem):
    n_samples, n_nodes, labels = problem
    n_labels = len(np.unique(labels))
    parts = as_lists(LabelSplit().rows(n_samples, n_nodes, labels), n_samples)
    most = max(len(np.unique(labels[part])) for part in parts)
    assert most == -(-n_labels // n_nodes)


def test_label_split_divides_the_largest_labels():
    labels = np.repeat([0, 1], [30, 10])
    sizes = [len(part) for part in as_lists(LabelSplit().rows(40, 4, labels), 40)]
    assert sizes == [10, 10, 10, 10]


def test_dirichlet_skews_by_alpha():
    labels = np.arange(5000) % 10
    spread = {}
    for alpha in (0.05, 100.0):
        parts = DirichletSplit(alpha, 0).rows(5000, 10, labels)
        shares = np.array([np.bincount(labels[part], minlength=10) / len(part) for part in parts])
        spread[alpha] = shares.max(axis=1).mean()
    assert spread[0.05] > 0.5
    assert spread[100.0] < 0.15


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("random", RandomSplit(7)),
        ("contiguous", ContiguousSplit()),
        ("label", LabelSplit()),
        ("dirichlet:0.1", DirichletSplit(0.1, 7)),
        ("sizes:10,20,30", SizesSplit((10, 20, 30), 7)),
        ("sizes:0.5,0.5", SizesSplit((0.5, 0.5), 7)),
    ],
)
def test_splits_by_name(name, split):
    assert split_by_name(name, 7) == split


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("randm", UnknownNameError, "unknown split 'randm'; .*Did you mean 'random'"),
        ("random:3", InputError, "takes no argument; leave out '3'"),
        ("dirichlet", InputError, "written 'dirichlet:0.1', alpha > 0; got ''"),
        ("dirichlet:-1", InputError, "alpha > 0; got '-1'"),
        ("sizes:3,x", InputError, "written 'sizes:10,20,30'.*got '3,x'"),
        ("sizes:3,0", InputError, "all positive; got '3,0'"),
    ],
)
def test_bad_names(name, error, message):
    with pytest.raises(error, match=message):
        split_by_name(name, 0)


@pytest.mark.parametrize(
    ("split", "arguments", "error", "message"),
    [
        (RandomSplit(), (5, 6), DataError, "n_nodes = 6 is more than the 5 samples"),
        (ContiguousSplit(), (5, 0), InputError, "n_nodes must be at least 1; got 0"),
        (LabelSplit(), (5, 2), InputError, "needs labels"),
        (DirichletSplit(1.0), (5, 2, np.zeros(4)), DataError, r"one for each of 5 samples; got shape \(4,\)"),
        (LabelSplit(), (2, 2, np.array([1, "a"], dtype=object)), DataError, "labels cannot be sorted"),
        (SizesSplit([2, 2]), (5, 2), InputError, "sizes sum to 4 but there are 5 samples"),
        (SizesSplit([0.2, 0.2]), (5, 2), InputError, "proportions sum to 0.4, not to 1"),
        (SizesSplit([2, 3]), (5, 3), InputError, "has 2 sizes but there are 3 nodes"),
    ],
)
def test_bad_splits(split, arguments, error, message):
    with pytest.raises(error, match=message):
        split.rows(*arguments)


def test_bad_hyperparameters():
    with pytest.raises(InputError, match="positive and finite; got 0"):
        DirichletSplit(0)
    with pytest.raises(InputError, match=r"positive and finite; got \[1, -1\]"):
        SizesSplit([1, -1])
