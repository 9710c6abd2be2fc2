"""The log of a fit: history, listeners, traffic and status are made from the same events."""

from __future__ import annotations

import numpy as np
import pytest

from eigenmesh.averaging import Polynomial, Tree
from eigenmesh.data import Shards
from eigenmesh.events import BoundCertified, EventLog, LinkTraffic, Record, Started, on_record
from eigenmesh.fitting import NodeData, Request, fit, fit_at_every_node, prepare
from eigenmesh.graphs import metropolis
from eigenmesh.graphs.topologies import path
from eigenmesh.transports import TRANSPORTS


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(5)
    mixing = rng.standard_normal((6, 6)) * np.array([8, 4, 2, 1, 0.5, 0.25])
    return [rng.standard_normal((rows, 6)) @ mixing for rows in (30, 20, 40, 25)]


def heard(parts, transport=None, **asked):
    """A fit over a path of four nodes, and the events of it."""
    entries = []
    log = EventLog(entries.append, clock=iter(range(10_000)).__next__)
    request = Request.parse(**{"n_components": 2, "solver": "fast-pca", "tol": 1e-5, **asked})
    shards, weights = Shards.from_list(parts), metropolis(path(4))
    if transport is None:
        fitted = fit(prepare(request, NodeData(shards, weights)), events=log)
    else:
        fitted = fit_at_every_node(TRANSPORTS[transport].run_nodes, request, NodeData(shards, weights), log)
    assert [entry.time_s for entry in entries] == list(range(len(entries)))
    return fitted.result, [entry.event for entry in entries]


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize("wanted", [2, 0.999])
def test_the_history_is_the_records_of_the_log(parts, wanted):
    result, events = heard(parts, n_components=wanted, solver="block-krylov")
    records = of_kind(events, Record)
    assert tuple(records) == result.history
    assert records[-1][1:5] == tuple(vars(result.traffic).values())
    assert records[-1].iteration == result.iterations
    assert [record.iteration for record in records] == sorted(record.iteration for record in records)
    assert of_kind(events, BoundCertified)[-1].rounds == result.traffic.rounds
    (started,) = of_kind(events, Started)
    assert events[0] is started
    assert (started.nodes, started.links) == (tuple("0123"), (("0", "1"), ("1", "2"), ("2", "3")))
    assert started.n_components == wanted


@pytest.mark.parametrize("averaging", [Tree(), Polynomial()])
@pytest.mark.parametrize("transport", [None, "threads"])
def test_the_links_add_up_to_the_traffic(parts, averaging, transport):
    result, events = heard(parts, transport, averaging=averaging)
    links = of_kind(events, LinkTraffic)
    assert {(link.sender, link.receiver) for link in links} == {
        (str(i), str(j)) for i in range(4) for j in range(4) if abs(i - j) == 1
    }
    assert sum(link.messages for link in links) == result.traffic.messages
    assert sum(link.bytes for link in links) == result.traffic.bytes


def test_what_was_prepared_once_and_fitted_twice_counts_its_set_up_once_in_each_fit(parts):
    prepared = prepare(Request(2), NodeData(Shards.from_list(parts), metropolis(path(4))))
    for _ in range(2):
        entries = []
        result = fit(prepared, events=EventLog(entries.append)).result
        links = of_kind([entry.event for entry in entries], LinkTraffic)
        assert sum(link.messages for link in links) == result.traffic.messages
        assert sum(link.bytes for link in links) == result.traffic.bytes


def test_a_new_start_begins_a_new_history():
    seen = []
    log = EventLog(on_record(seen.append))
    started = Started("s", "tree", ("a",), (), 3, 1, 1e-6, 10)
    for event in (started, Record(1, 1, 1, 1, 1), started, Record(2, 2, 2, 2, 2)):
        log.emit(event)
    assert [record.iteration for record in log.history] == [2]
    assert [record.iteration for record in seen] == [1, 2]
