"""Certificates, keys, revocation and fingerprints: sites know each other, and refuse everybody else."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import ssl
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from handshakes import context, shake_hands
from typer.testing import CliRunner

from eigenmesh.cli import app
from eigenmesh.cli.site_keys import make_network
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.sites import authority as _x509
from eigenmesh.sites import read_network_file, read_site
from eigenmesh.sites.authority import (
    RevocationList,
    fingerprint_of,
    load_certificate,
    load_certificate_authority,
    load_credentials,
    make_certificate_authority,
    make_certificate_request,
    pinned,
)
from eigenmesh.sites.network_file import Manifest, differences, site_toml
from eigenmesh.sites.site import TlsFiles
from eigenmesh.transports.tls import CertificateKeyring

# Certificates, by real handshakes: sites know each other, and refuse strangers, wrong names and expired ones.


@pytest.fixture(scope="module")
def authority():
    return make_certificate_authority("test")


def _folder(path, authority, credentials):
    path.mkdir()
    (path / "ca.pem").write_bytes(authority.certificate_and_key.certificate)
    (path / "cert.pem").write_bytes(credentials.certificate)
    (path / "key.pem").write_bytes(credentials.key)
    return path


@pytest.fixture
def sites(tmp_path, authority):
    return {name: _folder(tmp_path / name, authority, authority.issue(name)) for name in ("oslo", "bergen")}


@pytest.mark.parametrize(("listener", "caller"), [("oslo", "bergen"), ("bergen", "oslo")])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_two_sites_shake_hands_and_see_each_others_names(sites, listener, caller, version):
    server, client = context(sites[listener], server=True), context(sites[caller], server=False)
    client.minimum_version = client.maximum_version = version
    assert shake_hands(server, client, called=listener) == (caller, listener)


def test_a_listener_with_another_name_is_refused(sites):
    server, client = context(sites["oslo"], server=True), context(sites["bergen"], server=False)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        shake_hands(server, client, called="trondheim")


def test_a_listener_of_another_authority_is_refused(sites, tmp_path):
    other = make_certificate_authority("other")
    false = _folder(tmp_path / "false", other, other.issue("oslo"))
    server = context(false, server=True, ca=sites["oslo"] / "ca.pem")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shake_hands(server, context(sites["bergen"], server=False), called="oslo")


def test_a_caller_of_another_authority_is_refused(sites, tmp_path):
    # Of the same name and the same subject as the true authority: only the key tells them apart.
    other = make_certificate_authority("test")
    false = _folder(tmp_path / "false", other, other.issue("bergen"))
    client = context(false, server=False, ca=sites["oslo"] / "ca.pem")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context(sites["oslo"], server=True), client, called="oslo")


def test_a_site_cannot_certify_others(sites, tmp_path, authority):
    issued = authority.issue("bergen")
    own = load_certificate_authority(issued.certificate, issued.key)
    false = own.issue("oslo", days=10)
    folder = _folder(tmp_path / "false", authority, false)
    (folder / "cert.pem").write_bytes(false.certificate + issued.certificate)
    with pytest.raises(ssl.SSLCertVerificationError, match="invalid CA certificate"):
        shake_hands(context(folder, server=True), context(sites["bergen"], server=False), called="oslo")


def test_an_expired_certificate_is_refused(sites, tmp_path, authority, monkeypatch):
    long_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=30)
    with monkeypatch.context() as patch:
        patch.setattr(_x509, "_now", lambda: long_ago)
        old = authority.issue("oslo", days=29)
    server = context(_folder(tmp_path / "old", authority, old), server=True)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(server, context(sites["bergen"], server=False), called="oslo")


def test_what_a_certificate_allows(authority):
    made = x509.load_pem_x509_certificate(authority.issue("oslo", days=100).certificate)
    extensions = made.extensions
    uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(uses) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert _x509.alternative_names(made) == ("oslo",)
    assert isinstance(made.public_key().curve, ec.SECP256R1)
    assert isinstance(made.signature_hash_algorithm, hashes.SHA256)
    assert made.not_valid_after_utc - dt.datetime.now(dt.UTC) == pytest.approx(
        dt.timedelta(days=100), abs=dt.timedelta(minutes=1)
    )
    years = (authority.certificate.not_valid_after_utc - dt.datetime.now(dt.UTC)) / dt.timedelta(days=365)
    assert years == pytest.approx(10, abs=0.01)


def test_a_signed_request_works_like_an_issued_certificate(sites, tmp_path, authority):
    asked = make_certificate_request("trondheim")
    again = load_certificate_authority(*authority.certificate_and_key)
    signed = _x509.CertificateAndKey(again.sign(asked.request, "trondheim"), asked.key)
    client = context(_folder(tmp_path / "trondheim", authority, signed), server=False)
    assert shake_hands(context(sites["oslo"], server=True), client, called="oslo") == ("trondheim", "oslo")


def _request(key, *names):
    builder = x509.CertificateSigningRequestBuilder().subject_name(_x509._subject("oslo"))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)


def test_a_request_for_another_name_or_more_names_is_refused(authority):
    key = ec.generate_private_key(ec.SECP256R1())
    for names, said in ((("bergen",), "names bergen"), (("oslo", "bergen"), "oslo, bergen"), ((), "names no site")):
        with pytest.raises(InputError, match=said):
            authority.sign(_request(key, *names), "oslo")


def test_keys_and_requests_that_are_not_sound_are_refused(authority):
    assert b"BEGIN CERT" in authority.sign(_request(rsa.generate_private_key(65537, 2048), "oslo"), "oslo")
    for key in (rsa.generate_private_key(65537, 1024), ed25519.Ed25519PrivateKey.generate()):
        with pytest.raises(InputError, match="a key that is not accepted"):
            authority.sign(_request(key, "oslo"), "oslo")
    with pytest.raises(InputError, match="cannot be read"):
        authority.sign(b"-----BEGIN CERTIFICATE REQUEST-----\nnonsense", "oslo")
    der = bytearray(
        x509.load_pem_x509_csr(_request(ec.generate_private_key(ec.SECP256R1()), "oslo")).public_bytes(
            serialization.Encoding.DER
        )
    )
    der[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(InputError, match="not signed with its own key"):
        authority.sign(forged, "oslo")


def test_no_certificate_outlives_its_authority(authority):
    with pytest.raises(InputError, match="4000 days"):
        authority.issue("oslo", days=4000)
    with pytest.raises(InputError, match="at least 1"):
        authority.issue("oslo", days=0)


def test_certificate_and_key_of_different_authorities_are_refused(authority):
    own, other = authority.certificate_and_key, make_certificate_authority().certificate_and_key
    with pytest.raises(InputError, match="certificate and key do not match"):
        load_certificate_authority(own.certificate, other.key)


def test_a_certificate_beyond_the_name_constraints_is_refused_in_the_handshake(tmp_path, monkeypatch):
    """Even if someone who has the authority's key makes one."""
    authority = make_certificate_authority("test", sites=["oslo", "bergen"])
    monkeypatch.setattr(_x509, "permitted_names", lambda certificate: ())
    made = {n: _folder(tmp_path / n, authority, authority.issue(n)) for n in ("oslo", "bergen", "mallory")}
    seen = shake_hands(context(made["oslo"], server=True), context(made["bergen"], server=False), "oslo")
    assert seen == ("bergen", "oslo")
    with pytest.raises(ssl.SSLError, match=r"permitted subtree violation|certificate verify failed|unknown ca"):
        shake_hands(context(made["mallory"], server=True), context(made["bergen"], server=False), "mallory")


