"""The one table of transports: what it says is true, and everything else reads it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.transports import TRANSPORTS, Links, Transport, transport_by_name, transport_kind
from transports.engines import ENGINES

PROJECT = Path(__file__).parents[2]
STARTED = [kind for kind in TRANSPORTS.values() if kind.starts_by_name]


def test_every_transport_is_held_to_the_contract():
    assert set(ENGINES) == set(TRANSPORTS)
    for name, engine in ENGINES.items():
        assert engine.processes == (TRANSPORTS[name].connect is not None)


def test_extras_are_those_of_the_project():
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {kind.extra for kind in TRANSPORTS.values()} <= {None, *extras}


def test_a_process_is_one_node_or_starts_all():
    assert [kind.name for kind in TRANSPORTS.values() if kind.connect is not None] == ["mpi", "torch"]
    assert [kind.name for kind in TRANSPORTS.values() if kind.run_nodes is not None] == ["threads"]
    # Processes do not start themselves.
    assert all(kind.launcher is not None for kind in STARTED)


def test_nodes_that_are_started_in_this_process_exchange_arrays():
    for kind in STARTED:
        if kind.run_nodes is None:
            continue

        def work(link: Transport) -> float:
            other = 1 - link.rank
            return float(link.exchange((np.full(1, link.rank),), Links((other,), (other,)))[other][0][0])

        assert kind.run_nodes(2, work) == [1.0, 0.0]


def test_the_table_imports_no_engine():
    code = "import sys, eigenmesh.transports; print([m for m in ('mpi4py', 'torch', 'uvloop') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "[]"


def test_what_cannot_be_joined_by_name_is_said():
    with pytest.raises(UnknownNameError, match=r"unknown transport 'smoke'; there are: mpi, threads, tls, torch"):
        transport_by_name("smoke")
    with pytest.raises(InputError, match=r"'tls' cannot be started by name: .* a site that eigenmesh site run starts"):
        transport_kind("tls")
    with pytest.raises(InputError, match="'threads' starts all nodes in one process"):
        transport_by_name("threads")


@pytest.mark.parametrize("kind", STARTED, ids=lambda kind: kind.name)
def test_only_some_carry_arrays_of_a_device(kind):
    if kind.device_arrays:
        assert transport_kind(kind.name, "cuda") is kind
    else:
        with pytest.raises(InputError, match=f"'{kind.name}' carries NumPy arrays; leave out device = 'cuda'"):
            transport_kind(kind.name, "cuda")
