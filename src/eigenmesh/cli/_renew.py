"""``eigenmesh renew``: issue a certificate with new dates for the same site and key."""

from pathlib import Path
from typing import Annotated

from eigenmesh._atomic_write import NewFile, write_new
from eigenmesh.cli._init import Days
from eigenmesh.cli._messages import Messages, plain_errors
from eigenmesh.cli._options import argument, option
from eigenmesh.cli._sign import AuthorityPath
from eigenmesh.errors import InputError, import_extra
from eigenmesh.sites._site import CA_FOLDER, CERTIFICATE_FILE


@plain_errors()
def renew(
    certificate: Annotated[Path, argument("CERT.pem", "The site's current certificate, expired or not.")],
    ca: AuthorityPath = Path(CA_FOLDER),
    out: Annotated[Path, option(None, "FILE", "Where to write the new certificate.")] = Path("renewed.pem"),
    days: Days = None,
) -> None:
    """Issue a certificate with new dates for the same site and key.

    Neither the old certificate nor the new one is secret. A revoked certificate cannot be renewed.

    Example:

    - `eigenmesh renew oslo/cert.pem --ca mesh/ca --out oslo-2028.pem`
    """
    import_extra("cryptography", "peers", "renewing certificates")
    from eigenmesh.sites._authority_folder import AuthorityFolder, read_file
    from eigenmesh.sites._revocation import RevocationList
    from eigenmesh.sites._site import AUTHORITY_FILE
    from eigenmesh.sites._x509 import SITE_CERTIFICATE_DAYS

    folder, old = AuthorityFolder(ca), read_file(certificate)
    name, renewed = folder.authority.renew(old, days or SITE_CERTIFICATE_DAYS)
    if RevocationList(ca / AUTHORITY_FILE).is_revoked(old):
        raise InputError(f"{certificate} is revoked; {name} needs a new key and a signed request: eigenmesh sign.")
    folder.record(renewed, "renew")
    write_new([NewFile(out, renewed)])
    Messages.of().print(f"wrote {out}: {name} replaces its {CERTIFICATE_FILE} with it before the next start.")
