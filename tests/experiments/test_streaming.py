"""Streaming methods of the literature: their steps as published, what they send, and partial_fit ahead of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import IncrementalPCA

from eigenmesh import graphs
from eigenmesh.averaging import Tree
from eigenmesh.networks import Stacked
from eigenmesh.solvers.base import random_basis

PATH = Path(__file__).parents[2] / "benchmarks" / "stream_methods.py"
SPEC = importlib.util.spec_from_file_location("stream_methods", PATH)
streaming = sys.modules["stream_methods"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(streaming)

TICKS, M, D = 30, 5, 6


def stream(topology="cycle", k=1):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((TICKS, M, D)) * np.linspace(2, 0.5, D)
    network = Stacked(graphs.metropolis(graphs.topology(topology, M)), Tree())
    return streaming.SampleStream(samples, network, np.eye(D)[:, :k], random_basis(D, k, 1), gap=0.5)


def last(method, given):
    *_, (estimate, sent) = method.estimates(given)
    return estimate, sent


@pytest.mark.parametrize("ticks", [1, 3])
def test_d_krasulina_takes_the_published_steps(ticks):
    given = stream()
    v = given.start[:, 0]
    for t in range(TICKS // ticks):
        rows = given.samples[t * ticks : (t + 1) * ticks].reshape(-1, D)
        xi = sum(x * (x @ v) - (x @ v) ** 2 / (v @ v) * v for x in rows) / len(rows)
        v = v + (3.0 / (2 * 0.5)) / (20 + t + 1) * xi
    estimate, sent = last(streaming.DKrasulina(3.0, 20, ticks), given)
    assert np.allclose(estimate[0, :, 0], v / np.linalg.norm(v), atol=1e-12)
    # One average over the tree per step: up and down each of its links.
    assert sent.messages == TICKS // ticks * 2 * (M - 1)
    assert sent.bytes == sent.messages * 8 * D


@pytest.mark.parametrize("k", [1, 3])
def test_distributed_oja_takes_the_published_steps(k):
    given = stream(k=k)
    W = given.network.weights.matrix
    W = np.asarray(W.toarray() if hasattr(W, "toarray") else W)
    Q = [given.start] * M
    for t in range(TICKS):
        Z = [np.outer(x, x) @ q for x, q in zip(given.samples[t], Q, strict=True)]
        for _ in range(4):
            Z = [sum(W[i, j] * Z[j] for j in range(M)) for i in range(M)]
        stepped = [np.linalg.qr(q + 3.0 / (20 + t + 1) * z) for q, z in zip(Q, Z, strict=True)]
        Q = [q * np.sign(np.diagonal(r)) for q, r in stepped]
    estimate, sent = last(streaming.DistributedOja(3.0, 20, mixes=4), given)
    assert np.allclose(estimate, np.stack(Q), atol=1e-12)
    assert sent.messages == TICKS * 4 * 2 * M


def test_partial_fit_gives_the_components_of_all_samples():
    given = stream()
    estimate, _ = last(streaming.EveryBatch(10), given)
    truth = np.linalg.eigh(np.cov(given.samples.reshape(-1, D).T))[1][:, -1:]
    assert np.abs(np.abs(np.sum(estimate * truth, axis=1)) - 1).max() < 1e-8


def test_incremental_pca_gets_all_samples_in_one_place():
    given = stream()
    estimate, sent = last(streaming.InOnePlace(10), given)
    theirs = IncrementalPCA(1, batch_size=10 * M).fit(given.samples.reshape(-1, D))
    assert np.allclose(np.abs(estimate[0, :, 0]), np.abs(theirs.components_[0]), atol=1e-12)
    assert (sent.messages, sent.bytes) == (3 * (M - 1), 8 * D * TICKS * (M - 1))


def test_one_pass_is_ahead_at_a_tenth_of_the_messages(monkeypatch):
    monkeypatch.setattr(streaming, "GRID", ((4.0, 500.0),))
    for panel in streaming.streaming_panels(20_000)[:2]:
        rows = streaming.streaming_rows(panel, 2, 1)
        (ours,) = [row for row in rows if row.method.label == streaming.OUR_STREAM]
        assert {row.method.label for row in rows} >= {"D-Krasulina", "C-DIEGO"}
        for theirs in rows:
            if theirs.method.label in ("D-Krasulina", "C-DIEGO"):
                assert ours.at_end("error") < theirs.at_end("error")
                assert ours.at_end("messages") < 0.1 * theirs.at_end("messages")


def test_curves_count_samples_and_messages_and_end_at_the_end():
    panel = streaming.StreamPanel("small", 0.5, 1, (), n_samples=1000, n_nodes=M, d=D)
    method = streaming.StreamMethod("D-Krasulina", streaming.DKrasulina(2.0, 50, ticks=4))
    curve = streaming.follow_stream(method, panel, 0, 0)
    assert curve.samples[-1] == 1000
    assert curve.messages[-1] == 50 * 2 * (M - 1)
    assert (np.diff(curve.samples) > 0).all()
    assert (np.diff(curve.messages) > 0).all()
    again, other = streaming.follow_stream(method, panel, 0, 0), streaming.follow_stream(method, panel, 0, 1)
    assert (curve.error == again.error).all()
    assert (curve.error != other.error).all()


def test_of_a_grid_the_setting_with_the_least_error_is_shown():
    methods = [streaming.StreamMethod("D-Krasulina", streaming.DKrasulina(c_0, 50)) for c_0 in (1e-6, 2.0)]
    panel = streaming.StreamPanel("small", 0.5, 1, tuple(methods), n_samples=1000, n_nodes=M, d=D)
    (best,) = streaming.streaming_rows(panel, 1, 0)
    assert best.method == methods[1]
    assert "c_0=2, offset=50, ticks=1" in best.method.words
