"""``eigenmesh certify``: how far the components of any tool are from the true ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.process import NOT_CONVERGED
from eigenmesh.data import read_components
from eigenmesh.fitting import Request, Spread, certified, fit, prepare, to_certify
from eigenmesh.report.tables import new_table

COMPONENTS_HELP = "The components: .npy, .npz, a model, a table, .eigenvec.allele, or .h5ad with varm PCs."
TOL_HELP = "Bound on the sine of each angle to the truth that the components must be within."


def certify(
    data: options.Sources,
    components: Annotated[Path, options.option(None, "FILE", COMPONENTS_HELP)],
    table: options.Table,
    tol: Annotated[float, options.option(None, "FLOAT", TOL_HELP)] = 1e-6,
    scale: options.Scale = False,
    binomial: Annotated[bool, options.option(options.DATA, None, options.BINOMIAL_HELP, "--binomial")] = False,
) -> None:
    """Bound how far the components of any tool are from the true principal components of the data.

    The true components are found with a certificate, and compared. Lengths and signs do not matter, and columns are
    matched by name if both files have names.

    Exit status: 0 if every component is within **--tol** of the true one, 1 if not, 2 for invalid input.

    Examples:

    - `eigenmesh certify digits --components pca.npy`

    - `eigenmesh certify patients.csv --components loadings.csv --scale --tol 1e-3`

    - `eigenmesh certify cohort.bed --components plink.eigenvec.allele --binomial`
    """
    messages = Messages.of()
    given = read_components(components)
    request = Request.parse(tol=tol, scale="binomial" if binomial else scale)
    with messages.waiting("reading the data"):
        problem = Spread().of_words(data, table)
    with messages.waiting("finding the true components"):
        compared = certified(fit(prepare(to_certify(request, given), problem)), given, str(components))
    messages.print(new_table("component", "sin(angle) at most", "nearest to", left=1, rows=compared.rows))
    for sentence in compared.words:
        messages.print(sentence)
    if compared.error_bound > tol:
        raise typer.Exit(NOT_CONVERGED)
