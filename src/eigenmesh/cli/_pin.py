"""``eigenmesh pin``: the fingerprints of all sites' keys in a site.toml."""

from pathlib import Path
from typing import Annotated

from eigenmesh._atomic_write import save_text
from eigenmesh.cli._messages import Messages, plain_errors
from eigenmesh.cli._options import argument
from eigenmesh.errors import import_extra
from eigenmesh.report._tables import facts_table


@plain_errors()
def pin(
    site: Annotated[Path, argument("SITE.toml", "The settings of this site.")],
    certificates: Annotated[list[Path], argument("CERT.pem", "Certificates of sites; they are not secret.")],
) -> None:
    """Write the fingerprints of sites' keys into a site.toml.

    With them a site takes no other key for another site, whatever the certificate authority signs. A masked run needs
    those of all sites, the same at all of them. A renewed certificate has the same fingerprint; a site with a new key
    needs to be pinned again everywhere. Compare the fingerprints over a channel that the authority does not control.

    Example:

    - `eigenmesh pin site.toml oslo-cert.pem bergen-cert.pem trondheim-cert.pem`
    """
    import_extra("cryptography", "peers", "reading certificates")
    from eigenmesh.sites._fingerprints import pinned

    text, fingerprints = pinned(site, certificates)
    save_text(site, text)
    Messages.of().tell(facts_table(fingerprints))
