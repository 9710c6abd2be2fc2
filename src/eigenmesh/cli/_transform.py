"""``eigenmesh transform``: project samples onto components that were saved."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

import numpy as np

from eigenmesh._atomic_write import require_writable
from eigenmesh.cli import _options as options
from eigenmesh.cli._messages import Messages
from eigenmesh.cli._table_options import takes_table
from eigenmesh.data import Table, TableOptions, read_table
from eigenmesh.data._anndata_results import H5AD, save_h5ad
from eigenmesh.data._distances import spe_limit
from eigenmesh.data._files import kind_of
from eigenmesh.data._plink_results import EIGENVEC, save_plink
from eigenmesh.data._scores import Filling
from eigenmesh.data._scores_file import save_scores, scores_file
from eigenmesh.errors import InputError
from eigenmesh.estimator._saved_model import SavedModel, load_model

MODEL_HELP = "A model: eigenmesh fit --out, a peer's result.npz, or DecentralizedPCA.save."
OUT_HELP = "Where to put the scores: .npz, .npy, .csv; .eigenvec of a .bed or .pgen, or a copy of the .h5ad with them."
MISSING_HELP = "Empty and infinite entries: an error, the pooled mean, or scores that fit the other entries best."
WHITEN_HELP = "Give the scores of each component unit variance."
NEW_HELP = "The samples were not in the fit: correct their scores, which else are drawn towards zero."
MONITOR_HELP = "Write T2 and SPE of each sample beside its scores, and say how many are beyond their limits of 1 %."
QUIET_HELP = "With --monitor: samples that nothing is wrong with, not in the fit, for the limit of SPE."
# Files of results that are for one kind of data alone.
FORMS = {EIGENVEC: (".bed", ".pgen"), H5AD: (H5AD,)}


@takes_table
def transform(
    data: Annotated[Path, options.argument("DATA", f"A file: {options.FILE_KINDS}.")],
    model: Annotated[Path, options.option(None, "FILE.npz", MODEL_HELP)],
    out: Annotated[Path, options.option(None, "FILE", OUT_HELP)],
    table: TableOptions,
    missing: Annotated[str, options.option(options.DATA, "error|mean|least-squares", MISSING_HELP)] = "error",
    whiten: Annotated[bool, options.option(None, None, WHITEN_HELP, "--whiten")] = False,
    new_samples: Annotated[bool, options.option(None, None, NEW_HELP, "--new-samples")] = False,
    monitor: Annotated[bool, options.option(None, None, MONITOR_HELP, "--monitor")] = False,
    quiet_samples: Annotated[Path | None, options.option(None, "FILE", QUIET_HELP)] = None,
    quiet: options.Quiet = False,
) -> None:
    """Project samples onto saved components: the scores of each sample, one column per component.

    Samples are centred with the pooled mean of the model, and scaled as it was. Where both have names, the columns of
    the model are taken by name, in any order, and others are left out. **--id-column** goes into the scores.

    Examples:

    - `eigenmesh transform patients.csv --model result.npz --out scores.csv`

    - `eigenmesh transform samples.npy --model pca.npz --whiten --out scores.npy`

    - `eigenmesh transform oslo.bed --model pca.npz --out oslo.eigenvec`

    - `eigenmesh transform cells.h5ad --model pca.npz --out cells-pca.h5ad`

    - `eigenmesh transform today.csv --model pca.npz --monitor --quiet-samples last-week.csv --out today-scores.csv`
    """
    messages = Messages.of(quiet)
    if out.resolve() in (data.resolve(), model.resolve()):
        raise InputError(f"--out {out} is an input already; choose another name.")
    form = out.suffix.lower()
    if form in FORMS and (kind_of(data) not in FORMS[form] or whiten):
        kinds = " or ".join(FORMS[form])
        raise InputError(
            f"--out {out} is for the scores of a {kinds} file, without --whiten; choose .csv, .npz or .npy."
        )
    if quiet_samples is not None and not monitor:
        raise InputError(f"--quiet-samples {quiet_samples} is for --monitor; add it, or leave both out.")
    if monitor and out.suffix.lower() not in (".csv", ".npz"):
        raise InputError(f"--out {out} cannot store T2 and SPE; with --monitor choose .csv or .npz.")
    require_writable(out if form in FORMS else scores_file(out))
    saved = load_model(model, whiten=whiten, missing=cast(Filling, missing))
    for warning in saved.warnings_:
        messages.alert(f"warning: {model}: {warning}.", style="yellow")
    names = tuple(getattr(saved, "feature_names_in_", ()))
    how = vars(replace(table, among=frozenset(names) or None))
    with messages.waiting("reading the data"):
        read = read_table(data, **how)
    if names and read.feature_names is None:
        messages.alert(f"warning: {data} has no column names, so their order could not be checked.", style="yellow")
    project = saved.transform_new if new_samples else saved.project_source
    scores = project(read.source, str(data))
    beside: dict[str, np.ndarray] = {}
    if monitor:
        quiet_ones = None if quiet_samples is None else read_table(quiet_samples, **how)
        beside = monitored(saved, read, quiet_ones, messages)
    if form == EIGENVEC:
        written = save_plink(out, data, saved.model_, scores)
    elif form == H5AD:
        written = [save_h5ad(out, data, saved.model_, scores, table.layer)]
    else:
        written = [save_scores(out, scores, read, table, beside)]
    listed = ", ".join(map(str, written))
    messages.tell(f"wrote {listed}: {len(scores):,} samples, {saved.n_components_} components")
    if not new_samples and (saved.n_samples_ or np.inf) < saved.n_features_in_:
        few = f"{saved.n_samples_:,} samples of {saved.n_features_in_:,} features"
        messages.tell(f"note: the model is of {few}: scores of others are too small; --new-samples corrects them")


def monitored(saved: SavedModel, read: Table, quiet: Table | None, messages: Messages) -> dict[str, np.ndarray]:
    """T2 and SPE to write beside the scores; says how many are beyond their limits."""
    found, spe_beyond = saved.distances(read.source, read.name), saved.spe_limit_
    if quiet is not None:
        usual = saved.distances(quiet.source, quiet.name).spe
        spe_beyond = spe_limit(float(usual.mean()), float(usual.var()))
    for name, values, limit in (("T2", found.t2, saved.t2_limit_), ("SPE", found.spe, spe_beyond)):
        if limit is None:
            messages.tell(f"{name} has no limit here: give samples that nothing is wrong with by --quiet-samples")
        else:
            share = np.mean(values > limit)
            messages.tell(f"{name} is above its limit of {limit:.4g} in {share:.1%} of the samples (1 % is usual)")
    return {"t2": found.t2, "spe": found.spe}
