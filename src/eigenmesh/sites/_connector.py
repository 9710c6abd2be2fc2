"""Connects a site to its neighbours: builds the transport from the site, its network and its run."""

from collections.abc import Callable
from dataclasses import dataclass

from eigenmesh.protocol import Run, Sent, Setup
from eigenmesh.sites._manifest import Manifest, differences
from eigenmesh.sites._revocation import RevocationList
from eigenmesh.sites._site import Site
from eigenmesh.transports.tls import CertificateKeyring, Credentials, Endpoint, Supervisor


@dataclass(frozen=True)
class Connector:
    """Everything that a site needs to connect, with any set of members.

    ``length`` is the length of a vector that sites send.
    """

    site: Site
    credentials: Credentials
    manifest: Manifest
    length: int

    def connect(self, on_sent: Callable[[Sent], None], supervisor: Supervisor) -> Endpoint:
        """This site's end of its links, from the journal if there is one.

        ``on_sent`` is called with every message before it is sent; ``supervisor`` is that of the run.
        """
        site, settings = self.site, self.site.settings
        addresses = {name: str(address) for name, address in site.neighbours.items() if address is not None}
        manifest = self.manifest
        setup = Setup(
            site.name,
            site.sites,
            site.edges,
            frozenset(addresses),
            Run(manifest.run_id, manifest.text, settings.largest_message(self.length), _compare, _batches_to),
            CertificateKeyring(self.credentials, RevocationList(site.tls.ca).is_revoked, site.fingerprints),
            patience_s=settings.patience_s,
            join_s=settings.join_s,
            # A neighbour that is alive may itself be waiting for one that has not joined yet.
            round_s=settings.round_s + settings.join_s,
            on_loss=settings.on_loss,
            masked=settings.masked,
        )
        return Endpoint(
            setup,
            self.credentials,
            addresses,
            listen=None if site.listen is None else str(site.listen),
            journal=site.out.journal,
            on_sent=on_sent,
            supervisor=supervisor,
        )


def _compare(ours: str, theirs: str) -> list[str]:
    return differences(Manifest.parse(ours), Manifest.parse(theirs))


def _batches_to(ours: str, theirs: str) -> int:
    return Manifest.parse(ours).batches_to(Manifest.parse(theirs))
