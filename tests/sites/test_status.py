"""The status file and the metrics port: what is written is what is read, whole, by this machine alone."""

import math
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import closing
from types import SimpleNamespace

import pytest

from eigenmesh.atomic_write import read_secret
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.events import Ended, EventReader, Lost, Members, NeighbourStatus, Record, SiteStatus
from eigenmesh.sites import read_site
from eigenmesh.sites.addresses import Address
from eigenmesh.sites.prometheus import Metrics, gauges_of
from eigenmesh.sites.status import Reporter, Status, health, read_status, write_status
from eigenmesh.transports.tls.connection import Supervisor
from eigenmesh.transports.tls.transport import TransportStatus
from waiting import LIMIT_S, until

OSLO = NeighbourStatus("oslo", True, 1e9, True, 11, 1000, 2000, round_trip_s=0.04)
BODO = NeighbourStatus("bodo", refusal="another run")


def _status(**changes):
    return Status(**{"site": "bergen", "run": "r", "phase": "running", "neighbours": (OSLO, BODO), **changes})


@pytest.mark.parametrize("residual", [math.nan, 1e-3])
def test_what_is_written_is_what_is_read(tmp_path, residual):
    status = _status(round=12, residual=residual, started=5.0)
    assert write_status(tmp_path / "status.json", status)
    found = read_status(tmp_path / "status.json")
    assert found.neighbours == (OSLO, BODO)
    assert found.waiting_for == ("oslo",)
    assert (found.round, found.pid, found.started) == (12, os.getpid(), 5.0)
    assert found.residual == pytest.approx(residual, nan_ok=True)


def test_a_reader_never_sees_half_a_file(tmp_path):
    path = tmp_path / "status.json"
    write_status(path, _status())
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            write_status(path, _status(round=number, message="x" * (number % 5000)))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen = [read_status(path).round for _ in range(300)]
    finally:
        stop.set()
        thread.join(timeout=10)
    assert seen == sorted(seen)
    assert [name.name for name in tmp_path.iterdir()] == ["status.json"]


def test_health_tells_running_stale_gone_and_ended():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(timeout=300)
    assert health(_status()) == "running"
    assert health(_status(), now=_status().written + 60) == "stale"
    assert health(_status(pid=ended.pid)) == "gone"
    assert health(_status(phase="done", pid=ended.pid)) == "ended"


def test_a_disk_that_refuses_ends_nothing(tmp_path, caplog):
    assert not write_status(tmp_path / "none" / "status.json", _status())
    assert "cannot be written" in caplog.text


def test_what_is_no_status_is_refused(tmp_path):
    with pytest.raises(UnreadableFileError, match="no peer has been started"):
        read_status(tmp_path / "status.json")
    for text in ("{", "[]", "{}", '{"neighbours": [{"nam": 1}], "residual": null}'):
        (tmp_path / "status.json").write_text(text)
        with pytest.raises(UnreadableFileError, match="not a status file"):
            read_status(tmp_path / "status.json")


# Event -> what it changes in the status.
STORY = [
    (Members("r", "bergen", 1, ("bergen", "oslo", "bodo"), ("voss",)), {"phase": "connecting", "epoch": 1}),
    (SiteStatus(0, 50.0, "no journal"), {"waiting_since": 50.0, "message": "no journal"}),
    (OSLO, {"neighbours": (OSLO,), "bytes": 1000}),
    (BODO, {"neighbours": (OSLO, BODO)}),
    (SiteStatus(3), {"phase": "moments", "round": 3, "waiting_since": 0.0, "message": ""}),
    (Record(1, 4, 5, 6, 7, 0.25), {"phase": "running", "residual": 0.25}),
    (OSLO._replace(waiting=False, bytes_sent=1500), {"bytes": 1500}),
    (Lost(("bodo",), "silent"), {"phase": "agreeing"}),
    (Members("r", "bergen", 2, ("bergen", "oslo")), {"phase": "connecting", "epoch": 2, "round": 0, "neighbours": ()}),
    (OSLO, {"neighbours": (OSLO,), "bytes": 1000}),
    (Ended("parked", message="stopped"), {"phase": "parked", "message": "stopped"}),
]


