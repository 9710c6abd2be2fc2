"""The list of revoked certificates: read while running, believed only if an authority signed it, never forgotten."""

import pytest

from eigenmesh.errors import InputError
from eigenmesh.sites.authority import RevocationList, load_certificate, make_certificate_authority


@pytest.fixture
def authority():
    return make_certificate_authority("test")


@pytest.fixture
def ca(tmp_path, authority):
    path = tmp_path / "ca.pem"
    path.write_bytes(authority.certificate_and_key.certificate)
    return path


def _serial(pem):
    return load_certificate(pem).serial_number


def test_a_list_that_appears_while_running_counts_at_once_and_a_longer_one_too(ca, authority):
    oslo, bergen = (authority.issue(name).certificate for name in ("oslo", "bergen"))
    revoked = RevocationList(ca)
    assert not revoked.is_revoked(oslo)
    revoked.path.write_bytes(authority.revocation_list([_serial(oslo)], 1))
    assert revoked.is_revoked(oslo)
    assert not revoked.is_revoked(bergen)
    revoked.path.write_bytes(authority.revocation_list([_serial(oslo), _serial(bergen)], 2))
    assert revoked.is_revoked(bergen)
    assert not revoked.is_revoked(authority.issue("oslo").certificate)


def test_what_was_revoked_stays_so_when_the_list_is_removed_or_damaged(ca, authority, caplog):
    oslo = authority.issue("oslo").certificate
    revoked = RevocationList(ca)
    revoked.path.write_bytes(authority.revocation_list([_serial(oslo)], 1))
    assert revoked.is_revoked(oslo)
    for content in (b"", b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"):
        revoked.path.write_bytes(content)
        for _ in range(3):
            assert revoked.is_revoked(oslo)
    assert len(caplog.records) == 2
    revoked.path.unlink()
    assert revoked.is_revoked(oslo)


def test_a_list_that_no_trusted_authority_signed_is_refused(ca, authority):
    other = make_certificate_authority("test")
    oslo = authority.issue("oslo").certificate
    running = RevocationList(ca)
    running.path.write_bytes(other.revocation_list([_serial(oslo)], 1))
    assert not running.is_revoked(oslo)
    with pytest.raises(InputError, match="not signed by an authority"):
        RevocationList(ca)


def test_lists_of_several_authorities_lie_in_one_file(ca, authority):
    other = make_certificate_authority("other")
    ca.write_bytes(ca.read_bytes() + other.certificate_and_key.certificate)
    pems = [authority.issue("oslo").certificate, other.issue("bergen").certificate]
    lists = [made.revocation_list([_serial(pem)], 1) for made, pem in zip((authority, other), pems, strict=True)]
    revoked = RevocationList(ca)
    revoked.path.write_bytes(b"".join(lists))
    assert [revoked.is_revoked(pem) for pem in pems] == [True, True]
