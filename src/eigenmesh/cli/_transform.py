"""``eigenmesh transform``: project samples onto components that were saved."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from eigenmesh._atomic_write import require_writable
from eigenmesh.cli import _options as options
from eigenmesh.cli._messages import Messages
from eigenmesh.cli._table_options import takes_table
from eigenmesh.data import TableOptions, missing_policy, read_table
from eigenmesh.data._files import kind_of
from eigenmesh.data._plink_results import EIGENVEC, save_plink
from eigenmesh.data._scores_file import save_scores, scores_file
from eigenmesh.errors import InputError
from eigenmesh.estimator._saved_model import load_model

MODEL_HELP = "A model: eigenmesh fit --out, a peer's result.npz, or DecentralizedPCA.save."
WHITEN_HELP = "Give the scores of each component unit variance."


@takes_table
def transform(
    data: Annotated[Path, options.argument("DATA", "A file: .csv, .npy, .npz or .parquet.")],
    model: Annotated[Path, options.option(None, "FILE.npz", MODEL_HELP)],
    out: Annotated[
        Path, options.option(None, "FILE", "Where to put the scores: .npz, .npy, .csv; .eigenvec of a .bed.")
    ],
    table: TableOptions,
    missing: options.Missing = "error",
    whiten: Annotated[bool, options.option(None, None, WHITEN_HELP, "--whiten")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Project samples onto saved components: the scores of each sample, one column per component.

    Samples are centred with the pooled mean of the model, and scaled as it was. Where both have names, the columns of
    the model are taken by name, in any order, and others are left out. **--id-column** goes into the scores.

    Examples:

    - `eigenmesh transform patients.csv --model result.npz --out scores.csv`

    - `eigenmesh transform samples.npy --model pca.npz --whiten --out scores.npy`

    - `eigenmesh transform oslo.bed --model pca.npz --out oslo.eigenvec`
    """
    messages = Messages.of(quiet)
    if out.resolve() in (data.resolve(), model.resolve()):
        raise InputError(f"--out {out} is an input already; choose another name.")
    as_plink = out.suffix.lower() == EIGENVEC
    if as_plink and (kind_of(data) != ".bed" or whiten):
        raise InputError(f"--out {out} is for the scores of a .bed file, without --whiten; choose .csv, .npz or .npy.")
    require_writable(out if as_plink else scores_file(out))
    saved = load_model(model, whiten=whiten, missing=missing_policy(missing))
    for warning in saved.warnings_:
        messages.alert(f"warning: {model}: {warning}.", style="yellow")
    names = tuple(getattr(saved, "feature_names_in_", ()))
    with messages.waiting("reading the data"):
        read = read_table(data, **vars(replace(table, among=frozenset(names) or None)))
    if names and read.feature_names is None:
        messages.alert(f"warning: {data} has no column names, so their order could not be checked.", style="yellow")
    scores = saved.project_source(read.source, str(data))
    written = save_plink(out, data, saved.model_, scores) if as_plink else [save_scores(out, scores, read, table)]
    listed = ", ".join(map(str, written))
    messages.tell(f"wrote {listed}: {len(scores):,} samples, {saved.n_components_} components")
