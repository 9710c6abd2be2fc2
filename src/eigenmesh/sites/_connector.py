"""The links of a site: what the transport is told about the site, its network and its run."""

from dataclasses import dataclass

from eigenmesh.certificate._complement import COLUMNS as PROBE_COLUMNS
from eigenmesh.fitting import Request
from eigenmesh.protocol import Run, Setup
from eigenmesh.sites._audit import AuditWriter
from eigenmesh.sites._manifest import Manifest, differences
from eigenmesh.sites._revocation import RevocationList
from eigenmesh.sites._site import Site
from eigenmesh.transports.grpc import CertificateKeyring, Credentials, Endpoint

# What gRPC can be told, a C int, less the head of a frame. A message beyond it is refused by its sender, with its size.
MAX_MESSAGE_BYTES = (1 << 31) - (1 << 20)


@dataclass(frozen=True)
class Connector:
    """What a site needs to connect in any membership; ``fingerprint`` identifies its data."""

    site: Site
    credentials: Credentials
    manifest: Manifest
    fingerprint: str
    request: Request
    n_features: int

    def connect(self, audit: AuditWriter) -> Endpoint:
        """This site's end of its links, from the journal if there is one."""
        site, settings = self.site, self.site.settings
        addresses = {name: str(address) for name, address in site.neighbours.items() if address is not None}
        manifest = self.manifest
        setup = Setup(
            site.name,
            site.sites,
            site.edges,
            frozenset(addresses),
            Run(manifest.run_id, manifest.text, self._largest_message(), _compare),
            CertificateKeyring(self.credentials, RevocationList(site.tls.ca).is_revoked),
            patience_s=settings.patience_s,
            join_s=settings.join_s,
            # A live neighbour may itself wait for one that has not joined yet.
            round_s=settings.round_s + settings.join_s,
            on_loss=settings.on_loss,
        )
        return Endpoint(
            setup,
            self.credentials,
            addresses,
            listen=None if site.listen is None else str(site.listen),
            journal=site.out.journal,
            fingerprint=self.fingerprint,
            on_sent=audit.record,
        )

    def _largest_message(self) -> int:
        """Bytes of the largest message: of an iteration, the PCA certificate, the moments or a check."""
        d, wanted, solver = self.n_features, self.request.n_components, self.request.solver
        # A share of the variance may need all components.
        k = min(wanted, d) if isinstance(wanted, int) else d
        iteration = d * d if solver is None else solver.largest_message(k, d)
        return min(8 * (max(iteration, d * max(k, PROBE_COLUMNS), 2 * d + 1) + 4096), MAX_MESSAGE_BYTES)


def _compare(ours: str, theirs: str) -> list[str]:
    return differences(Manifest.parse(ours), Manifest.parse(theirs))
