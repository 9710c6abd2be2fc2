"""``fit --transport`` and ``launch``: real nodes, the answer of the simulation, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA
from eigenmesh.cli.launch import MARK
from eigenmesh.cli.messages import NODES_FOLDER
from eigenmesh.errors import DataWarning, InputError
from eigenmesh.fitting.problem import files_of_all_nodes, has_rank, with_rank
from eigenmesh.transports import TRANSPORTS
from eigenmesh.transports.threads import ThreadHub
from problems import angles, truth
from transports.engines import ENGINES

MODULE = [sys.executable, "-m", "eigenmesh"]
LIMIT_S = 600
linux = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


def engines():
    for name in (name for name, kind in TRANSPORTS.items() if kind.launcher is not None):
        missing = ENGINES[name].missing()
        yield pytest.param(name, marks=pytest.mark.skipif(missing is not None, reason=str(missing)))


def launch(folder, engine, nodes, *words, **settings):
    command = [*MODULE, "launch", "--nodes", str(nodes), "--transport", engine, "--", "fit", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False, **settings)


@pytest.fixture
def rows(tmp_path, samples):
    np.save(tmp_path / "all.npy", samples)
    for rank, part in enumerate(np.split(samples, [70, 100])):
        np.save(tmp_path / f"site-{rank:02d}.npy", part)
    return samples


def test_a_process_that_was_started_alone_is_told_so(call, tmp_path, rows, monkeypatch):
    alone = replace(TRANSPORTS["mpi"], connect=lambda device, timeout_s: ThreadHub(1).transport(0))
    monkeypatch.setitem(TRANSPORTS, "mpi", alone)
    done = call("fit", "site-{rank:02d}.npy", "-k", 2, "--transport", "mpi")
    assert done.exit_code == 0, done.output
    assert "is the only node: each node is a rank under mpiexec" in " ".join(done.stderr.split())
    with pytest.warns(DataWarning, match="eigenmesh launch --nodes 4 --transport mpi starts several") as told:
        DecentralizedPCA(2, transport="mpi").fit(rows)
    assert told[0].filename == __file__


@pytest.mark.slow
@pytest.mark.parametrize("engine", list(engines()))
def test_nodes_with_a_file_each_give_the_pooled_components(call, tmp_path, rows, engine):
    words = [
        "site-{rank:02d}.npy",
        "-k",
        "2",
        "--topology",
        "path",
        "--averaging",
        "tree",
        "--tol",
        "1e-9",
        "--seed",
        "0",
        "--solver",
        "block-krylov",
    ]
    done = launch(tmp_path, engine, 3, *words, "--out", "pca.npz", "--json", "own-{rank}.json")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "pca.npz") as arrays:
        assert angles(arrays["components"], truth(rows)[1]).max() < 1e-9
        assert np.allclose(arrays["mean"], rows.mean(axis=0), rtol=1e-13)
        assert arrays["node_names"].tolist() == ["site-00", "site-01", "site-02"]
    # Every node writes what is its own; they agree to the last bit on what was decided.
    numbers = [json.loads((tmp_path / f"own-{rank}.json").read_text()) for rank in range(3)]
    assert len({number["error_bound"] for number in numbers}) == 1
    assert {number["n_samples"] for number in numbers} == {240}
    assert done.stdout.count("Converged in") == 1
    # The same rounds and bytes as in a simulation of the same three files.
    files = [f"site-{rank:02d}.npy" for rank in range(3)]
    simulated = call("fit", *files, *words[1:], "--json", "-")
    expected = json.loads(simulated.stdout)
    for name in ("rounds", "bytes", "messages", "iterations"):
        assert numbers[0][name] == expected[name], name


@pytest.mark.slow
# Which rows a process reads is the same for all engines.
@pytest.mark.parametrize("engine", [engine for engine in engines() if engine.values[0] != "torch"])
def test_one_file_is_shared_out_by_rows(tmp_path, rows, engine):
    done = launch(tmp_path, engine, 2, "all.npy", "-k", "2", "--out", "pca.npz")
    assert done.returncode == 0, done.stderr
    assert "contiguous: 120 samples at node 0" in done.stdout
    with np.load(tmp_path / "pca.npz") as arrays:
        assert angles(arrays["components"], truth(rows)[1]).max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("engine", list(engines()))
def test_a_node_with_bad_data_ends_all_with_its_reason(tmp_path, rows, engine):
    broken = np.array(rows[:50])
    broken[7, 3] = np.nan
    np.save(tmp_path / "site-01.npy", broken)
    done = launch(tmp_path, engine, 2, "site-{rank:02d}.npy", "-k", "2", "--out", "pca.npz")
    assert done.returncode != 0
    assert "node 1" in done.stderr
    assert "row 7" in done.stderr
    assert not (tmp_path / "pca.npz").exists()


# Name of a run -> what follows `fit`, and its exit status. FAST-PCA cannot be done after one round.
RUNS = {
    "converged": (["site-{rank:02d}.npy"], 0),
    "not converged": (["site-{rank:02d}.npy", "--solver", "fast-pca", "--max-rounds", "1"], 1),
    "bad data at node 1": (["bad-{rank}.npy"], 2),
    "bad setting": (["site-{rank:02d}.npy", "--tol", "7"], 2),
}
# A picture takes node 0 longer than the other nodes take to end.
FILES = {"--out": "pca.npz", "--plot": "pca.png", "--report": "pca.html"}


@pytest.fixture
def good_and_bad(tmp_path, rows):
    for rank in range(3):
        broken = np.array(rows[rank::3])
        broken[7, 3] = np.nan if rank == 1 else 0.0
        np.save(tmp_path / f"bad-{rank}.npy", broken)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("run", list(RUNS))
@pytest.mark.parametrize("engine", list(engines()))
def test_a_launch_ends_with_the_status_that_the_help_states(good_and_bad, engine, run):
    words, status = RUNS[run]
    outputs = [word for pair in FILES.items() for word in pair]
    done = launch(good_and_bad, engine, 3, *words, "-k", "2", *outputs)
    assert done.returncode == status, done.stderr
    written = [name for name in FILES.values() if (good_and_bad / name).exists()]
    assert written == ([] if status == 2 else list(FILES.values())), done.stderr
    assert "Traceback" not in done.stderr


def by_starter(engine, folder, *runs):
    """Nodes started without `eigenmesh launch`; each run is the number of nodes, and what follows `fit`."""
    kind = TRANSPORTS[engine]
    if engine == "mpi":
        start, *_ = kind.launcher(1)
        parts = [["-n", str(n), *MODULE, "fit", *words, "--transport", engine] for n, words in runs]
        command = [start, *(word for part in parts for word in [":", *part])]
        command.remove(":")
    else:
        ((n, words),) = runs
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
        command = [*start, "-m", "eigenmesh", "fit", *words, "--transport", engine]
    settings = {**os.environ, **kind.environment, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@pytest.mark.slow
# It is `fit` that ends them, as in a launch.
@pytest.mark.parametrize("run", ["not converged", "bad data at node 1"])
@pytest.mark.parametrize("engine", [engine for engine in engines() if engine.values[0] != "threads"])
def test_mpiexec_ends_with_that_status_and_torchrun_with_one_for_all_failures(good_and_bad, engine, run):
    words, status = RUNS[run]
    done = by_starter(engine, good_and_bad, (3, [*words, "-k", "2"]))
    assert done.returncode == (status if engine == "mpi" else min(status, 1)), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(ENGINES["mpi"].missing() is not None, reason=str(ENGINES["mpi"].missing()))
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scale"], "scale: true at node 2, false at nodes 0, 1"),
        (["--split", "random"], 'split: "random" at node 2, "contiguous" at nodes 0, 1'),
        (["--table", "drop=3"], "n_features"),
    ],
    ids=" ".join,
)
def test_commands_that_differ_at_one_rank_end_by_name(tmp_path, rows, words, said):
    done = by_starter("mpi", tmp_path, (2, ["all.npy", "-k", "2"]), (1, ["all.npy", "-k", "2", *words]))
    assert done.returncode == 2, done.stderr
    assert f"nodes have different settings: {said}" in done.stderr


def long_run(folder) -> list[str]:
    """FAST-PCA with a step that leads nowhere, in iterations that take long: time enough to disturb it."""
    np.save(folder / "wide.npy", np.random.default_rng(0).standard_normal((1500, 600)))
    settings = ["-k", "60", "--covariance", "formed", "--max-rounds", "100000000"]
    return ["wide.npy", "--solver", "fast-pca:step_size=1e-9", *settings, "--out", "pca.npz"]


@pytest.mark.slow
@linux
@pytest.mark.parametrize(
    ("engine", "how"),
    [
        pytest.param(*engine.values, how, marks=engine.marks)
        for engine in engines()
        # How the launcher takes a signal is the same for all engines; how engines end is not.
        for how in (["SIGINT", "SIGTERM"] if engine.values[0] == "threads" else ["SIGTERM"])
    ],
)
def test_an_interrupted_launch_leaves_nothing_running(tmp_path, rows, engine, how):
    words = long_run(tmp_path)
    command = [*MODULE, "launch", "--nodes", "2", "--transport", engine, "--", "fit", *words]
    running = started(command, tmp_path)
    children = started_by(running.pid)
    os.kill(running.pid, getattr(signal, how))
    _, said = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 130
    assert said.endswith("interrupted.\n")
    assert "Traceback" not in said
    assert children
    assert not [child for child in children if runs(child)]
    assert not (tmp_path / "pca.npz").exists()


@pytest.mark.slow
@linux
@pytest.mark.parametrize("engine", [engine for engine in engines() if engine.values[0] != "threads"])
def test_a_killed_rank_is_named_and_ends_the_rest(tmp_path, rows, engine):
    words = long_run(tmp_path)
    command = [*MODULE, "launch", "--nodes", "3", "--transport", engine, "--", "fit", *words]
    running = started(command, tmp_path)
    children = started_by(running.pid)
    os.kill(nodes_of(running.pid)[1], signal.SIGKILL)
    told, said = running.communicate(timeout=LIMIT_S)
    # MPICH speaks of it on the standard output, where ordinary words about nodes do not count.
    said += "".join(line for line in told.splitlines(keepends=True) if "PID" in line)
    assert running.returncode not in (0, 130)
    assert re.search(r"(rank|node)\W{0,3}1\b", said), said
    assert not [child for child in children if runs(child)]
    assert list(tmp_path.glob("*pca*")) == []


def started(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """A launch whose nodes have joined and are at work."""
    running = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    # Node 0 says how products are made when all have met; iterations follow.
    assert any("covariance" in line for line in running.stdout), running.communicate()
    return running


def nodes_of(pid: int) -> dict[int, int]:
    """Processes of the nodes of a launch, by their numbers, once they have joined the others."""
    found = {}
    for child in started_by(pid):
        try:
            pairs = [line.partition("=") for line in Path(f"/proc/{child}/environ").read_text().split("\0")]
        except OSError:
            continue
        told = {name: value for name, _, value in pairs}
        note = Path(told.get(NODES_FOLDER, "")) / f"{child}.node"
        if note.exists():
            found[int(note.read_text())] = child
    return found


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended; one that nobody has asked for its status yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def started_by(pid: int) -> list[int]:
    """Processes that carry the mark of a launch and descend from it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"{MARK}=".encode() in (folder / "environ").read_bytes()
        except OSError:
            continue
        if marked and pid in ancestors(int(folder.name)):
            found.append(int(folder.name))
    return found


