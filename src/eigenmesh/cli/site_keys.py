"""``eigenmesh site init``, ``sign``, ``pin``, ``renew`` and ``revoke``: keys and certificates of the sites."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from eigenmesh.atomic_write import NewFile, save_text, write_new
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.options import argument, option
from eigenmesh.errors import InputError, UnknownNameError, import_extra
from eigenmesh.report.tables import facts_table
from eigenmesh.sites import read_network_file
from eigenmesh.sites.network_file import EXAMPLE, NetworkFile, relay_toml, site_toml
from eigenmesh.sites.site import FileNames

ONLY_HELP = "Create only the folder of the authority (ca), or the key and the certificate request of one site."
Days = Annotated[int | None, option(None, "N", "Days that certificates are valid; 825 by default.", min=1)]
AuthorityPath = Annotated[Path, option(None, "DIR", "Folder of the authority, with ca.pem and ca.key.", "--ca")]


def init(
    network: Annotated[Path | None, argument("NETWORK.toml", "Sites, addresses, links and settings.")] = None,
    out: Annotated[Path | None, option(None, "DIR", "Folder for the folders of the sites.", "--out")] = None,
    only: Annotated[str | None, option(None, "ca|NAME", ONLY_HELP)] = None,
    days: Days = None,
    example: Annotated[bool, option(None, None, "Print a NETWORK.toml to start from, and stop.", "--example")] = False,
) -> None:
    """Create the key, the certificate and the site.toml of every site of a network, and the same of its relays.

    A private certificate authority is created for the network, in its own folder; a site's folder contains nothing of
    another site. Keys can be read only by their owner. Existing files are never overwritten: either everything is
    written, or nothing.

    With **--only** and its name, a site creates its key on its own machine, so that the key never leaves it. It has its
    request signed by its own authority, or with **eigenmesh site sign** by that of **--only ca**.

    Examples:

    - `eigenmesh site init --example > network.toml`

    - `eigenmesh site init network.toml --out mesh`

    - `eigenmesh site init network.toml --out mesh --only oslo`
    """
    messages = Messages.of()
    if example:
        typer.echo(EXAMPLE, nl=False)
        return
    if network is None or out is None:
        fix = "eigenmesh site init --example prints such a file"
        raise InputError(f"site init needs a NETWORK.toml and --out DIR; {fix}.")
    described = read_network_file(network)
    import_extra("cryptography", "peers", "making keys and certificates")
    if only is None or only == FileNames.CA_FOLDER:
        names = (*described.names, *described.relay_names) if only is None else ()
        write_new(_with_authority(described, names, out, days))
        _print_folders(messages, described, names, out)
    else:
        if only not in (*described.names, *described.relay_names):
            raise UnknownNameError("site", only, (*described.names, *described.relay_names))
        if days is not None:
            why = "whoever signs the request sets the dates"
            raise InputError(f"--days cannot be used with --only {only}: {why}; leave it out.")
        write_new(_with_request(described, only, out / only))
        _print_request(messages, described, only, out)


def make_network(path: Path, out: Path) -> None:
    """Write everything for all sites of a network that a file describes, and print nothing."""
    network = read_network_file(path)
    write_new(_with_authority(network, (*network.names, *network.relay_names), out))


def _with_request(network: NetworkFile, name: str, folder: Path) -> list[NewFile]:
    from eigenmesh.sites.authority import make_certificate_request

    made = make_certificate_request(name)
    return [
        NewFile(folder / FileNames.KEY, made.key, private=True),
        NewFile(folder / FileNames.REQUEST, made.request),
        _settings(network, name, folder),
    ]


def _settings(network: NetworkFile, name: str, folder: Path, pins: Mapping[str, str] | None = None) -> NewFile:
    """The ``site.toml`` of a site, or the ``relay.toml`` of a relay."""
    if name in network.relay_names:
        return NewFile(folder / FileNames.RELAY, relay_toml(network, name, pins).encode())
    return NewFile(folder / FileNames.SITE, site_toml(network, name, pins).encode())


def _with_authority(network: NetworkFile, names: tuple[str, ...], out: Path, days: int | None = None) -> list[NewFile]:
    from eigenmesh.sites.authority import Issued, load_certificate, make_certificate_authority
    from eigenmesh.transports.tls.keyring import key_fingerprint

    if network.fingerprints and names:
        fix = "remove that table to start over, or use --only NAME at a site and have its request signed"
        raise InputError(f"{network.path} has [fingerprints] of existing keys, and init would create new keys; {fix}.")
    certified = (*network.names, *network.relay_names)
    authority = make_certificate_authority(f"eigenmesh {network.path.stem}", sites=certified)
    own = authority.certificate_and_key
    files = [NewFile(out / FileNames.CA_FOLDER / FileNames.CA_KEY, own.key, private=True)]
    files.append(NewFile(out / FileNames.CA_FOLDER / FileNames.AUTHORITY, own.certificate))
    log = b""
    issued = {name: authority.issue(name, days) for name in names}
    pins = {name: key_fingerprint(load_certificate(issued[name].certificate)) for name in network.names if issued}
    for name, made in issued.items():
        folder = out / name
        log += Issued.of(made.certificate, "init").line
        files += [
            NewFile(folder / FileNames.KEY, made.key, private=True),
            NewFile(folder / FileNames.CERTIFICATE, made.certificate),
            NewFile(folder / FileNames.AUTHORITY, own.certificate),
            _settings(network, name, folder, pins),
        ]
    return [*files, NewFile(out / FileNames.CA_FOLDER / FileNames.ISSUED, log, private=True)]


AT_SITES = (
    "At each site: set the data file in site.toml, then run: eigenmesh site check site.toml",
    "Secret: key.pem in each folder. Whoever has it can impersonate that site.",
)


def _print_folders(messages: Messages, network: NetworkFile, names: tuple[str, ...], out: Path) -> None:
    """Print what was created with an authority, where each folder goes, and what is secret."""
    authority = out / FileNames.CA_FOLDER
    facts = {f"{out / name}": f"for {name}: {_links(network, name)}" for name in names}
    facts[f"{authority}"] = "the certificate authority: only for the operator of the network"
    messages.print(facts_table(facts))
    if names:
        steps = ["Send each site its own folder, over a private channel, and delete it here.", *AT_SITES]
        if network.relays:
            steps.append("Send a relay's folder to whoever runs it: eigenmesh site relay relay.toml")
    else:
        steps = [
            f"Sign the requests of sites with: eigenmesh site sign request.pem --name NAME --ca {authority}",
            "Send ca.pem to every site, with its certificate.",
        ]
    secret = authority / FileNames.CA_KEY
    steps.append(f"Most secret: {secret}. Whoever has it can impersonate any site; keep it offline.")
    messages.print("\n" + "\n".join(steps))


def _print_request(messages: Messages, network: NetworkFile, name: str, out: Path) -> None:
    """Print what was created with a request, and what to do with it."""
    messages.print(facts_table({f"{out / name}": f"for {name}: {_links(network, name)}"}))
    steps = [
        "Have request.pem signed, and put the certificate next to it as cert.pem.",
        "Put the certificates of all authorities that sign into ca.pem at every site.",
        "Then pin the certificates of all sites at each site: eigenmesh site pin site.toml CERT.pem ...",
        *AT_SITES,
    ]
    messages.print("\n" + "\n".join(steps))


def _links(network: NetworkFile, name: str) -> str:
    for relay in network.relays:
        if relay.name == name:
            return f"the relay of {', '.join(' - '.join(link) for link in relay.links)}, at {relay.address}"
    neighbours = network.neighbours(name)
    calls = [f"{other} at {address}" for other, address in neighbours.items() if address is not None]
    called = [other for other, address in neighbours.items() if address is None]
    parts = [f"calls {', '.join(calls)}"] if calls else []
    if called:
        parts.append(f"is called by {', '.join(called)} at {network.site(name).address}")
    for relay in network.relays:
        met = [other for link in relay.links if name in link for other in link if other != name]
        parts += [f"meets {', '.join(met)} at {relay.name}, {relay.address}"] * bool(met)
    return "; ".join(parts) or "no links"


def sign(
    request: Annotated[Path, argument("REQUEST.pem", "The certificate request that the site sent.")],
    name: Annotated[str, option(None, "NAME", "The site that sent it; the request must have this name and no other.")],
    ca: AuthorityPath = Path(FileNames.CA_FOLDER),
    out: Annotated[Path, option(None, "FILE", "Where to write the certificate.")] = Path(FileNames.CERTIFICATE),
    days: Days = None,
) -> None:
    """Sign a site's certificate request with the network's own authority.

    First make sure that the request came from the site: whoever has the certificate and its key can impersonate it.

    Example:

    - `eigenmesh site sign oslo-request.pem --name oslo --ca mesh/ca --out oslo-cert.pem`
    """
    import_extra("cryptography", "peers", "signing certificates")
    from eigenmesh.sites.authority import AuthorityFolder, read_file

    folder = AuthorityFolder(ca)
    signed = folder.authority.sign(read_file(request), name, days)
    folder.record(signed, "sign")
    write_new([NewFile(out, signed)])
    Messages.of().print(f"wrote {out}: send it to {name}, with {ca / FileNames.AUTHORITY}; neither is secret.")


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

    - `eigenmesh site pin network.toml oslo-cert.pem bergen-cert.pem trondheim-cert.pem`

    - `eigenmesh site pin site.toml network.toml`
    """
    import_extra("cryptography", "peers", "reading certificates")
    from eigenmesh.sites.authority import pinned

    text, fingerprints = pinned(file, sources)
    save_text(file, text)
    messages = Messages.of()
    messages.print(facts_table(fingerprints))
    messages.print(
        f"wrote these fingerprints to {file}; compare them over a channel that the authority does not control."
    )


