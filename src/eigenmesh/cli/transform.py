"""``eigenmesh transform``: project samples onto saved components."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import numpy as np

from eigenmesh.atomic_write import require_writable
from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.output import MOST_DRAWN, picture_of, require_apart
from eigenmesh.data import (
    EIGENVEC,
    H5AD,
    Filling,
    Table,
    kind_of,
    read_table,
    save_h5ad,
    save_plink,
    save_scores,
    scores_file,
    spe_limit,
)
from eigenmesh.errors import InputError
from eigenmesh.estimator import SavedModel, load_model
from eigenmesh.report.pictures import require_picture, save_picture

MODEL_HELP = "A model, from eigenmesh fit --out, a peer's result.npz or DecentralizedPCA.save."
OUT_HELP = "File for the scores: .npz, .npy, .csv; .eigenvec for a .bed or .pgen; for an .h5ad, a copy that has them."
MISSING_HELP = "Missing entries: an error, the mean, or scores that fit the others best; as in the fit by default."
WHITEN_HELP = "Give the scores of each component unit variance, as a model that was fitted so does."
NEW_HELP = "Correct the scores of samples that were not in the fit; without it they are biased towards zero."
MONITOR_HELP = "Write T2 and SPE of each sample next to its scores, and say how many are above their 1 % limits."
QUIET_HELP = "With --monitor: normal samples that were not in the fit, to set the limit of SPE."
# Formats of scores that are only for certain formats of data.
FORMS = {EIGENVEC: (".bed", ".pgen"), H5AD: (H5AD,)}


def transform(
    data: Annotated[Path, options.argument("DATA", f"A file: {options.FILE_KINDS}.")],
    model: Annotated[Path, options.option(None, "FILE.npz", MODEL_HELP)],
    out: Annotated[Path, options.option(None, "FILE", OUT_HELP)],
    table: options.Table,
    view: options.PictureView,
    missing: Annotated[str | None, options.option(options.DATA, "error|mean|least-squares", MISSING_HELP)] = None,
    whiten: Annotated[bool, options.option(None, None, WHITEN_HELP, "--whiten")] = False,
    new_samples: Annotated[bool, options.option(None, None, NEW_HELP, "--new-samples")] = False,
    monitor: Annotated[bool, options.option(None, None, MONITOR_HELP, "--monitor")] = False,
    quiet_samples: Annotated[Path | None, options.option(None, "FILE", QUIET_HELP)] = None,
    plot: options.ResultFile = None,
) -> None:
    """Project samples onto saved components: the scores of each sample, one column per component.

    Samples are centred with the pooled mean of the model, and scaled like the samples of the fit. If the model and the
    data both have column names, columns are matched by name, in any order, and all others are left out.
    The column **--table id_column=NAME** is copied to the scores.

    Examples:

    - `eigenmesh transform patients.csv --model result.npz --out scores.csv --plot scores.png`

    - `eigenmesh transform samples.npy --model pca.npz --whiten --out scores.npy`

    - `eigenmesh transform oslo.bed --model pca.npz --out oslo.eigenvec`

    - `eigenmesh transform cells.h5ad --model pca.npz --out cells-pca.h5ad`

    - `eigenmesh transform today.csv --model pca.npz --monitor --quiet-samples last-week.csv --out today-scores.csv`
    """
    messages = Messages.of()
    if out.resolve() in (data.resolve(), model.resolve()):
        raise InputError(f"--out {out} is an input already; choose another name.")
    form = out.suffix.lower()
    if form in FORMS and (kind_of(data) not in FORMS[form] or whiten):
        kinds = " or ".join(FORMS[form])
        raise InputError(
            f"--out {out} is for the scores of a {kinds} file, without --whiten; choose .csv, .npz or .npy."
        )
    if quiet_samples is not None and not monitor:
        raise InputError(f"--quiet-samples {quiet_samples} needs --monitor; add --monitor, or leave it out.")
    if monitor and out.suffix.lower() not in (".csv", ".npz"):
        raise InputError(f"--out {out} cannot store T2 and SPE; with --monitor choose .csv or .npz.")
    require_writable(out if form in FORMS else scores_file(out))
    if plot is not None:
        require_apart([plot], [str(data), str(model), str(out)])
        require_picture(plot)
    saved = load_model(model, whiten=whiten or None, missing=cast(Filling | None, missing))
    if form in FORMS and saved.whiten:
        raise InputError(f"--out {out} is not for scores of unit variance, as {model} gives; choose .csv or .npz.")
    for warning in saved.warnings_:
        messages.alert(f"warning: {model}: {warning}.", style="yellow")
    names = tuple(getattr(saved, "feature_names_in_", ()))
    table = table.with_those_of(saved.model_.read_with, names or None)
    how = vars(table)
    with messages.waiting("reading the data"):
        read = read_table(data, **how)
    if names and read.feature_names is None:
        messages.alert(f"warning: {data} has no column names, so their order could not be checked.", style="yellow")
    project = saved.transform_new if new_samples else saved.project_source
    scores = project(read.source, str(data))
    distances: dict[str, np.ndarray] = {}
    findings: list[str] = []
    if monitor:
        normal = None if quiet_samples is None else read_table(quiet_samples, **how)
        distances, findings = monitored(saved, read, normal)
    if form == EIGENVEC:
        written = save_plink(out, data, saved.model_, scores)
    elif form == H5AD:
        written = [save_h5ad(out, data, saved.model_, scores, table.layer)]
    else:
        written = [save_scores(out, scores, read, table, distances)]
    if plot is not None:
        every = max(1, -(-len(scores) // MOST_DRAWN))
        labels = None if read.labels is None else read.labels[::every]
        view = view.among(saved.n_components_, messages)
        title = f"{data.name}: {len(scores):,} samples"
        figure = picture_of(saved.model_, view, np.asarray(scores)[::every], labels, title=title)
        written.append(save_picture(figure, plot))
    for line in findings:
        messages.print(line)
    listed = ", ".join(map(str, written))
    messages.print(f"wrote {listed}: {len(scores):,} samples, {saved.n_components_} components")
    if not new_samples and (saved.n_samples_ or np.inf) < saved.n_features_in_:
        few = f"{saved.n_samples_:,} samples of {saved.n_features_in_:,} features"
        messages.print(
            f"note: the model is from {few}: scores of other samples are too small; correct them with --new-samples"
        )


def monitored(saved: SavedModel, read: Table, normal: Table | None) -> tuple[dict[str, np.ndarray], list[str]]:
    """T2 and SPE of each sample, and how many are above their limits. ``normal`` samples set the limit of SPE."""
    found, limit_of_spe = saved.distances(read.source, read.name), saved.spe_limit_
    if normal is not None:
        usual = saved.distances(normal.source, normal.name).spe
        limit_of_spe = spe_limit(float(usual.mean()), float(usual.var()))
    lines = []
    for name, values, limit in (("T2", found.t2, saved.t2_limit_), ("SPE", found.spe, limit_of_spe)):
        if limit is None:
            lines.append(f"{name} has no limit with this model; give normal samples with --quiet-samples")
        else:
            share = np.mean(values > limit)
            lines.append(f"{name} is above its limit of {limit:.4g} in {share:.1%} of the samples (1 % is usual)")
    return {"t2": found.t2, "spe": found.spe}, lines
