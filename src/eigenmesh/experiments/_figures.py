"""The figures of the FAST-PCA paper, as settings."""

from itertools import product

from eigenmesh import solvers
from eigenmesh.experiments._settings import DataSet, Experiment, Method, Panel, Synthetic

# T_c of the paper, and SA-DOT's cap.
MIXES = 50
# The paper does not give DeEPCA's m. These are the smallest with which it reached 1e-10 in all of ten trials with
# distinct eigenvalues: with 1 on Erdos-Renyi graphs eight of ten did, with 5 on the cycle none.
DEEPCA_MIXES = {"erdos_renyi": 2, "cycle": 6}
STEPS = {"erdos_renyi": 0.7, "cycle": 0.1}
GRAPHS = {"erdos_renyi": "Erdős–Rényi", "cycle": "Cycle"}
GAPS = (0.8, 0.97)
# Budgets that let figures 1 to 3 with ten trials end in half an hour on two cores.
SYNTHETIC_ROUNDS, IMAGE_ROUNDS = 15_000, 1_000
# Products per component of SeqPM with distinct eigenvalues: as many as orthogonal iteration needs for 1e-10.
DISTINCT_PRODUCTS = 300

COMMON_FACTS = {
    "nodes": "20, Metropolis weights",
    "inner loops": f"T_c = {MIXES} mixes for SeqDistPM and S-DOT; SA-DOT's grow by one per iteration up to {MIXES}",
    "DeEPCA": "m = 2 mixes on Erdős–Rényi graphs, 6 on the cycle, the smallest that converged in all of ten trials "
    "with distinct eigenvalues; the paper does not give its value",
}


def figure_1(rounds: int | None = None) -> Experiment:
    """Distinct eigenvalues: two graphs, two gaps."""
    return Experiment(
        "fig1",
        "Figure 1: distinct eigenvalues",
        "With distinct leading eigenvalues the authors see FAST-PCA far ahead of both sequential power methods, which "
        "find one eigenvector after another, and of S-DOT and SA-DOT, whose inner consensus loops cost rounds. DSA "
        "falls behind because it only converges to a neighbourhood of the eigenvectors. DeEPCA does about as well, but "
        "needs a QR factorisation per iteration. FAST-PCA stays close to centralised orthogonal iteration.",
        _synthetic_facts("evenly spaced from 1 to 0.8", "gap x 0.8", "300 products per component"),
        _synthetic_panels("fig1", rounds, equal=False),
    )


def figure_2(rounds: int | None = None) -> Experiment:
    """The same with nearly equal leading eigenvalues."""
    return Experiment(
        "fig2",
        "Figure 2: nearly equal eigenvalues",
        "The K leading eigenvalues of the distribution are equal, so those of the samples differ by chance alone. "
        "Every method gets much slower. The authors see FAST-PCA ahead of all other distributed methods, DeEPCA "
        "included, and still close to centralised orthogonal iteration.",
        _synthetic_facts("all 1", "the gap", "the budget divided by K for each component"),
        _synthetic_panels("fig2", rounds, equal=True),
    )


def figure_3(rounds: int | None = None) -> Experiment:
    """MNIST and CIFAR-10, split at random over an Erdos-Renyi graph."""
    budget = rounds or IMAGE_ROUNDS
    panels = []
    images = ((DataSet("mnist"), "MNIST", 10, 0.1), (DataSet("cifar10", unit=True), "CIFAR-10", 5, 0.8))
    for data, title, k, step in images:
        methods = paper_methods("erdos_renyi", k, budget, step, budget // k)
        panels.append(Panel(f"fig3-{data.name}", f"{title}, K = {k}", data, "erdos_renyi", k, budget, methods))
    return Experiment(
        "fig3",
        "Figure 3: MNIST and CIFAR-10",
        "The same comparison on images: MNIST with K = 10 and CIFAR-10 in grey with K = 5, 3,000 images at each of 20 "
        "nodes of an Erdős–Rényi graph. The text of the paper states no result for it, so the claims of figure 1 are "
        "checked on it.",
        {
            "data": "60,000 images split at random, 3,000 per node, pixels in [0, 1], pooled mean removed; CIFAR-10 "
            "scaled so that the largest eigenvalue is 1, as the authors' code does",
            "steps": "FAST-PCA and DSA: 0.1 for MNIST, 0.8 for CIFAR-10",
            "sequential methods": "the budget divided by K for each component",
            **COMMON_FACTS,
        },
        tuple(panels),
    )


FIGURES = {"fig1": figure_1, "fig2": figure_2, "fig3": figure_3}


def paper_methods(topology: str, k: int, rounds: int, step: float, products: int) -> tuple[Method, ...]:
    """The eight methods of the paper; ``products``: those of SeqPM per component."""
    return (
        Method("OI", solvers.OrthogonalIteration()),
        Method("SeqPM", solvers.SequentialPower(iterations=max(1, products))),
        Method("SeqDistPM", solvers.SequentialDistributedPower(iterations=max(1, rounds // (MIXES * k)), mixes=MIXES)),
        Method("S-DOT", solvers.SDOT(mixes=MIXES)),
        Method("SA-DOT", solvers.SADOT(cap=MIXES)),
        Method("DeEPCA", solvers.DeEPCA(mixes=DEEPCA_MIXES[topology])),
        Method("DSA", solvers.DSA(step_size=step)),
        Method("FAST-PCA", solvers.FastPCA(step_size=step)),
    )


def _synthetic_panels(name: str, rounds: int | None, equal: bool) -> tuple[Panel, ...]:
    budget, k = rounds or SYNTHETIC_ROUNDS, Synthetic.k
    products = budget // k if equal else min(DISTINCT_PRODUCTS, budget // k)
    panels = []
    for (topology, graph), gap in product(GRAPHS.items(), GAPS):
        methods = paper_methods(topology, k, budget, STEPS[topology], products)
        data, names = Synthetic(gap, equal), (f"{name}-{topology}-{gap:g}", f"{graph}, gap {gap:g}")
        panels.append(Panel(*names, data, topology, k, budget, methods))
    return tuple(panels)


def _synthetic_facts(leading: str, next_one: str, products: str) -> dict[str, str]:
    return {
        "data": f"Gaussian, d = 20, 5,000 samples per node, K = 5; leading eigenvalues {leading}, the rest evenly "
        f"spaced from {next_one} to 0.1; random axes, pooled mean removed",
        "graphs": "Erdős–Rényi with p = 0.5, drawn again for each trial, and the cycle",
        "steps": "FAST-PCA and DSA: 0.7 on Erdős–Rényi graphs, 0.1 on the cycle",
        "sequential methods": f"SeqPM: {products}, then again; SeqDistPM: the budget divided by K T_c",
        **COMMON_FACTS,
    }
