"""``eigenmesh site key``, ``summarise``, ``combine`` and ``withdraw``: sums in files, where no port is open."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.options import argument, option
from eigenmesh.cli.output import STANDARD_OUTPUT, Outputs, require_apart, require_report, save_page
from eigenmesh.cli.process import NOT_CONVERGED
from eigenmesh.data import Pooled
from eigenmesh.errors import import_extra
from eigenmesh.events import Entry
from eigenmesh.fitting import fit_numbers, fit_of_total
from eigenmesh.networks import Traffic
from eigenmesh.report.pictures import counted
from eigenmesh.sites import read_network_file, read_site
from eigenmesh.words import listed, readable_bytes

if TYPE_CHECKING:
    from eigenmesh.sites.sum_files import SumFile, SumFolder

KEYS_HELP = "Folder with the public keys and withdrawals of all sites."
Keys = Annotated[Path, option(options.OUTPUT, "FOLDER", KEYS_HELP, "--keys")]
SumPath = Annotated[Path | None, option(options.OUTPUT, "FILE", "The masked sum, by default NAME.sum.", "--out")]
REPORT_HELP = "Write a page for the reviewer of this site: what is in the sum, and what others learn. It stays here."
ReviewPage = Annotated[Path | None, option(options.OUTPUT, "FILE.html", REPORT_HELP, "--report")]
Sums = Annotated[list[Path], argument("FILE.sum", "The sums of all sites.")]
NetworkPath = Annotated[Path, argument("NETWORK.toml", "The network that all sites have agreed on, with fingerprints.")]
EXTRA = "cryptography", "peers", "sums in files"


def key(site: options.SiteFile, keys: Keys = Path("keys")) -> None:
    """Write this site's public key for one sum to a folder, for all sites.

    The key is signed with the key of the site's certificate, whose fingerprint the network file has. It is not secret;
    the secret that belongs to it stays in the site's out folder, until the sum is written. Again, it is the same key.
    After the sum a new one is made only if another site has withdrawn, whose withdrawal is in the folder.

    Example:

    - `eigenmesh site key site.toml --keys keys`
    """
    written = _folder(site).key(keys)
    Messages.of().print(f"wrote {written}: give it to all sites, and put their keys into {keys}; it is not secret.")


def summarise(
    site: options.SiteFile, keys: Keys = Path("keys"), out: SumPath = None, report: ReviewPage = None
) -> None:
    """Write the masked sum of this site: counts, sums and cross products that only the sums of all sites reveal.

    Samples are read as eigenmesh site run reads them. First the plain numbers are written to the site's out folder,
    where they stay for whoever reviews what leaves. The mask is added to these, with this site's secret and the keys of
    all others; then the secret is deleted. A run that was killed is started again. Again, with the same keys, it writes
    the same file. With other keys or data it writes nothing.

    Example:

    - `eigenmesh site summarise site.toml --keys keys --out oslo.sum --report oslo-review.html`
    """
    folder = _folder(site)
    out = Path(f"{folder.site.name}.sum") if out is None else out
    require_apart([path for path in (out, report) if path is not None], [str(site), str(folder.site.data.file)])
    if report is not None:
        require_report(report)
    messages = Messages.of()
    with messages.waiting("reading the data"):
        made = folder.summarise(keys, out)
    messages.print(f"wrote {folder.plain}: the plain numbers, which stay here")
    messages.print(f"wrote {out}, {readable_bytes(out.stat().st_size)}: hand it on; its numbers are random to everyone")
    if report is not None:
        messages.print(f"wrote {_review(folder, made, report)}: for this site alone")


def withdraw(site: options.SiteFile, keys: Keys = Path("keys")) -> None:
    """Sign that this site sends no sum in this study, for good, and delete the secret of its key.

    The others need this before they start again without this site: after that, no late file can give its numbers away.
    A sum that was written is deleted, and must still be where it was written.

    Example:

    - `eigenmesh site withdraw site.toml --keys keys`
    """
    folder = _folder(site)
    written = folder.withdraw(keys)
    Messages.of().print(
        f"wrote {written}, and deleted the secret: give it to all other sites. First all of them run eigenmesh site "
        f"key again, then eigenmesh site summarise."
    )


def combine(
    network: NetworkPath,
    sums: Sums,
    out: options.ArraysFile = None,
    json_file: options.NumbersFile = None,
    report: options.ReportFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Find the components of all samples from the sums of all sites, and certify them.

    Anybody who has the agreed network file and the sums may do this, anywhere. Sums that are missing, damaged, there
    twice, of another study, or made with other keys are refused by name. Exit status: 0 if the certificate reached the
    tolerance, 1 if not.

    Examples:

    - `eigenmesh site combine network.toml *.sum --out pca.npz --report pca.html`

    - `eigenmesh transform oslo.csv --model pca.npz --out scores.csv`
    """
    import_extra(*EXTRA)
    from eigenmesh.sites.sum_files import Study, added

    messages = Messages.of(quiet, machine_output=json_file == STANDARD_OUTPUT)
    outputs = Outputs(out, json_file, None, None, report)
    outputs.check([str(network), *map(str, sums)])
    study = Study.of(read_network_file(network))
    read, words = added(sums, study)
    names, columns = [one.header["site"] for one in read], read[0].header["columns"]
    total = study.form(read[0].header["n_features"], columns).decode(words)
    sent = Traffic(rounds=1, messages=len(sums), bytes=sum(path.stat().st_size for path in sums))
    entries: list[Entry] = []
    with messages.log(None, entries.append) as log:
        fitted = fit_of_total(total, study.settings.request(), names, columns, sent, log)
        log.emit(fitted.result.ended)
    disclosure = fitted.result.certificate.disclosure
    facts = {
        "run": study.run,
        "method": "one sum, masked",
        "network": "none: files that people carry",
        "sites": ", ".join(names),
        "left out": ", ".join(name for name in study.sites if name not in names) or "none",
        "data": f"{total.n_samples:,} samples of {len(total.mean):,} columns",
        "known now": disclosure.of_all_samples,
        **{f"SHA-256 of {one.path.name}": one.header["sha256"] for one in read},
    }
    about = {"run": study.run, "study": study.digest, "sites": names, "n_samples": total.n_samples}
    about |= {"privacy": disclosure.numbers(), "files": {one.header["site"]: one.header["sha256"] for one in read}}
    messages.print(f"{facts['data']} at {counted(len(names), 'site')}: {facts['sites']}")
    outputs.finish(messages, fitted, fit_numbers(fitted, about), entries, f"PCA of {study.run}", facts)
    if not fitted.result.converged:
        raise typer.Exit(NOT_CONVERGED)


