"""``eigenmesh sign``: issue a certificate for a site that created its own key."""

from pathlib import Path
from typing import Annotated

from eigenmesh._atomic_write import NewFile, write_new
from eigenmesh.cli._init import Days
from eigenmesh.cli._messages import Messages, plain_errors
from eigenmesh.cli._options import argument, option
from eigenmesh.errors import import_extra
from eigenmesh.sites._site import AUTHORITY_FILE, CA_FOLDER, CERTIFICATE_FILE

AuthorityPath = Annotated[Path, option(None, "DIR", "Folder of the authority, with ca.pem and ca.key.", "--ca")]


@plain_errors()
def sign(
    request: Annotated[Path, argument("REQUEST.pem", "The certificate request that the site sent.")],
    name: Annotated[str, option(None, "NAME", "The site that sent it; the request must have this name and no other.")],
    ca: AuthorityPath = Path(CA_FOLDER),
    out: Annotated[Path, option(None, "FILE", "Where to write the certificate.")] = Path(CERTIFICATE_FILE),
    days: Days = None,
) -> None:
    """Sign a site's certificate request with the network's own authority.

    First make sure that the request came from the site: whoever has the certificate and its key can impersonate it.

    Example:

    - `eigenmesh sign oslo-request.pem --name oslo --ca mesh/ca --out oslo-cert.pem`
    """
    import_extra("cryptography", "peers", "signing certificates")
    from eigenmesh.sites._authority_folder import AuthorityFolder, read_file
    from eigenmesh.sites._x509 import SITE_CERTIFICATE_DAYS

    folder = AuthorityFolder(ca)
    signed = folder.authority.sign(read_file(request), name, days or SITE_CERTIFICATE_DAYS)
    folder.record(signed, "sign")
    write_new([NewFile(out, signed)])
    Messages.of().print(f"wrote {out}: send it to {name}, with {ca / AUTHORITY_FILE}; neither is secret.")
