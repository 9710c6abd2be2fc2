"""Masks between sites: keys signed by certificates, words in the journal before they leave."""

from __future__ import annotations

import networkx as nx
import numpy as np

from eigenmesh.transports.tls import CertificateKeyring
from eigenmesh.transports.tls.journal import wipe
from eigenmesh.transports.tls.keyring import key_fingerprint
from transports.authority import Authority
from transports.sites import Sites


def test_masks_of_all_sites_cancel_and_differ_from_run_to_run(tmp_path):
    sites = Sites(nx.path_graph(3), masked=True)
    numbers = np.arange(9, dtype=np.uint64).reshape(3, 3)

    def work(transport):
        masks = transport.masks()
        return np.array([masks.masked(number, numbers[transport.rank]) for number in range(2)])

    first, second = np.array(sites.run(work)), np.array(sites.run(work))
    for masked in (first, second):
        assert np.array_equal(masked.sum(axis=0, dtype=np.uint64), [numbers.sum(axis=0)] * 2)
    assert len({*first.ravel().tolist(), *second.ravel().tolist()}) == 2 * first.size


def test_a_run_without_masks_brings_none():
    assert Sites(nx.path_graph(2)).run(lambda transport: transport.masks()) == [None, None]


def test_a_site_that_was_killed_sends_what_it_had_masked_and_not_what_it_computes_then(tmp_path):
    sites = Sites(nx.path_graph(3), masked=True)
    others = [sites.transport(rank) for rank in (0, 1)]
    killed = sites.transport(2, journal=tmp_path / "journal")
    before = killed.masks().masked(0, np.array([5, 6], np.uint64))
    assert killed.endpoint._journal.flush(10.0)
    sites.crash(killed)
    again = sites.transport(2, journal=tmp_path / "journal")
    masks = again.masks()
    assert np.array_equal(masks.masked(0, np.array([7, 8], np.uint64)), before)
    fresh = masks.masked(1, np.array([5, 6], np.uint64))
    assert not np.array_equal(fresh, before)
    for transport in (*others, again):
        transport.endpoint.stop("the test is over")
        transport.close()


def test_a_secret_is_on_the_disk_for_its_owner_alone_and_can_be_wiped(tmp_path):
    path = tmp_path / "journal"
    site = Sites(nx.path_graph(3), masked=True).transport(1, journal=path)
    secret = site.endpoint.machine.past.secret
    assert path.stat().st_mode & 0o077 == 0
    assert secret.encode() in path.read_bytes()
    site.endpoint.stop("the test is over")
    site.close()
    wipe(path)
    assert secret.encode() not in path.read_bytes()


def test_with_fingerprints_the_authority_cannot_make_a_second_site():
    authority = Authority()
    own, known, second = (authority.issue(name) for name in ("oslo", "bergen", "bergen"))
    keyrings = {"known": CertificateKeyring(known), "second": CertificateKeyring(second)}
    pins = {"bergen": fingerprint(known)}
    for pinned, taken in ((None, ["known", "second"]), (pins, ["known"])):
        checks = CertificateKeyring(own, fingerprints=pinned)
        seen = [
            name
            for name, one in keyrings.items()
            if checks.is_signed("bergen", one.certificate, b"data", one.sign(b"data"))
        ]
        assert seen == taken


def test_a_renewed_certificate_has_the_fingerprint_of_its_key():
    from eigenmesh.sites.authority import load_certificate, make_certificate_authority

    authority = make_certificate_authority()
    made = authority.issue("oslo")
    _, renewed = authority.renew(made.certificate, 100)
    assert renewed != made.certificate
    assert key_fingerprint(load_certificate(renewed)) == key_fingerprint(load_certificate(made.certificate))
    assert key_fingerprint(load_certificate(authority.issue("oslo").certificate)) != key_fingerprint(
        load_certificate(made.certificate)
    )


def fingerprint(credentials):
    from eigenmesh.sites.authority import load_certificate

    return key_fingerprint(load_certificate(credentials.certificate))