def _folder(path: Path) -> SumFolder:
    import_extra(*EXTRA)
    from eigenmesh.sites.sum_files import SumFolder

    return SumFolder(read_site(path))


def _review(folder: SumFolder, made: SumFile, report: Path) -> Path:
    """Write the page for the reviewer, from the files as they are on the disk."""
    study, name = folder.study, folder.site.name
    header, words = folder.read_plain()
    own = study.form(header["n_features"], header["columns"]).decode(words)
    others = [other for other in study.sites if other in made.roster and other != name]
    facts = {
        "file that leaves": f"{made.path.name}, {readable_bytes(made.path.stat().st_size)}",
        "from": f"{name}, run {study.run}",
        "added up with": ", ".join(others),
        "data": f"{own.n_samples:,} samples of {len(own.mean):,} columns",
        "asked for": f"{study.settings.asked.n_components} components, scale = {study.settings.asked.scale}",
        "plain numbers": f"{folder.plain}, which must not leave",
    }
    says = f"{made.path.name} is random to everyone who does not have the files of all {len(others) + 1} sites."
    sections = [_what_others_learn(others), _under_the_mask(own, header), _in_clear(made)]
    return save_page(report, f"What {name} sends for {study.run}", [], says=says, facts=facts, sections=sections)


def _what_others_learn(others: list[str]) -> dict[str, Any]:
    everyone = f"all {len(others) + 1} sites"
    rows = [
        ("anybody with this file alone", "nothing but what is written in clear"),
        (f"anybody with the files of {everyone}", "N, mean, variances and covariance of all samples together"),
        (f"{len(others) - 1} of the other sites, working together", "the same, and so the sum of the two last sites"),
        (f"all {len(others)} other sites, working together", "everything below: they subtract their own numbers"),
    ]
    return {"title": "What others learn about this site", "heads": ["who", "what"], "rows": rows}


def _under_the_mask(own: Pooled, header: Mapping[str, Any]) -> dict[str, Any]:
    """What the plain numbers say, decoded from their file."""
    names = header["columns"] or [f"column {number}" for number in range(len(own.mean))]
    each = zip(names, own.mean, np.sqrt(own.variance), header["exponents"], strict=True)
    rows = [(name, f"{mean:.6g}", f"{deviation:.6g}", f"2^{e}") for name, mean, deviation, e in each]
    d = len(names)
    words = [
        f"The number of samples ({own.n_samples:,}), {d:,} sums and {d * (d + 1) // 2:,} cross products, from which "
        f"these follow, and the covariances of all pairs of columns. No sample, and no smallest or largest value."
    ]
    heads = ["column", "mean here", "standard deviation here", "range"]
    return {"title": "What is under the mask", "words": words, "heads": heads, "rows": rows}


def _in_clear(made: SumFile) -> dict[str, Any]:
    header = made.header
    share = np.unpackbits(made.words.view(np.uint8)).mean()
    rows = [
        ("kind, run, site", f"{header['kind']}, {header['run']}, {header['site']}"),
        ("study: SHA-256 of what was agreed on", header["study"]),
        ("names of columns", listed(header["columns"] or [], 10) or "none"),
        ("ranges of columns", "as above"),
        *((f"public key of {name}", public) for name, public in made.roster.items()),
        (f"SHA-256 of the {header['words']:,} numbers of 64 bits", header["sha256"]),
        ("share of bits that are 1", f"{share:.2%}"),
        (f"signature of {header['site']}", header["signature"]),
    ]
    words = [f"head -n 1 {made.path.name} shows all of it. The numbers come after that line."]
    return {"title": "What the file says in clear", "words": words, "heads": ["field", "value"], "rows": rows}
