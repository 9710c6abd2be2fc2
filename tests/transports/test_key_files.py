"""Where a key lies while Python's TLS reads it: in memory on Linux, else in a temporary file that goes at once."""

import os
import ssl
import sys
import tempfile
from contextlib import suppress

import pytest

pytest.importorskip("cryptography")

from eigenmesh.transports.tls import connection as _security
from transports.authority import Authority


def shake_hands(listening: ssl.SSLContext, dialling: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """Both ends of a handshake without a socket; the end that was called."""
    to_listener, to_dialler = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        listening.wrap_bio(to_listener, to_dialler, server_side=True),
        dialling.wrap_bio(to_dialler, to_listener, server_hostname=name),
    ]
    # Under TLS 1.3 each end speaks and hears twice at the most.
    for end in reversed(ends * 2):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return ends[0]


@pytest.mark.parametrize("way", ["in memory", "without memfd_create", "without /proc"])
def test_a_key_is_on_the_disk_only_where_there_is_no_other_way(way, monkeypatch, tmp_path):
    if way == "in memory" and sys.platform != "linux":
        pytest.skip("files in memory are those of Linux")
    if way == "without memfd_create":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    if way == "without /proc":
        monkeypatch.setattr(_security, "OPEN_FILES", tmp_path / "no proc")
    authority, written, mkstemp = Authority(), [], tempfile.mkstemp

    def noted():
        handle, name = mkstemp(dir=tmp_path)
        written.append(os.stat(name).st_mode & 0o077)
        return handle, name

    monkeypatch.setattr(tempfile, "mkstemp", noted)
    oslo, bergen = authority.issue("oslo"), authority.issue("bergen")
    called = shake_hands(oslo.for_listening(), bergen.for_dialling(), "oslo")
    assert called.version() == "TLSv1.3"
    assert _security.names_of(called.getpeercert()) == ("bergen",)
    assert written == ([] if way == "in memory" else [0, 0])
    assert list(tmp_path.iterdir()) == []
