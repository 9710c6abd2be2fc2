"""``eigenmesh site approve``: a person's yes to what one run would send."""

from __future__ import annotations

from typing import Annotated

from eigenmesh.cli.messages import Messages
from eigenmesh.cli.options import SiteFile, option
from eigenmesh.errors import import_extra
from eigenmesh.sites import read_site
from eigenmesh.words import one_line

Name = Annotated[str, option(None, "NAME", "Name of the person who approves.")]
Digest = Annotated[
    str, option(None, "DIGEST", "The digest on the statement that was read; its first 16 characters do.")
]


def approve(site: SiteFile, name: Name, digest: Digest) -> None:
    """Approve the run that the statement describes, and no other.

    The approval has the name, the date and everything that all sites agree on, and is signed by the key of the site. It
    is written next to site.toml. With approve = true there, a run starts only with an approval for exactly that run. If
    there is an approval for another one, the differences are shown.

    Examples:

    - `eigenmesh site check site.toml --statement statement.html`

    - `eigenmesh site approve site.toml --digest 3f5a9c0e12b47d68 --name "Kari Nordmann"`
    """
    import_extra("cryptography", "peers", "eigenmesh site approve")
    from eigenmesh.sites.approval import approve as signed
    from eigenmesh.sites.approval import changes_since_approval
    from eigenmesh.sites.network_file import Manifest
    from eigenmesh.sites.site import read_samples

    messages, described = Messages.of(), read_site(site)
    with messages.waiting("reading the data"):
        table = read_samples(described.data)
    n_samples, n_features = map(int, table.source.shape)
    manifest = Manifest.of(described, n_features, table.feature_names, n_samples)
    for line in changes_since_approval(described, manifest):
        messages.print(f"changed since the last approval: {one_line(line)}")
    written = signed(described, manifest, name, digest)
    messages.print(f"wrote {written}: {name} approves the run {described.run!r} with digest {manifest.digest[:16]}")
    if not described.approve:
        messages.alert(f"note: {site} does not ask for it; write approve = true at its top.", style="yellow")
