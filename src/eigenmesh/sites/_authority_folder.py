"""The folder of a network's certificate authority: its key, its log of certificates, and its revocation list."""

import datetime as dt
import json
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from eigenmesh._atomic_write import write_atomically
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.sites._site import AUTHORITY_FILE, CA_KEY, ISSUED_FILE, REVOKED_FILE
from eigenmesh.sites._x509 import CertificateAuthority, alternative_names, load_certificate, load_certificate_authority


class Issued(NamedTuple):
    """One certificate that an authority has issued; ``why`` is the command that made it."""

    at: str
    why: str
    name: str
    serial: int
    until: str
    sha256: str


def issued_line(certificate: bytes, why: str) -> bytes:
    """A line of the issuance log for a certificate, as PEM."""
    made = load_certificate(certificate)
    (name,) = alternative_names(made)
    now, until = dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), made.not_valid_after_utc.isoformat()
    # As hexadecimal text: a serial number has up to 160 bits, and many JSON readers would round such a number.
    entry = {"at": now, "why": why, "name": name, "serial": f"{made.serial_number:x}", "until": until}
    return json.dumps({**entry, "sha256": made.fingerprint(hashes.SHA256()).hex()}).encode() + b"\n"


class AuthorityFolder:
    """An authority with its issuance log and its revocation list."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority: CertificateAuthority = load_certificate_authority(
            read_file(path / AUTHORITY_FILE), read_file(path / CA_KEY)
        )

    def record(self, certificate: bytes, why: str) -> None:
        """Append to the issuance log. Call it before the certificate is handed out."""
        with (self.path / ISSUED_FILE).open("ab") as file:
            file.write(issued_line(certificate, why))

    def issued(self) -> list[Issued]:
        """Everything in the issuance log, oldest first."""
        lines = read_file(self.path / ISSUED_FILE).splitlines()
        try:
            found = [json.loads(line) for line in lines if line.strip()]
            return [Issued(**{**entry, "serial": int(entry["serial"], 16)}) for entry in found]
        except (ValueError, TypeError, KeyError) as error:
            raise UnreadableFileError(
                f"{self.path / ISSUED_FILE} is damaged ({error!r}); restore it from a backup."
            ) from error

    def revoke(self, name: str) -> list[int]:
        """Revoke all certificates that a site has so far, and return the serial numbers that are new on the list.

        A certificate issued later is not revoked.
        """
        serials = [one.serial for one in self.issued() if one.name == name]
        if not serials:
            names = sorted({one.name for one in self.issued()})
            raise InputError(f"no certificate was issued to {name!r}; give one of: {', '.join(names)}.")
        path = self.path / REVOKED_FILE
        before: list[int] = []
        number = 1
        if path.exists():
            known = x509.load_pem_x509_crl(read_file(path))
            before = [one.serial_number for one in known]
            number = known.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number + 1
        made = self.authority.revocation_list([*before, *serials], number)
        write_atomically(path, lambda file: file.write(made))
        return sorted(set(serials) - set(before))


def read_file(path: Path) -> bytes:
    """The bytes of a file; an error says which one cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror}; check the path.") from error
