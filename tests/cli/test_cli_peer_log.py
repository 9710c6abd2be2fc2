"""The log of a peer: plain lines, and not filled by whoever knocks."""

import json
import logging
from pathlib import Path

import pytest

from eigenmesh.cli.site_run import MOST_REFUSALS, REFUSALS_EVERY_S, FewRefusals, logged


def _record(text, *args):
    return logging.LogRecord("eigenmesh", logging.WARNING, "", 0, text, args, None)


def test_refused_strangers_are_counted_and_not_all_listed():
    now = [0.0]
    few = FewRefusals(lambda: now[0])
    said = [few.filter(_record("refused a TLS handshake: %s", "no certificate")) for _ in range(1000)]
    assert sum(said) == MOST_REFUSALS
    assert few.filter(_record("link to %s is up", "oslo"))
    now[0] += REFUSALS_EVERY_S
    record = _record("refused a TLS handshake: %s", "expired")
    assert few.filter(record)
    assert record.getMessage() == "refused a TLS handshake: expired (and 980 more before that)"
    again = _record("refused a TLS handshake: %s", "expired")
    assert few.filter(again)
    assert again.getMessage() == "refused a TLS handshake: expired"


def test_every_kind_of_refusal_is_bounded_and_one_does_not_hide_the_other():
    few = FewRefusals(lambda: 0.0)
    said = [
        few.filter(_record("%s", f"refused mallory at ipv4:127.0.0.1:{port}: no greeting.")) for port in range(1000)
    ]
    assert sum(said) == MOST_REFUSALS
    assert few.filter(_record("refused a TLS handshake: %s", "expired"))


def test_a_line_of_the_log_is_one_plain_object(tmp_path):
    with logged(tmp_path / "peer.log"):
        logging.getLogger("eigenmesh.test").warning("link to oslo: %s", 'no\x1b[31m\n{"level": "INFO"}')
    (line,) = (tmp_path / "peer.log").read_text().splitlines()
    assert json.loads(line)["message"] == 'link to oslo: no {"level": "INFO"}'


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_neither_ends_the_run_nor_prints_tracebacks(capsys):
    with logged(Path("/dev/full")):
        logging.getLogger("eigenmesh").warning("a line that is lost")
    assert capsys.readouterr().err == ""
