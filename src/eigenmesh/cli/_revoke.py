"""``eigenmesh revoke``: revoke the certificates of a site."""

from pathlib import Path
from typing import Annotated

from eigenmesh.cli._messages import Messages, plain_errors
from eigenmesh.cli._options import argument
from eigenmesh.cli._sign import AuthorityPath
from eigenmesh.errors import import_extra
from eigenmesh.sites._site import AUTHORITY_FILE, CA_FOLDER, REVOKED_FILE


@plain_errors()
def revoke(
    name: Annotated[str, argument("NAME", "The site whose key was lost or stolen.")],
    ca: AuthorityPath = Path(CA_FOLDER),
) -> None:
    """Revoke all certificates of a site, and write the list of revoked certificates, signed by the authority.

    Every site puts the list next to its ca.pem; running peers read it at once. The revoked site creates a new key and
    has a new request signed.

    Example:

    - `eigenmesh revoke oslo --ca mesh/ca`
    """
    import_extra("cryptography", "peers", "revoking certificates")
    from eigenmesh.sites._authority_folder import AuthorityFolder

    new = AuthorityFolder(ca).revoke(name)
    messages = Messages.of()
    messages.print(
        f"revoked {len(new)} certificates of {name}: {', '.join(f'{serial:x}' for serial in new) or 'none'}."
    )
    messages.print(f"Send {ca / REVOKED_FILE} to all sites, to put next to their {AUTHORITY_FILE}; it is not secret.")