def renew(
    certificate: Annotated[Path, argument("CERT.pem", "The site's current certificate, expired or not.")],
    ca: AuthorityPath = Path(FileNames.CA_FOLDER),
    out: Annotated[Path, option(None, "FILE", "Where to write the new certificate.")] = Path("renewed.pem"),
    days: Days = None,
) -> None:
    """Issue a certificate with new dates for the same site and key.

    Neither the old certificate nor the new one is secret. A revoked certificate cannot be renewed.

    Example:

    - `eigenmesh site renew oslo/cert.pem --ca mesh/ca --out oslo-2028.pem`
    """
    import_extra("cryptography", "peers", "renewing certificates")
    from eigenmesh.sites.authority import AuthorityFolder, RevocationList, read_file

    folder, old = AuthorityFolder(ca), read_file(certificate)
    name, renewed = folder.authority.renew(old, days)
    if RevocationList(ca / FileNames.AUTHORITY).is_revoked(old):
        raise InputError(f"{certificate} is revoked; {name} needs a new key and a signed request: eigenmesh site sign.")
    folder.record(renewed, "renew")
    write_new([NewFile(out, renewed)])
    Messages.of().print(f"wrote {out}: {name} replaces its {FileNames.CERTIFICATE} with it before the next start.")


def revoke(
    name: Annotated[str, argument("NAME", "The site whose key was lost or stolen.")],
    ca: AuthorityPath = Path(FileNames.CA_FOLDER),
) -> None:
    """Revoke all certificates of a site, and write the list of revoked certificates, signed by the authority.

    Every site puts the list next to its ca.pem; running peers read it at once. The revoked site creates a new key and
    has a new request signed.

    Example:

    - `eigenmesh site revoke oslo --ca mesh/ca`
    """
    import_extra("cryptography", "peers", "revoking certificates")
    from eigenmesh.sites.authority import AuthorityFolder

    new = AuthorityFolder(ca).revoke(name)
    messages = Messages.of()
    messages.print(
        f"revoked {len(new)} certificates of {name}: {', '.join(f'{serial:x}' for serial in new) or 'none'}."
    )
    messages.print(f"Send {ca / FileNames.REVOKED} to all sites, to put next to their ca.pem; it is not secret.")