# A site's own files, looked at before the run.


def _files(folder):
    return TlsFiles(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")


def test_what_init_makes_is_accepted(mesh):
    site = read_site(mesh / "bergen" / "site.toml")
    credentials = load_credentials(site.tls, site.name)
    assert credentials.certificate == (mesh / "bergen" / "cert.pem").read_bytes()
    assert credentials.authority == (mesh / "ca" / "ca.pem").read_bytes()


def test_files_that_do_not_belong_together_are_refused(mesh):
    bergen = _files(mesh / "bergen")
    with pytest.raises(InputError, match="is for bergen, not for oslo"):
        load_credentials(bergen, "oslo")
    with pytest.raises(InputError, match="is not the key of"):
        load_credentials(TlsFiles(bergen.certificate, mesh / "oslo" / "key.pem", bergen.ca), "bergen")
    (mesh / "bergen" / "other.pem").write_bytes(make_certificate_authority().certificate_and_key.certificate)
    with pytest.raises(InputError, match="not signed by an authority"):
        load_credentials(TlsFiles(bergen.certificate, bergen.key, mesh / "bergen" / "other.pem"), "bergen")
    with pytest.raises(InputError, match="holds no certificate"):
        load_credentials(TlsFiles(bergen.key, bergen.key, bergen.ca), "bergen")
    no_key = mesh / "bergen" / "nokey.pem"
    shutil.copy(bergen.certificate, no_key)
    os.chmod(no_key, 0o600)
    with pytest.raises(InputError, match="not a private key"):
        load_credentials(TlsFiles(bergen.certificate, no_key, bergen.ca), "bergen")
    with pytest.raises(UnreadableFileError, match=r"none.pem cannot be read"):
        load_credentials(TlsFiles(mesh / "none.pem", bergen.key, bergen.ca), "bergen")


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
def test_a_key_that_others_can_read_is_refused(mesh):
    os.chmod(mesh / "bergen" / "key.pem", 0o640)
    with pytest.raises(InputError, match="chmod 600"):
        load_credentials(_files(mesh / "bergen"), "bergen")


# The list of revoked certificates: read while running, believed only if an authority signed it, never forgotten.


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


# Fingerprints of keys: written by init and pin, kept over a renewal, and the only keys that are taken.


NAMES = ("oslo", "bergen", "trondheim")


def certificates(mesh):
    return [mesh / name / "cert.pem" for name in NAMES]


def authority_of(mesh):
    return load_certificate_authority((mesh / "ca" / "ca.pem").read_bytes(), (mesh / "ca" / "ca.key").read_bytes())


def test_init_pins_the_keys_of_all_sites_at_each(mesh):
    pins = dict(map(fingerprint_of, certificates(mesh)))
    assert [dict(read_site(mesh / name / "site.toml").fingerprints) for name in NAMES] == [pins] * 3


def test_pin_writes_what_is_missing_and_leaves_the_rest_of_the_file(mesh):
    path = mesh / "oslo" / "site.toml"
    text = path.read_text()
    path.write_text(text[: text.index("[fingerprints]")] + "# the end\n")
    done = CliRunner().invoke(app, ["site", "pin", str(path), *map(str, certificates(mesh))])
    assert done.exit_code == 0, done.output
    assert dict(read_site(path).fingerprints) == dict(map(fingerprint_of, certificates(mesh)))
    assert "# the end\n" in path.read_text()
    again, _ = pinned(path, certificates(mesh)[:1])
    assert again == path.read_text()


def test_a_new_key_is_pinned_in_the_place_of_the_old_one_and_a_renewed_certificate_changes_nothing(mesh, tmp_path):
    path, authority = mesh / "oslo" / "site.toml", authority_of(mesh)
    before = path.read_text()
    other, renewed = tmp_path / "other.pem", tmp_path / "renewed.pem"
    renewed.write_bytes(authority.renew((mesh / "bergen" / "cert.pem").read_bytes(), 100)[1])
    assert pinned(path, [renewed])[0] == before
    other.write_bytes(authority.issue("bergen").certificate)
    text, pins = pinned(path, [other])
    assert text != before
    assert (pins["bergen"], pins["oslo"]) == (fingerprint_of(other)[1], fingerprint_of(mesh / "oslo" / "cert.pem")[1])
    assert text.count("bergen = ") == before.count("bergen = ")


def test_a_network_file_takes_the_fingerprints_and_each_site_takes_them_from_there(mesh, tmp_path):
    network, path = tmp_path / "network.toml", mesh / "oslo" / "site.toml"
    whole = path.read_text()
    path.write_text(whole[: whole.index("[fingerprints]")])
    with pytest.raises(InputError, match=r"network\.toml has no table \[fingerprints\]; the coordinator adds it"):
        pinned(path, [network])
    network.write_text(pinned(network, certificates(mesh))[0])
    pins = dict(map(fingerprint_of, certificates(mesh)))
    assert read_network_file(network).fingerprints == pins
    path.write_text(pinned(path, [network])[0])
    assert dict(read_site(path).fingerprints) == pins
    # A site.toml that is made from it later has them too.
    assert site_toml(read_network_file(network), "oslo") == site_toml(read_network_file(network), "oslo", pins)
    with pytest.raises(InputError, match="of existing keys, and init would create new keys"):
        make_network(network, tmp_path / "again")
    network.write_text(network.read_text().replace('trondheim = "', '# "'))
    with pytest.raises(InputError, match="has fingerprints, but not of trondheim"):
        read_network_file(network)


def test_what_cannot_be_pinned_is_refused_by_name(mesh, tmp_path):
    path, stranger = mesh / "oslo" / "site.toml", tmp_path / "cert.pem"
    from eigenmesh.sites.authority import make_certificate_authority

    stranger.write_bytes(make_certificate_authority().issue("rome").certificate)
    with pytest.raises(InputError, match="is for rome, which is not a site of"):
        pinned(path, [stranger])
    text = path.read_text()
    for old, new, what in (
        ("[fingerprints]", "[fingerprints]\nrome = 'x'", "is not a site of this network"),
        ('trondheim = "', 'trondheim = "x', r"is not a fingerprint \(64 characters"),
        ('trondheim = "', '# "', "has fingerprints, but not of trondheim"),
    ):
        head, table = text.split("[fingerprints]")
        path.write_text(head + ("[fingerprints]" + table).replace(old, new))
        with pytest.raises(InputError, match=what):
            read_site(path)


def test_a_site_with_another_key_than_the_pinned_one_does_not_start(mesh):
    site = read_site(mesh / "oslo" / "site.toml")
    made = authority_of(mesh).issue("oslo")
    site.tls.certificate.write_bytes(made.certificate)
    site.tls.key.write_bytes(made.key)
    load_credentials(site.tls, "oslo")
    with pytest.raises(InputError, match=r"does not match the fingerprint of oslo in site\.toml"):
        load_credentials(site.tls, "oslo", site.fingerprints)


def test_sites_that_have_pinned_other_keys_do_not_agree(mesh, tmp_path):
    path, other = mesh / "oslo" / "site.toml", tmp_path / "other.pem"
    manifest = Manifest.of(read_site(path), 4, None)
    assert sorted(manifest.content["fingerprints"]) == sorted(NAMES)
    other.write_bytes(authority_of(mesh).issue("bergen").certificate)
    path.write_text(pinned(path, [other])[0])
    (field,) = differences(manifest, Manifest.of(read_site(path), 4, None))
    assert field.startswith("fingerprints.bergen: ")


def test_a_key_with_a_passphrase_is_used_and_never_stored_without_it(mesh):
    tls = read_site(mesh / "bergen" / "site.toml").tls
    key = serialization.load_pem_private_key(tls.key.read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"geheim")
    form = serialization.PrivateFormat.PKCS8
    tls.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, how))
    passphrase = mesh / "bergen" / "passphrase"
    passphrase.write_text("geheim\n")
    passphrase.chmod(0o600)
    named = replace(tls, passphrase=passphrase)
    credentials = load_credentials(named, "bergen")
    assert b"ENCRYPTED" in credentials.key
    credentials.for_listening()
    assert CertificateKeyring(credentials).sign(b"anything")
    with pytest.raises(InputError, match="needs a passphrase; give the file"):
        load_credentials(tls, "bergen")
    passphrase.write_text("another\n")
    with pytest.raises(InputError, match=r"passphrase of .* is wrong"):
        load_credentials(named, "bergen")
    passphrase.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        load_credentials(named, "bergen")
