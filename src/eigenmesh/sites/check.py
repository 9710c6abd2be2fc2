"""A dry run at one site: checks data, certificates and neighbours, and forecasts the traffic. Nothing is written."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import os
import shutil
import ssl
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from eigenmesh.arrays import ITEM_BYTES, is_sparse
from eigenmesh.data import Source
from eigenmesh.errors import EigenmeshError, InputError, MissingEntriesError
from eigenmesh.fitting import Forecast, largest_sum, plan, prepare
from eigenmesh.masking import ALL_PAIRS_UP_TO, MIN_SITES, mask_rule
from eigenmesh.sites.approval import Approval, approval_file, require_approval
from eigenmesh.sites.authority import dates, load_credentials
from eigenmesh.sites.network_file import Manifest, differences
from eigenmesh.sites.peer import alike, routes_of
from eigenmesh.sites.results import written_bytes
from eigenmesh.sites.site import MAX_MESSAGE_BYTES, Site, read_samples, require_terms
from eigenmesh.sites.sum_files import Study
from eigenmesh.transports.tls.connection import bound
from eigenmesh.transports.tls.dialling import AbsentError, UnwelcomeError, certificate_of, manifest_of
from eigenmesh.words import listed, one_line, readable_bytes

Verdict = Literal["ok", "note", "problem"]
CONNECT_S = 5.0
# A certificate with fewer days left should be renewed.
SOON_DAYS = 30
NUMBERS_AT_ONCE = 1 << 22
# Larger samples are not added up for a test.
MOST_NUMBERS = 1 << 28
MOST_NAMES = 5


@dataclass(frozen=True)
class Finding:
    """One line of a check: its subject, the verdict, and what was found, with the fix if there is one."""

    about: str
    verdict: Verdict
    text: str


def check(site: Site) -> Iterator[Finding]:
    """Everything that can be checked before a run. If one part fails, the others are still checked."""
    certificates = list(_tried("certificate", _certificates(site)))
    yield from certificates
    yield from _tried("listen", _listening(site))
    usable = all(finding.verdict != "problem" for finding in certificates)
    found = {name: _neighbour(site, name, usable) for name in (*site.neighbours, *site.met_at_relays)}
    yield from found.values()
    try:
        table = read_samples(site.data)
    except EigenmeshError as error:
        yield Finding("data", "problem", str(error))
        yield from _tried("privacy", _privacy(site))
        yield _out(site, written_bytes(site))
        return
    yield from _tried("privacy", _privacy(site, int(table.source.shape[0])))
    yield from _data(site, table.source, table.feature_names)
    n_samples, n_features = table.source.shape
    manifest = Manifest.of(site, n_features, table.feature_names, n_samples)
    yield from _tried("approval", _approval(site, manifest))
    if not site.edges:
        yield from _tried("files", _files(site, n_features, table.feature_names))
        yield _out(site, written_bytes(site, None, n_samples, n_features))
        return
    yield Finding("run", "ok", f"{site.run!r}, manifest {manifest.digest[:16]}: the same at all sites that agree")
    for name in site.called:
        if found[name].verdict == "ok":
            yield from _tried(f"manifest of {name}", _manifest(site, manifest, name))
    yield from _tried("sums", _sums(site, table.source))
    best = yield from _traffic(site, table.source)
    yield _out(site, written_bytes(site, best, n_samples, n_features))


def _tried(about: str, part: Iterator[Finding]) -> Iterator[Finding]:
    """The findings of a part of the check. That it cannot go on is a problem."""
    try:
        yield from part
    except EigenmeshError as error:
        yield Finding(about, "problem", one_line(str(error)))


def _certificates(site: Site) -> Iterator[Finding]:
    load_credentials(site.tls, site.name, site.fingerprints)
    for what, path in (("certificate", site.tls.certificate), ("authority", site.tls.ca)):
        _, end = dates(path)
        days = (end - dt.datetime.now(dt.UTC)).days
        soon: Verdict = "note" if days < SOON_DAYS else "ok"
        renew = "; renew it with eigenmesh site renew" if days < SOON_DAYS else ""
        yield Finding(what, soon, f"valid until {end:%Y-%m-%d}, {days} days{renew}")
    if site.fingerprints:
        yield Finding("fingerprints", "ok", f"of the keys of all {len(site.fingerprints)} sites")
    elif not site.settings.masked:
        risk = "the authority could impersonate a site"
        yield Finding("fingerprints", "note", f"none: {risk}; add them with eigenmesh site pin")


def _privacy(site: Site, n_samples: int | None = None) -> Iterator[Finding]:
    """What other sites would see, and whether this site meets the terms of the run."""
    require_terms(site, n_samples)
    if site.settings.masked:
        colluding = f"; {len(site.sites) - 2} may collude" if len(site.sites) <= ALL_PAIRS_UP_TO else ""
        yield Finding("privacy", "ok", f"masked, {mask_rule(len(site.sites))} of {len(site.sites)} sites{colluding}")
    else:
        yield Finding("privacy", "note", "open: neighbours see the numbers that they add up; read the threat model")


def _listening(site: Site) -> Iterator[Finding]:
    if site.listen is not None:
        bound(str(site.listen)).close()
        yield Finding("listen", "ok", f"{site.listen} is free")


def _out(site: Site, needed: float) -> Finding:
    """Whether the out folder exists or can be made, and has disk space for the files of a run."""
    folder = site.out.folder
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        return Finding("out", "problem", f"{folder} cannot be a folder: {nearest} is a file; choose another out.folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding("out", "problem", f"{folder} cannot be written: {nearest} is not writable; change its owner")
    free = shutil.disk_usage(nearest).free
    space = f"{folder} has {readable_bytes(free)} free; a run like this writes {readable_bytes(needed)} or more"
    return Finding("out", "ok", space) if free > needed else Finding("out", "problem", f"{space}: free some space")


def _neighbour(site: Site, name: str, usable: bool) -> Finding:
    """Try a TLS handshake with a neighbour that this site calls, or with the relay at which it meets one.

    A neighbour that calls this site cannot be tried.
    """
    about, relay = f"neighbour {name}", site.met_at_relays.get(name)
    if relay is None and site.neighbours[name] is None:
        return Finding(about, "note", f"not tested: it calls this site at {site.listen}, and only it can try that")
    where = str(site.neighbours[name]) if relay is None else f"the relay {relay.name} at {relay.address}"
    through = "" if site.proxy is None else f", through the proxy {site.proxy.address},"
    if not usable:
        return Finding(about, "note", f"{where} was not tried: this site has no certificate to show")
    credentials = load_credentials(site.tls, site.name, site.fingerprints)
    try:
        certificate = certificate_of(name, routes_of(site), credentials, CONNECT_S)
    except AbsentError:
        accepts = f"{where}{through} is up and accepts this site's certificate"
        if name in site.called:
            return Finding(about, "note", f"{accepts}; {name} is not there yet")
        return Finding(about, "note", f"{accepts}; not tested: {name} calls this site there")
    except (ssl.SSLError, UnwelcomeError) as error:
        return Finding(about, "problem", f"{where} is up, but the handshake failed: {one_line(str(error))}")
    except (ConnectionRefusedError, TimeoutError) as error:
        why = error.strerror or f"no answer within {CONNECT_S:g} s"
        return Finding(about, "note", f"{where} is not up, or a firewall is in the way: {why}")
    except OSError as error:
        return Finding(about, "problem", f"{where} cannot be reached: {one_line(error.strerror or str(error))}")
    until = dt.datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), dt.UTC)
    accepts = "is up and accepts this site's certificate"
    at = f"{where}{through}" if relay is None else f"{name}, over {where}{through}"
    return Finding(about, "ok", f"{at} {accepts}; its own ends {until:%Y-%m-%d}")


def _manifest(site: Site, ours: Manifest, name: str) -> Iterator[Finding]:
    """Whether a neighbour that is up is set up for the same run. Otherwise, what differs."""
    credentials = load_credentials(site.tls, site.name, site.fingerprints)
    theirs = Manifest.parse(manifest_of(name, routes_of(site), credentials, ours.run_id, CONNECT_S))
    differing = differences(ours, theirs)
    verdict: Verdict = "problem" if differing else "ok"
    different = f"it is set up for a different run: {one_line('; '.join(differing))}"
    yield Finding(f"manifest of {name}", verdict, different if differing else "the same as here")


def _approval(site: Site, manifest: Manifest) -> Iterator[Finding]:
    """Whether a person has approved this run, if site.toml asks for it. The statement is written before that."""
    try:
        require_approval(site, manifest)
    except InputError as error:
        yield Finding("approval", "note", f"the run does not start yet: {one_line(str(error))}")
        return
    if site.approve:
        found = Approval.read(approval_file(site))
        yield Finding("approval", "ok", f"of this run, by {one_line(found.name)} on {found.date[:10]}")


def _data(site: Site, samples: Source, names: tuple[str, ...] | None) -> Iterator[Finding]:
    n_samples, n_features = samples.shape
    named = f"{names[0]} .. {names[-1]}" if names else "without names; set data.feature_names to name them"
    yield Finding("data", "ok", f"{n_samples:,} samples of {n_features:,} columns, {named}")
    missing, constant = _columns(samples)
    labels = np.array(names or [f"column {number}" for number in range(n_features)], dtype=object)
    if missing.any():
        fix = 'set missing = "mean" at all sites, or fill them in' if site.edges else "fill them in"
        verdict: Verdict = "problem" if site.settings.asked.missing == "error" else "note"
        where = listed(labels[missing > 0].tolist(), MOST_NAMES)
        yield Finding("missing", verdict, f"{int(missing.sum()):,} entries in {where}; {fix}")
    if constant.any():
        scaled = "columns that are constant at all sites cannot be scaled; drop them"
        what = scaled if site.settings.asked.scale else "constant columns add no variance"
        yield Finding("constant", "note", f"{listed(labels[constant].tolist(), MOST_NAMES)}; {what}")


def _sums(site: Site, samples: Source) -> Iterator[Finding]:
    """Whether the run could add up what this site sends before the first product: by the code of the run itself.

    A few simulated sites have these samples each. What depends on all sites together is left to the run.
    """
    if site.settings.partition == "features":
        yield Finding("sums", "note", "not tested: they are over columns that other sites hold")
        return
    if samples.shape[0] * samples.shape[1] > MOST_NUMBERS:
        yield Finding("sums", "note", f"not tested: more than {MOST_NUMBERS:,} numbers")
        return
    request = replace(site.settings.request(site.data.covariance), min_samples=0)
    # Missing entries are a finding of their own.
    with contextlib.suppress(MissingEntriesError):
        prepare(request, alike(site, samples, MIN_SITES))
        yield Finding("sums", "ok", "the sums with which a run begins can be computed from these samples")


def _columns(samples: Source) -> tuple[np.ndarray, np.ndarray]:
    """Per column, the number of entries that are not finite, and whether all finite entries are equal: (d,) each."""
    n_samples, d = samples.shape
    missing, low, high = np.zeros(d, dtype=int), np.full(d, math.inf), np.full(d, -math.inf)
    step = max(1, NUMBERS_AT_ONCE // d)
    for start in range(0, n_samples, step):
        rows = samples.read(slice(start, min(start + step, n_samples)))
        chunk = np.asarray(rows.toarray() if is_sparse(rows) else rows, dtype=float)
        finite = np.isfinite(chunk)
        missing += (~finite).sum(axis=0)
        low = np.minimum(low, np.where(finite, chunk, math.inf).min(axis=0))
        high = np.maximum(high, np.where(finite, chunk, -math.inf).max(axis=0))
    return missing, low >= high


def _files(site: Site, n_features: int, names: tuple[str, ...] | None) -> Iterator[Finding]:
    """What a site without links sends."""
    size = readable_bytes(8 * Study.of(site).form(n_features, names).n_words)
    yield Finding("files", "ok", f"no links, so one file of {size} is handed on; see eigenmesh site key")


def _traffic(site: Site, samples: Source) -> Generator[Finding, None, Forecast | None]:
    """What a run would send if all sites had samples like those of this site. Returns the forecast, if any."""
    request = site.settings.request(site.data.covariance)
    if site.settings.partition == "features":
        yield Finding("forecast", "note", "none for split columns; all sites will know the scores of all samples")
        yield from _messages(site, samples.shape[0] - 1)
        return None
    try:
        best = plan(request, alike(site, samples)).best
    except EigenmeshError as error:
        yield Finding("forecast", "problem", str(error))
        return None
    if not math.isfinite(best.rounds):
        words = f"{best.solver} does not reach tol = {request.tol:g} within {request.max_rounds:,} rounds on such data"
        yield Finding("forecast", "problem", f"{words}; choose another solver or tolerance")
        return None
    share = f"{best.messages / len(site.sites):,.0f} messages with {readable_bytes(best.bytes / len(site.sites))}"
    yield Finding("forecast", "ok", f"{best.rounds:,.0f} rounds; a site sends about {share}, by {best.averaging}")
    yield from _messages(site, samples.shape[1])
    return best


def _messages(site: Site, d: int) -> Iterator[Finding]:
    """The size of the largest message, if a vector has d numbers."""
    k, solver = site.settings.asked.n_components, site.settings.method(d)
    if isinstance(k, int):
        sums = solver.traits.sums_covariances
        size = ITEM_BYTES * (largest_sum(d, squares=False) if sums else solver.largest_message(k, d))
        fits: Verdict = "ok" if size <= MAX_MESSAGE_BYTES else "problem"
        what = "the covariance in one sum" if sums else f"products of {d:,} x {solver.columns(k, d):,}"
        most = "" if fits == "ok" else f", more than the limit of {readable_bytes(MAX_MESSAGE_BYTES)} per message"
        largest = f"the largest has {readable_bytes(size)}{most}"
        yield Finding("messages", fits, f"{what}; {largest}")
