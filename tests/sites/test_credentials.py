"""A site's own files, looked at before the run."""

import os
import shutil

import pytest

from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.sites import read_site
from eigenmesh.sites.authority import load_credentials, make_certificate_authority
from eigenmesh.sites.site import TlsFiles


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