def ancestors(pid: int) -> list[int]:
    line = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        line.append(pid)
    return line


def test_what_cannot_be_launched_is_said(call):
    for words, message in {
        ("--", "graph", "cycle"): "nodes can only run 'fit', not 'graph'",
        ("--transport", "smoke", "--", "fit", "digits"): "unknown transport 'smoke'",
        ("--", "fit", "digits", "--transport", "mpi"): "launch passes --transport to the nodes",
        ("--", "fit", "digits", "--nodes=3"): "launch passes --nodes to the nodes",
    }.items():
        done = call("launch", *words)
        assert done.exit_code == 2
        assert message in done.stderr


@pytest.mark.parametrize("command", ["fit", "launch"])
def test_the_help_names_every_transport_that_can_be_started(call, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "400")
    words = " ".join(call(command, "--help").stdout.split())
    for kind in TRANSPORTS.values():
        assert (f"{kind.description} ({kind.name})" in words) == (kind.launcher is not None)


def test_transports_that_need_more_than_a_name_are_not_started(call):
    for words in (("fit", "digits", "--transport", "tls"), ("launch", "--transport", "tls", "--", "fit", "digits")):
        done = call(*words)
        assert done.exit_code == 2
        assert "'tls'" in done.stderr


def test_unknown_transports_and_patterns_without_a_number_are_errors(call):
    assert "unknown transport 'smoke'" in call("fit", "digits", "--transport", "smoke").stderr
    assert "give the number of nodes with --nodes" in call("fit", "a-{rank}.npy").stderr


