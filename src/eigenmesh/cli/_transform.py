"""``eigenmesh transform``: project samples onto components that were saved."""

from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np

from eigenmesh._atomic_write import require_writable, write_atomically
from eigenmesh.cli import _options as options
from eigenmesh.cli._inputs import parse_column
from eigenmesh.cli._messages import Messages
from eigenmesh.data import missing_policy, read_table
from eigenmesh.errors import InputError
from eigenmesh.estimator._saved_model import load_model

KINDS = (".npz", ".npy", ".csv")
MODEL_HELP = "A model: eigenmesh fit --out, a peer's result.npz, or DecentralizedPCA.save."
WHITEN_HELP = "Give the scores of each component unit variance."


def transform(
    data: Annotated[Path, options.argument("DATA", "A file: .csv, .npy, .npz or .parquet.")],
    model: Annotated[Path, options.option(None, "FILE.npz", MODEL_HELP)],
    out: Annotated[Path, options.option(None, "FILE", "Where to put the scores: .npz, .npy or .csv.")],
    label_column: options.LabelColumn = None,
    missing: options.Missing = "error",
    whiten: Annotated[bool, options.option(None, None, WHITEN_HELP, "--whiten")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Project samples onto saved components: the scores of each sample, one column per component.

    Samples are centred with the pooled mean of the model, and scaled as it was. Columns must be those of the model, in
    the same order: if both files have names, they are compared, and a mismatch is an error.

    Examples:

    - `eigenmesh transform patients.csv --model result.npz --out scores.csv`

    - `eigenmesh transform samples.npy --model pca.npz --whiten --out scores.npy`
    """
    messages = Messages.of(quiet)
    if out.suffix.lower() not in KINDS:
        raise InputError(f"--out {out} must end in {', '.join(KINDS)}, the kinds of file it can be.")
    if out.resolve() in (data.resolve(), model.resolve()):
        raise InputError(f"--out {out} is an input already; choose another name.")
    require_writable(out)
    saved = load_model(model, whiten=whiten, missing=missing_policy(missing))
    for warning in saved.warnings_:
        messages.alert(f"warning: {model}: {warning}.", style="yellow")
    with messages.waiting("reading the data"):
        table = read_table(data, label_column=parse_column(label_column))
    if table.feature_names is None and hasattr(saved, "feature_names_in_"):
        messages.alert(f"warning: {data} has no column names, so their order could not be checked.", style="yellow")
    scores = saved.project_source(table.source, str(data))
    kind, label = out.suffix.lower(), label_column or "label"
    write_atomically(out, lambda file: _write(file, kind, scores, table.labels, label))
    messages.tell(f"wrote {out}: {len(scores):,} samples, {saved.n_components_} components")


def _write(file: IO[bytes], kind: str, scores: np.ndarray, labels: np.ndarray | None, label: str) -> None:
    """Write the scores, and the labels where there are any, to an open file."""
    if kind == ".npy":
        np.save(file, scores)
    elif kind == ".npz":
        # Labels that are objects would need pickle.
        plain = labels.astype(np.str_) if labels is not None and labels.dtype.kind == "O" else labels
        arrays: dict[str, Any] = {"scores": scores} if plain is None else {"scores": scores, "labels": plain}
        np.savez_compressed(file, **arrays)
    else:
        _write_csv(file, scores, labels, label)


def _write_csv(file: IO[bytes], scores: np.ndarray, labels: np.ndarray | None, label: str) -> None:
    names = [f"pc{k + 1}" for k in range(scores.shape[1])]
    file.write(",".join(names if labels is None else [*names, _quoted(label)]).encode() + b"\n")
    for row, values in enumerate(scores.tolist()):
        cells = [repr(value) for value in values]
        if labels is not None:
            cells.append(_quoted(str(labels[row])))
        file.write(",".join(cells).encode() + b"\n")


def _quoted(text: str) -> str:
    """A field of a .csv file, in quotes where it needs them."""
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\r\n') else text