def test_status_and_metrics_follow_from_the_events():
    status = Status("bergen", "r", "connecting")
    with closing(Metrics(Address("127.0.0.1", 0), lambda: gauges_of(status))) as metrics:
        for event, changes in STORY:
            status = status.after(event)
            assert {name: getattr(status, name) for name in changes} == changes, event
        lines = _served(metrics.port)
    for line in (
        'eigenmesh_residual{run="r",site="bergen"} 0.25',
        'eigenmesh_sent_bytes{run="r",site="bergen"} 1000.0',
        'eigenmesh_running{run="r",site="bergen"} 0.0',
        'eigenmesh_neighbour_sent_bytes{neighbour="oslo",run="r",site="bergen"} 1000.0',
    ):
        assert line in lines


def _served(port, token=""):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode().splitlines()


def test_metrics_with_a_token_are_for_those_who_show_it(tmp_path):
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    secret.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        read_secret(secret)
    secret.chmod(0o600)
    token = read_secret(secret)
    with closing(Metrics(Address("127.0.0.1", 0), lambda: gauges_of(_status()), token)) as metrics:
        assert 'eigenmesh_running{run="r",site="bergen"} 1.0' in _served(metrics.port, "s3cret")
        for wrong in ("", "s3cre", "other"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                _served(metrics.port, wrong)


def test_metrics_on_an_address_that_others_reach_need_a_token(mesh):
    path = mesh / "bergen" / "site.toml"
    text = path.read_text()
    path.write_text(text.replace('# metrics = "127.0.0.1:9400"', 'metrics = "0.0.0.0:9400"'))
    with pytest.raises(InputError, match="needs a token"):
        read_site(path)
    path.write_text('metrics_token = "metrics.token"\n' + path.read_text())
    assert read_site(path).metrics.address.port == 9400


def test_metrics_are_served_on_the_loopback_address_alone():
    status = _status(round=12, residual=0.5, bytes=77, waiting_since=100.0, written=103.0)
    with closing(Metrics(Address("127.0.0.1", 0), lambda: gauges_of(status))) as metrics:
        lines = _served(metrics.port)
        for line in (
            'eigenmesh_round{run="r",site="bergen"} 12.0',
            'eigenmesh_residual{run="r",site="bergen"} 0.5',
            'eigenmesh_sent_bytes{run="r",site="bergen"} 77.0',
            'eigenmesh_waiting_seconds{run="r",site="bergen"} 3.0',
            'eigenmesh_running{run="r",site="bergen"} 1.0',
            'eigenmesh_neighbour_up{neighbour="oslo",run="r",site="bergen"} 1.0',
            'eigenmesh_neighbour_up{neighbour="bodo",run="r",site="bergen"} 0.0',
            'eigenmesh_neighbour_round_trip_seconds{neighbour="oslo",run="r",site="bergen"} 0.04',
            'eigenmesh_neighbour_round_trip_seconds{neighbour="bodo",run="r",site="bergen"} NaN',
        ):
            assert line in lines
        status = _status(phase="done")
        assert 'eigenmesh_running{run="r",site="bergen"} 0.0' in _served(metrics.port)
        # All of 127/8 leads to this machine, so a server on all interfaces would answer here too.
        with pytest.raises(OSError, match=r"refused|timed out"):
            socket.create_connection(("127.0.0.2", metrics.port), timeout=2)
    metrics.close()


def test_a_port_that_is_taken_is_an_error_in_words():
    with (
        closing(Metrics(Address("127.0.0.1", 0), list)) as metrics,
        pytest.raises(UnreadableFileError, match=r"metrics at .* use another"),
    ):
        Metrics(Address("127.0.0.1", metrics.port), list)


def test_a_link_that_is_down_keeps_its_round_trip(mesh):
    site = read_site(mesh / "bergen" / "site.toml")
    site.out.folder.mkdir()
    links = [NeighbourStatus("oslo", up, round_trip_s=trip_s) for up, trip_s in ((True, 0.04), (False, 0.0))]
    seen = [TransportStatus(0, False, (), "", (link,)) for link in links]
    reporter = Reporter(site)
    reporter.transport = SimpleNamespace(status=lambda: seen.pop(0))
    for connected in (True, False):
        reporter._poll()
        (told,) = reporter._status.neighbours
        assert (told.connected, told.round_trip_s) == (connected, 0.04)


def test_a_wait_ends_with_its_round_also_if_every_look_meets_one(mesh, monkeypatch):
    site = read_site(mesh / "bergen" / "site.toml")
    site.out.folder.mkdir()
    rounds, clock = iter((7, 7, 8, 8)), iter((100.0, 101.0, 102.0, 103.0))
    monkeypatch.setattr("eigenmesh.sites.status.time", SimpleNamespace(time=lambda: 0.0))
    reporter = Reporter(site)
    monkeypatch.setattr("eigenmesh.sites.status.time", SimpleNamespace(time=lambda: next(clock)))
    reporter.transport = SimpleNamespace(status=lambda: TransportStatus(next(rounds), False, ("oslo",), "", ()))
    since = []
    for _ in range(4):
        reporter._poll()
        since.append(reporter._status.waiting_since)
    assert since == [100.0, 100.0, 102.0, 102.0]


def test_the_audit_comes_to_the_disk_about_every_second(mesh):
    site = read_site(mesh / "bergen" / "site.toml")
    site.out.folder.mkdir()
    synced = threading.Semaphore(0)
    with Reporter(site) as reporter:
        reporter.sync_audit = synced.release
        for _ in range(2):
            assert synced.acquire(timeout=LIMIT_S)


def test_a_status_thread_that_dies_is_reported(mesh):
    site = read_site(mesh / "bergen" / "site.toml")
    site.out.folder.mkdir()
    failed, supervisor = threading.Event(), Supervisor()
    supervisor.on_failure = lambda error: failed.set()
    with Reporter(site, supervisor=supervisor) as reporter:
        reporter.transport = SimpleNamespace(status=lambda: 1 / 0)
        assert failed.wait(LIMIT_S)
        reporter.transport = None
    with pytest.raises(ZeroDivisionError):
        supervisor.check()


@pytest.mark.parametrize("gone", [BrokenPipeError("gone"), SystemExit(1)])
def test_a_terminal_that_has_gone_ends_neither_the_reports_nor_the_run(mesh, caplog, gone):
    def listener(status):
        raise gone

    site = read_site(mesh / "bergen" / "site.toml")
    site.out.folder.mkdir()
    supervisor = Supervisor()
    with Reporter(site, listener, supervisor):
        before = read_status(site.out.status).written
        until(lambda: read_status(site.out.status).written > before, "the status is not written again")
    supervisor.check()
    assert caplog.text.count("progress is no longer shown") == 1


def test_what_neighbours_say_comes_to_status_and_events_as_one_plain_line(mesh):
    forged = 'no\x1b[2J\n{"kind": "ended"} \u202eoslo'
    site = read_site(mesh / "bergen" / "site.toml")
    site.out.folder.mkdir()
    link = NeighbourStatus("oslo", refusal=forged)
    transport = SimpleNamespace(status=lambda: TransportStatus(0, False, (), "", (link,)))
    with Reporter(site) as reporter:
        reporter.transport = transport
        reporter.end(Ended("aborted", message=forged))
    found = read_status(site.out.status)
    said = [found.message, found.neighbours[0].refusal]
    said += [entry.event.message for entry in EventReader(site.out.events).new() if isinstance(entry.event, Ended)]
    assert said == ['no {"kind": "ended"} oslo'] * 3
