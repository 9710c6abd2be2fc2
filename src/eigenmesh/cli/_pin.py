"""``eigenmesh pin``: write the fingerprints of all sites' keys into a site.toml or network.toml."""

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

    A site accepts no other key for a pinned site, whatever the certificate authority signs. A masked run needs the
    fingerprints of all sites, the same at every site. Once all sites have their certificates, pin them in the
    network.toml, which is not secret, and copy them from there at each site. A renewed certificate has the same
    fingerprint; a site with a new key must be pinned again everywhere. Compare the fingerprints over a channel that the
    authority does not control.

    Examples:

    - `eigenmesh pin network.toml oslo-cert.pem bergen-cert.pem trondheim-cert.pem`

    - `eigenmesh pin site.toml network.toml`
    """
    import_extra("cryptography", "peers", "reading certificates")
    from eigenmesh.sites._fingerprints import pinned

    text, fingerprints = pinned(file, sources)
    save_text(file, text)
    messages = Messages.of()
    messages.print(facts_table(fingerprints))
    messages.print(
        f"wrote these fingerprints to {file}; compare them over a channel that the authority does not control."
    )
