"""Certificates, by real handshakes: sites know each other, and refuse strangers, wrong names and expired ones."""

import datetime as dt
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from handshakes import context, shake_hands

from eigenmesh.errors import InputError
from eigenmesh.sites import authority as _x509
from eigenmesh.sites.authority import load_certificate_authority, make_certificate_authority, make_certificate_request


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
