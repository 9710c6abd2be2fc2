"""Revoked certificates: a list next to ``ca.pem``, signed by the authority, which a running peer reads again."""

import logging
import re
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes as IssuerKey

from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.sites._site import REVOKED_FILE

logger = logging.getLogger(__name__)

_BLOCK = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)


class RevocationList:
    """The certificates that are revoked now. A new list takes effect as soon as its file is there, without a restart.

    ``ca`` is the file of trusted authorities. ``revoked.pem``, in the same folder, may hold one list per authority. A
    list that none of them has signed is an error at the start. Later it is only logged, and the last good list stays in
    force. A certificate that was revoked once stays revoked.
    """

    def __init__(self, ca: Path) -> None:
        self.path, self._ca = ca.with_name(REVOKED_FILE), ca
        self._seen: tuple[int, int, int] | None = None
        self._revoked: frozenset[tuple[bytes, int]] = frozenset()
        self._revoked = self._read()

    def is_revoked(self, certificate: bytes | x509.Certificate) -> bool:
        """Whether a certificate, or its PEM, is revoked; reads the file again if it has changed."""
        self._refresh()
        if not isinstance(certificate, x509.Certificate):
            certificate = x509.load_pem_x509_certificate(certificate)
        return (certificate.issuer.public_bytes(), certificate.serial_number) in self._revoked

    def _refresh(self) -> None:
        before = self._seen
        try:
            self._revoked |= self._read()
        except (InputError, UnreadableFileError) as error:
            if self._seen != before:
                logger.warning("%s The list that was read before stays in force.", error)

    def _read(self) -> frozenset[tuple[bytes, int]]:
        """Issuer and serial number of all revoked certificates; those known before if the file has not changed."""
        try:
            facts = self.path.stat()
            seen = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
            if seen == self._seen:
                return self._revoked
            self._seen = seen
            blocks, authorities = _BLOCK.findall(self.path.read_bytes()), self._ca.read_bytes()
        except FileNotFoundError:
            return self._revoked
        except OSError as error:
            raise UnreadableFileError(f"{self.path} cannot be read: {error.strerror}; check its owner.") from error
        try:
            trusted = x509.load_pem_x509_certificates(authorities)
            lists = [x509.load_pem_x509_crl(block) for block in blocks]
        except ValueError as error:
            fix = "get it again from the authority"
            raise InputError(f"{self.path} is not a list of revoked certificates ({error}); {fix}.") from error
        for one in lists:
            issuers = [ca for ca in trusted if ca.subject == one.issuer]
            if not any(one.is_signature_valid(cast(IssuerKey, ca.public_key())) for ca in issuers):
                raise InputError(f"{self.path} is not signed by an authority in {self._ca}; get it from the authority.")
        if not lists:
            raise InputError(f"{self.path} holds no list of revoked certificates; get it again, or remove it.")
        return frozenset((one.issuer.public_bytes(), entry.serial_number) for one in lists for entry in one)
