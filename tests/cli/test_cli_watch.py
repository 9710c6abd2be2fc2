"""Pages from the command line."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest

from eigenmesh.cli import watch as _watch
from eigenmesh.sites.network_file import EXAMPLE as NETWORK
from mesh import Mesh, ring


def run_of(page):
    return json.loads(re.search(r'id="run">(.*?)</script>', page, re.DOTALL)[1])


def test_a_report_has_the_run_and_what_came_out(call, samples, tmp_path):
    np.savetxt(tmp_path / "samples.csv", samples, delimiter=",", header="a,b,c,d,e,f", comments="")
    done = call(
        "fit", "samples.csv", "-k", 2, "--nodes", 4, "--topology", "cycle", "--report", "run.html", "--json", "run.json"
    )
    assert done.exit_code == 0, done.output
    run, numbers = run_of((tmp_path / "run.html").read_text()), json.loads((tmp_path / "run.json").read_text())
    assert [event["kind"] for event in run["events"][:2]] == ["planned", "started"]
    assert run["events"][0]["rounds"] == pytest.approx(numbers["rounds"], rel=0.2)
    assert run["events"][-1]["kind"] == "ended"
    assert run["components"]["shares"] == numbers["explained_variance_ratio"]
    assert run["components"]["bounds"] == numbers["error_bounds"]
    largest = [dict(map(tuple, pairs)) for pairs in run["components"]["loadings"]]
    assert largest == [
        {name: one[name] for name in pairs} for one, pairs in zip(numbers["loadings"], largest, strict=True)
    ]
    # The scores are those of the samples: rows are dealt out at random, so as sets.
    centred = samples - samples.mean(axis=0)
    vectors = np.linalg.eigh(np.cov(samples.T))[1][:, :-3:-1]
    found = np.array([point[:2] for point in run["components"]["scores"]["points"]])
    assert np.allclose(np.sort(np.abs(found[:, 0])), np.sort(np.abs(centred @ vectors[:, 0])), rtol=1e-3, atol=1e-3)
    assert f"tol = {numbers['tol']:g}" in certificate(run["events"])[0]


def certificate(events):
    """The sentences that a page shows of the last certificate."""
    return [event["words"] for event in events if event["kind"] == "certificate"][-1]


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere/x.html", "there is no folder nowhere; make it first"), ("x.txt", "must end in .html")]
)
@pytest.mark.parametrize("words", [("fit", "nothing.csv"), ("watch", "e.jsonl")])
def test_a_report_that_cannot_be_written_is_named_before_any_work(call, words, name, said, tmp_path):
    (tmp_path / "e.jsonl").write_text('{"version": 1, "kind": "ended", "time_s": 1, "outcome": "done"}\n')
    done = call(*words, "--report", name)
    assert done.exit_code == 2, done.output
    assert f"{name}" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["e.jsonl"]


def kinds(events):
    return [event["kind"] for event in events]


def test_a_stream_has_a_page_of_all_its_fits(call, samples, tmp_path):
    np.save(tmp_path / "all.npy", samples)
    words = ("fit", "all.npy", "--stream", "--batch-rows", 80, "-k", 2, "--nodes", 3, "--events", "e.jsonl")
    done = call(*words, "--report", "run.html", "--json", "run.json")
    assert done.exit_code == 0, done.output
    run, numbers = run_of((tmp_path / "run.html").read_text()), json.loads((tmp_path / "run.json").read_text())
    told = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert kinds(run["events"]) == kinds(told)
    assert told[0]["kind"] == "started"
    assert kinds(told).count("started") == 3
    assert kinds(told).count("batch_checked") == 2
    assert kinds(told).count("ended") == 1
    assert [event["batch"] for event in told if event["kind"] == "batch_checked"] == [1, 2]
    # The network is the same in all of them, and in the file once.
    assert ["nodes" in event for event in run["events"] if event["kind"] == "started"] == [True, False, False]
    assert run["components"]["bounds"] == numbers["error_bounds"]


def test_a_simulation_is_shown_in_virtual_seconds(call, tmp_path):
    (tmp_path / "slow.toml").write_text("[links]\nlatency_ms = 2000\noverhead_ms = 0\n[sites]\nproduct_ms = 10\n")
    data = ("synthetic:kind=paper,d=8,k=2,gap=0.6,n=400", "--nodes", 4, "--topology", "cycle", "-k", 2)
    words = ("--conditions", "slow.toml", "--solvers", "block-krylov,tracked-subspace", "--tol", 1e-4, "--json")
    done = call("simulate", *data, *words, "--events", "e.jsonl")
    assert done.exit_code == 0, done.output
    assert call("watch", "e.jsonl", "--report", "run.html").exit_code == 0
    run = run_of((tmp_path / "run.html").read_text())["events"]
    assert len(run) == len((tmp_path / "e.jsonl").read_text().splitlines())
    trips = [(event["one"], event["other"], event["round_trip_s"]) for event in run if event["kind"] == "link_latency"]
    assert sorted(trips) == [("0", "1", 4.0), ("0", "3", 4.0), ("1", "2", 4.0), ("2", "3", 4.0)]
    starts = [number for number, event in enumerate(run) if event["kind"] == "started"]
    assert [run[number]["solver"] for number in starts] == ["block-krylov", "tracked-subspace"]
    for found, last in zip(json.loads(done.stdout).values(), (run[starts[1] - 1], run[-1]), strict=True):
        assert last["kind"] == "ended"
        assert last["converged"]
        assert last["time_s"] == found["seconds"] > 20


def test_a_rehearsal_shows_who_goes_and_comes_back(call, tmp_path):
    (tmp_path / "network.toml").write_text(NETWORK)
    stated = '[sites]\nproduct_ms = 1\n[[kill]]\nsite = "oslo"\nat_s = 0.2\nrestart_after_s = 3\n'
    (tmp_path / "conditions.toml").write_text(stated)
    words = ("network.toml", "--conditions", "conditions.toml", "--features", 12, "--samples", "40,50,60")
    done = call("site", "rehearse", *words, "--json", "--events", "e.jsonl")
    assert done.exit_code == 0, done.output
    assert call("watch", "e.jsonl", "--report", "run.html").exit_code == 0
    run, found = run_of((tmp_path / "run.html").read_text())["events"], json.loads(done.stdout)
    assert len(run) == len((tmp_path / "e.jsonl").read_text().splitlines())
    (lost,) = (event for event in run if event["kind"] == "lost")
    assert (lost["names"], lost["time_s"]) == (["oslo"], 0.2)
    back = [event["time_s"] for event in run if event["kind"] == "members"]
    assert back == [0.0, pytest.approx(3.2)]
    assert "started" in kinds(run)
    assert kinds(run).count("link_traffic") > 0
    assert {event["round_trip_s"] for event in run if event["kind"] == "link_latency"} == {0.04}
    assert (run[-1]["kind"], run[-1]["converged"], run[-1]["time_s"]) == ("ended", True, found["run_s"])


@pytest.mark.parametrize("name", ["nowhere", "nowhere/run.jsonl"])
def test_a_run_that_is_not_there_is_named(call, name):
    done = call("watch", name)
    assert done.exit_code == 2
    assert f"{name} does not exist; give a site.toml" in " ".join(done.output.split())


def test_the_folder_of_a_site_is_not_waited_for(call, tmp_path):
    (tmp_path / "oslo").mkdir()
    (tmp_path / "oslo" / "site.toml").touch()
    done = call("watch", "oslo")
    assert done.exit_code == 2
    assert "to which no run writes; give oslo/site.toml" in " ".join(done.output.split())


@pytest.mark.parametrize("name", ["out", "later.jsonl"])
def test_what_is_waited_for_is_said(call, tmp_path, monkeypatch, name):
    (tmp_path / "out").mkdir()
    # As if Ctrl-C came at once.
    monkeypatch.setattr(_watch, "threading", SimpleNamespace(Event=lambda: SimpleNamespace(wait=lambda: None)))
    done = call("watch", name)
    assert done.exit_code == 0
    assert f"waiting for the run: there is no event in {name}" in " ".join(done.output.split())


def test_a_file_that_holds_no_events_is_named(call, tmp_path):
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    done = call("watch", "data.csv")
    assert done.exit_code == 2
    assert "data.csv has no events; give a site.toml" in " ".join(done.output.split())


def test_there_is_no_report_of_a_run_that_has_not_begun(call):
    done = call("watch", "later.jsonl", "--report", "run.html")
    assert done.exit_code == 2
    assert "no event in later.jsonl yet" in " ".join(done.output.split())


def test_the_page_of_a_peer_says_what_has_left_and_ends_with_ctrl_c(tmp_path, call):
    X = np.random.default_rng(0).standard_normal((60, 5)) * [5, 4, 3, 1, 1]
    names = ("oslo", "bergen", "tromso")
    with Mesh(tmp_path, {name: X[at::3] for at, name in enumerate(names)}, ring(names), n_components=2) as mesh:
        mesh.start()
        assert set(mesh.wait().values()) == {0}
        assert call("watch", mesh.folder("oslo") / "site.toml", "--report", "oslo.html").exit_code == 0
        found = run_of((tmp_path / "oslo.html").read_text())
        assert found["components"]["bounds"] == mesh.numbers("oslo")["error_bounds"]
        assert "scores" not in found["components"]
        # As if all sites had samples like these.
        forecast = found["events"][0]
        assert forecast["kind"] == "planned"
        assert forecast["rounds"] == pytest.approx(mesh.numbers("oslo")["rounds"], rel=0.3)
        words = certificate(found["events"])
        assert f"at most {mesh.numbers('oslo')['error_bound']:.1e}" in words[1]
        assert any(text.startswith("Masked: nobody has learned a number of any single node") for text in words)
        assert {name for name, _, _ in found["left"]["neighbours"]} == {"bergen", "tromso"}
        command = [sys.executable, "-m", "eigenmesh", "watch", str(mesh.folder("oslo") / "site.toml")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
            address = watching.stdout.readline().split()[-1]
            assert "oslo in test" in urllib.request.urlopen(address, timeout=60).read().decode()
            with urllib.request.urlopen(address.replace("/?", "/events?"), timeout=60) as answer:
                said = json.load(answer)
            watching.send_signal(signal.SIGINT)
            assert watching.wait(60) == 0
    live = said["events"]
    assert live[0] == forecast
    assert (live[-1]["kind"], said["more"], said["lost"]) == ("ended", False, False)
    assert certificate(live) == words
    assert {name for name, _, _ in said["left"]["neighbours"]} == {"bergen", "tromso"}
    assert "masked" in said["left"]["words"][0]