def test_simulation_takes_a_pattern_too(call, tmp_path, rows):
    done = call("fit", "site-{rank:02d}.npy", "--nodes", "3", "-k", "2", "--out", "pca.npz")
    assert done.exit_code == 0, done.stderr
    with np.load(tmp_path / "pca.npz") as arrays:
        assert angles(arrays["components"], truth(rows)[1]).max() < 1e-6


@pytest.mark.parametrize("out", ["a-{rank}.npz", "./a-1.npz", "a-{rank:01d}.npz"])
@pytest.mark.parametrize("data", [["a-0.npz", "a-1.npz"], ["a-{rank}.npz"]])
def test_results_never_take_the_place_of_data(call, tmp_path, rows, data, out):
    for rank in range(2):
        np.savez(tmp_path / f"a-{rank}.npz", X=rows[rank::2])
    before = [(tmp_path / f"a-{rank}.npz").read_bytes() for rank in range(2)]
    done = call("fit", *data, "--nodes", "2", "-k", "2", "--transport", "threads", "--out", out)
    assert done.exit_code == 2
    assert "is an input already" in done.stderr
    assert [(tmp_path / f"a-{rank}.npz").read_bytes() for rank in range(2)] == before


def test_a_rank_in_an_output_needs_nodes_of_their_own(call, tmp_path, rows):
    done = call("fit", "all.npy", "-k", "2", "--out", "pca-{rank}.npz")
    assert done.exit_code == 2
    assert "--transport" in done.stderr
    assert not list(tmp_path.glob("pca*"))


def test_names_of_files_by_rank():
    assert has_rank("a-{rank}.npy")
    assert not has_rank("a-{rang}.npy")
    assert with_rank("a-{rank}.npy", 12) == "a-12.npy"
    assert with_rank("{rank:03d}/{rank}", 7) == "007/7"
    assert files_of_all_nodes(["x.npy"], None) == ["x.npy"]
    with pytest.raises(InputError, match="--nodes"):
        files_of_all_nodes(["x-{rank}.npy"], None)
