"""What a run would send, on one page for the person who decides, and the approval that this person signs."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from eigenmesh import __version__
from eigenmesh.atomic_write import save_json, save_text
from eigenmesh.errors import InputError, UnreadableFileError, file_errors
from eigenmesh.masking import ALL_PAIRS_UP_TO
from eigenmesh.sites.authority import load_certificate, load_credentials
from eigenmesh.sites.network_file import STATIC, Manifest, differences
from eigenmesh.sites.site import Site, read_samples
from eigenmesh.transports.tls import CertificateKeyring
from eigenmesh.transports.tls.keyring import is_signed_by_pinned, key_fingerprint
from eigenmesh.words import canonical, one_line

# Columns that are listed by name; a page has room for no more.
MOST_NAMES = 60
# Clocks differ: an approval may be dated so much later than now.
CLOCK_SLACK = dt.timedelta(hours=1)
# Characters of the digest that a person copies from the statement.
DIGEST_WORDS = 16

Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class RunStatement:
    """What this site would send in one run, and what others would learn, in words.

    Attributes
    ----------
    title : str
        The heading.
    sections : list
        Headings, each with rows of a subject and its text.
    manifest : Manifest
        What all sites agree on; an approval names its digest.
    """

    title: str
    sections: list[tuple[str, Rows]]
    manifest: Manifest

    @classmethod
    def of(cls, site: Site) -> RunStatement:
        """The statement of a site, whose samples are read."""
        table = read_samples(site.data)
        names, shape = table.feature_names, (int(table.source.shape[0]), int(table.source.shape[1]))
        manifest = Manifest.of(site, shape[1], names, shape[0])
        sections = [
            ("The run", _run(site)),
            ("The data of this site", _data(site, names, shape)),
            ("What leaves this site", _leaves(site, shape)),
            ("What others learn", _learned(site, shape)),
            ("Limits", _limits(site)),
            ("What is kept", _kept(site)),
        ]
        return cls(f"What {site.name} would send in the run {site.run!r}", sections, manifest)

    @property
    def _how_to_approve(self) -> str:
        digest = self.manifest.digest[:DIGEST_WORDS]
        return f'eigenmesh site approve site.toml --digest {digest} --name "first and last name"'

    @property
    def _written(self) -> str:
        return f"Written on {dt.datetime.now(dt.UTC):%Y-%m-%d} by eigenmesh {__version__}."

    @property
    def text(self) -> str:
        """The page as plain text."""
        lines = [self.title, "=" * len(self.title), ""]
        for heading, rows in self.sections:
            lines += [heading, "-" * len(heading), *(f"{subject}: {words}" for subject, words in rows), ""]
        lines += [
            f"Digest of what all sites agree on: {self.manifest.digest}",
            f"To approve: {self._how_to_approve}",
            "",
        ]
        lines.append(f"{self._written} Name, date, signature: ______________________________")
        return "\n".join(lines) + "\n"

    @property
    def html(self) -> str:
        """The page as HTML for a screen or one sheet of paper; it has no script and fetches nothing."""
        parts = []
        for heading, rows in self.sections:
            cells = "".join(f"<tr><th>{escape(subject)}</th><td>{escape(words)}</td></tr>" for subject, words in rows)
            parts.append(f"<h2>{escape(heading)}</h2><table>{cells}</table>")
        return Template(STATIC.joinpath("statement.html").read_text(encoding="utf-8")).substitute(
            title=escape(self.title),
            sections="\n".join(parts),
            digest=self.manifest.digest,
            approve=escape(self._how_to_approve),
            written=escape(self._written),
        )

    def write(self, path: Path) -> tuple[Path, Path]:
        """Write the page as HTML, and next to it as text."""
        return save_text(path, self.html), save_text(path.with_suffix(".txt"), self.text)


def _run(site: Site) -> Rows:
    asked = site.settings.asked
    scaled = "divided by their standard deviations over all sites" if asked.scale else "as they are"
    links = [*site.neighbours, *(f"{name} (over {relay.name})" for name, relay in site.met_at_relays.items())]
    return [
        ("sites", ", ".join(f"{name} (this site)" if name == site.name else name for name in site.sites)),
        ("linked to this site", ", ".join(links) or "none: people carry files"),
        ("question", f"{asked.n_components} principal components of all samples together, of the columns {scaled}"),
    ]


def _data(site: Site, names: Sequence[str] | None, shape: tuple[int, int]) -> Rows:
    listed = "without names"
    if names is not None:
        more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
        listed = one_line(", ".join(names[:MOST_NAMES])) + more
    return [
        ("file", f"{site.data.file.name}; samples never leave this site"),
        ("samples", f"{shape[0]:,}"),
        (f"{shape[1]:,} columns", listed),
    ]


def _leaves(site: Site, shape: tuple[int, int]) -> Rows:
    d, by_columns = shape[1], site.settings.partition == "features"
    count = "sums over its columns" if by_columns else "the number of samples; sum and sum of squares of each column"
    if _sums_covariances(site, shape):
        products = f"cross products of all pairs of columns: {d * (d + 1) // 2:,} numbers, once"
    else:
        products = "products of its covariance with blocks of vectors that all sites know, several times"
    never = "samples, identifiers, smallest or largest values, paths or file names"
    hidden = "each number is masked, and random to everyone until the masked numbers of all sites are added up"
    if not site.settings.masked:
        hidden = "not masked: neighbours see the numbers, or sums of them"
    return [
        ("numbers", f"{count}; {products}"),
        ("how", hidden),
        ("besides", "the names of its columns, the settings, its certificate, and signed statements about the run"),
        ("not", f"{never}; its own number of samples only masked" if site.settings.masked else never),
    ]


def _sums_covariances(site: Site, shape: tuple[int, int]) -> bool:
    """Whether covariances are summed up, as in files, and not products of them."""
    length = shape[0] if site.settings.partition == "features" else shape[1]
    return not site.edges or site.settings.method(length).traits.sums_covariances


def _learned(site: Site, shape: tuple[int, int]) -> Rows:
    others, whole = len(site.sites) - 1, "the number, mean, variances and components of all samples together"
    if _sums_covariances(site, shape):
        whole += ", and their covariance"
    else:
        whole += ", and products of their covariance, from which it follows in part"
    rows = [("every site", whole)]
    if site.settings.partition == "features":
        rows.append(("every site, too", "the scores of all samples"))
    if site.settings.masked:
        rows.append(("a neighbour, or who sees all messages", "no more than every site"))
        if len(site.sites) <= ALL_PAIRS_UP_TO:
            one_less = f"{others - 1} other sites together" if others > 2 else "one other site with its own numbers"
            rows.append((one_less, "the sum of this site and the one that is left, no more"))
        rows.append((f"all {others} other sites together", "the sums of this site alone, if they subtract their own"))
    else:
        rows.append(("the neighbour that adds up", "the sums of this site alone, or of it and others"))
    relays = sorted({relay.name for relay in site.met_at_relays.values()})
    rows += [
        (f"the relay {name}", "who is linked over it, when, and how many bytes pass; no number") for name in relays
    ]
    if site.settings.on_loss == "continue":
        rows.append(("if a site is lost", "the others continue, and can compute the sums of the lost site"))
    return rows


def _limits(site: Site) -> Rows:
    settings, least = site.settings, site.settings.asked.min_samples
    together = f"at least {least}; with fewer, the run ends after the count" if least else "no limit"
    return [
        ("samples at each site", f"at least {settings.min_samples_per_site}; with fewer, a site sends nothing"),
        ("samples at all sites", together),
        ("not protected", "others may send wrong numbers; two runs that differ by a few samples show those samples"),
    ]


def _kept(site: Site) -> Rows:
    return [
        ("at this site", "result and audit, until somebody deletes them; the journal is deleted when the run is over"),
        ("at other sites", "the same result, and an audit of what they sent; masked numbers until their run is over"),
    ]


# Approvals.


@dataclass(frozen=True)
class Approval:
    """A person's yes to one manifest, signed by the key of the site.

    Attributes
    ----------
    site, run : str
        Whose run it is.
    name, date : str
        Of the person, and when, in ISO 8601 with its time zone.
    manifest : dict
        The whole manifest, so that a later one can be compared with it.
    public_key, signature : str
        The site's key, and its signature of all of the above.
    """

    site: str
    run: str
    name: str
    date: str
    manifest: dict[str, Any]
    public_key: str
    signature: str = ""

    @property
    def _signed(self) -> bytes:
        content = {key: value for key, value in asdict(self).items() if key != "signature"}
        return f"eigenmesh approval\n{canonical(content)}".encode()

    @classmethod
    def read(cls, path: Path) -> Approval:
        """The approval in a file."""
        try:
            with file_errors(f"{path} cannot be read", "run eigenmesh site approve"):
                found = cls(**json.loads(path.read_text(encoding="utf-8")))
            texts = found.site, found.run, found.name, found.public_key, found.signature
            if not all(isinstance(text, str) for text in texts) or not isinstance(found.manifest, dict):
                raise ValueError("a field is of another kind")
            if dt.datetime.fromisoformat(found.date).tzinfo is None:
                raise ValueError("its date has no time zone")
        except (ValueError, TypeError) as error:
            raise UnreadableFileError(f"{path} is not an approval ({error}); run eigenmesh site approve.") from error
        return found


def approval_file(site: Site) -> Path:
    """Where the approval of a site is: next to its site.toml."""
    return site.path.with_name("approval.json")


def approve(site: Site, manifest: Manifest, name: str, digest: str) -> Path:
    """Sign the approval of this manifest, whose digest begins as the person has read on the statement."""
    if not name.strip():
        raise InputError("an approval needs the name of a person; give --name.")
    if len(digest) < DIGEST_WORDS or not manifest.digest.startswith(digest):
        fix = "read the statement again: eigenmesh site check --statement statement.html"
        raise InputError(f"the digest {digest!r} is not that of this run; {fix}.")
    keyring = CertificateKeyring(load_credentials(site.tls, site.name, site.fingerprints))
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    unsigned = Approval(site.name, site.run, one_line(name), now, manifest.content, keyring.public_key)
    made = {**asdict(unsigned), "signature": keyring.sign(unsigned._signed)}
    save_json(approval_file(site), made)
    return approval_file(site)


def changes_since_approval(site: Site, manifest: Manifest) -> list[str]:
    """What differs between the manifest that was approved last and this one; empty if nothing was approved."""
    path = approval_file(site)
    return differences(Manifest(Approval.read(path).manifest), manifest) if path.exists() else []


def require_approval(site: Site, manifest: Manifest) -> None:
    """Raise unless a person has approved exactly this manifest with the key of this site. Only if site.toml asks."""
    if not site.approve:
        return
    path, fix = approval_file(site), "read the statement (eigenmesh site check --statement statement.html), then"
    fix = f"{fix} run eigenmesh site approve {site.path}"
    if not path.exists():
        raise InputError(f"{site.path} has approve = true, but nobody has approved this run; {fix}.")
    found = Approval.read(path)
    own = load_certificate(site.tls.certificate.read_bytes())
    if not is_signed_by_pinned(key_fingerprint(own), found.public_key, found._signed, found.signature):
        raise InputError(f"{path} is not signed by the key of {site.name}; {fix}.")
    by = f"{path} of {found.name}, {found.date[:10]},"
    if dt.datetime.fromisoformat(found.date) > dt.datetime.now(dt.UTC) + CLOCK_SLACK:
        raise InputError(f"{by} has a date in the future; check the clock, and {fix}.")
    changed = differences(Manifest(found.manifest), manifest)
    if found.site != site.name or changed:
        what = one_line("; ".join(changed)) or f"it is of {found.site}"
        raise InputError(f"{by} is for another run: {what} (approved, and now). To approve this one, {fix}.")
