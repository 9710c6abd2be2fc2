"""Pages from the command line."""

import json
import re
import signal
import subprocess
import sys
import urllib.request

import numpy as np

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
    assert run["events"][0]["kind"] == "started"
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
    assert f"tol = {numbers['tol']:g}" in run["certificate"][0]


def test_a_live_fit_names_its_page_and_ends(call):
    done = call("fit", "digits", "-k", 2, "--nodes", 3, "--live")
    assert done.exit_code == 0, done.output
    assert re.search(r"watch it at http://127\.0\.0\.1:\d+/\?token=\S{20,}", done.output)


def test_a_run_that_is_not_there_is_named(call):
    done = call("watch", "nowhere")
    assert done.exit_code == 2
    assert "nowhere is not there; give a site.toml" in " ".join(done.output.split())


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
        assert {name for name, _, _ in found["left"]["neighbours"]} == {"bergen", "tromso"}
        words = [sys.executable, "-m", "eigenmesh", "watch", str(mesh.folder("oslo") / "site.toml")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watching:
            address = watching.stdout.readline().split()[-1]
            assert "oslo in test" in urllib.request.urlopen(address, timeout=60).read().decode()
            said = {}
            with urllib.request.urlopen(address.replace("/?", "/events?"), timeout=60) as stream:
                for line in stream:
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "data":
                        said.setdefault(kind, []).append(json.loads(value))
                    if "left" in said and any(event["kind"] == "ended" for part in said["run"] for event in part):
                        break
            watching.send_signal(signal.SIGINT)
            assert watching.wait(60) == 0
    assert {name for name, _, _ in said["left"][-1]["neighbours"]} == {"bergen", "tromso"}
    assert "masked" in said["left"][-1]["words"][0]
