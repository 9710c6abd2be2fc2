"""``eigenmesh pin``: the fingerprints of all sites' keys in a site.toml or network.toml."""

from pathlib import Path
from typing import Annotated

from eigenmesh._atomic_write import save_text
from eigenmesh.cli._messages import Messages, plain_errors
from eigenmesh.cli._options import argument
from eigenmesh.errors import import_extra
from eigenmesh.report._tables import facts_table


@plain_errors()
def pin(
    file: Annotated[Path, argument("FILE.toml", "The settings of this site, or of the network.")],
    sources: Annotated[
        list[Path], argument("CERT.pem|NETWORK.toml", "Certificates of sites, or a network file with fingerprints.")
    ],
) -> None:
    """Write the fingerprints of sites' keys into a site.toml or a network.toml.

    With them a site takes no other key for another site, whatever the certificate authority signs. A masked run needs
    those of all sites, the same at all of them. Certificates are made after the network is described: once all have
    theirs, pin them in the network.toml, which is not secret, and at each site take them from there. A renewed
    certificate has the same fingerprint; a site with a new key needs to be pinned again everywhere. Compare the
    fingerprints over a channel that the authority does not control.

    Examples:

    - `eigenmesh pin network.toml oslo-cert.pem bergen-cert.pem trondheim-cert.pem`

    - `eigenmesh pin site.toml network.toml`
    """
    import_extra("cryptography", "peers", "reading certificates")
    from eigenmesh.sites._fingerprints import pinned

    text, fingerprints = pinned(file, sources)
    save_text(file, text)
    messages = Messages.of()
    messages.tell(facts_table(fingerprints))
    messages.tell(f"wrote these to {file}; compare them over a channel that the authority does not control.")
