"""``eigenmesh demo``: converges, tells the truth beside the bound, leaves a picture."""

from __future__ import annotations

import re
import signal
import sys

import pytest

from eigenmesh.cli import demo as _demo
from eigenmesh.cli.messages import Messages

ROW = re.compile(r"^\s*(\d+)\s+([\d.]+)\s+([\d.]+)%\s+([\d.]+)%\s+(\S+)\s+(\S+)\s*$", re.MULTILINE)


def test_demo_converges_and_leaves_a_picture(call, tmp_path):
    done = call("demo")
    assert done.exit_code == 0, done.output
    rows = ROW.findall(done.stdout)
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5"]
    for *_, bound, truth in rows:
        # Both are printed to two digits.
        assert float(truth) <= 1.05 * float(bound) <= 1.05e-6
    assert "1,797 samples of 64 features" in done.stdout
    assert "20 nodes" in done.stdout
    assert "Converged in" in done.stdout
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_demo_writes_where_it_is_told(call, tmp_path):
    done = call("demo", "--out", "deep/er")
    assert done.exit_code == 0, done.output
    assert {path.name for path in (tmp_path / "deep" / "er").iterdir()} == {"demo.png", "demo.html"}


def test_demo_without_matplotlib_runs_and_says_how_to_get_the_picture(call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = call("demo")
    assert done.exit_code == 0, done.output
    assert len(ROW.findall(done.stdout)) == 5
    assert "pip install 'eigenmesh[report]'" in done.stderr
    assert not (tmp_path / "out" / "demo.png").exists()


def test_demo_that_does_not_converge_says_so(call, tmp_path, monkeypatch):
    parse = _demo.Request.parse
    monkeypatch.setattr(_demo.Request, "parse", lambda **words: parse(**words, max_rounds=5))
    done = call("demo")
    assert done.exit_code == 1
    assert "not converged" in done.stderr
    assert (tmp_path / "out" / "demo.png").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--out", "file/d"), "cannot create the folder file"), (("--peers", 2), "--peers 2 must be between 3 and 11")],
)
def test_demo_refuses_bad_input(call, tmp_path, words, said):
    (tmp_path / "file").write_text("")
    done = call("demo", *words)
    assert done.exit_code == 2, done.output
    assert said in done.stderr


def test_a_demo_of_peers_that_is_told_to_end_leaves_none_running():
    ended = []

    class Sites:
        """Three peers that have been started when the signal comes."""

        names = ("oslo", "bergen", "tromso")

        def start(self, name):
            if name == self.names[-1]:
                signal.raise_signal(signal.SIGTERM)

        def wait(self, done):
            raise AssertionError("the signal was not taken")

        def end(self):
            ended.append(True)

    # Where nothing takes the signal, it ends this test and not the process of all tests.
    before = signal.signal(signal.SIGTERM, lambda *about: None)
    try:
        with pytest.raises(KeyboardInterrupt):
            _demo._run(Messages.silent(), Sites())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended
