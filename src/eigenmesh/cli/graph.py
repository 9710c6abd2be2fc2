"""``eigenmesh graph``: properties of a network, and the cost of an average over it."""

from __future__ import annotations

from typing import Annotated

from eigenmesh import graphs
from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages
from eigenmesh.fitting import DEFAULT_NODES, Spread
from eigenmesh.graphs import resolved
from eigenmesh.report.pictures import network_picture, require_picture, save_picture
from eigenmesh.report.tables import averaging_table, facts_table

NODES_HELP = f"Number of nodes; {DEFAULT_NODES} by default, or as many as the file links."


def graph(
    topology: Annotated[str, options.argument("TOPOLOGY", options.TOPOLOGY_HELP)],
    nodes: Annotated[int | None, options.option(None, "M", NODES_HELP, min=1)] = None,
    weights: Annotated[str, options.option(None, "NAME", f"auto, {', '.join(graphs.WEIGHTS)}.")] = "auto",
    seed: Annotated[int, options.option(None, "N", "Fixes a random graph.", min=0)] = 0,
    plot: options.PictureFile = None,
) -> None:
    """Describe a network: size, diameter, spectral gap and the cost of one exact average.

    **beta** is the factor by which one round of mixing shrinks disagreement; a gap 1 - beta near 0 means slow gossip.
    No average takes fewer rounds than the **diameter**. A tree sends the fewest messages, but fails if any of its
    links fails.

    Examples:

    - `eigenmesh graph cycle --nodes 20`

    - `eigenmesh graph erdos_renyi --nodes 50 --seed 1 --plot network.png`

    - `eigenmesh graph links.txt --weights best_constant`
    """
    messages = Messages.of()
    if plot is not None:
        require_picture(plot)
    spread = Spread(topology, nodes, weights, seed=seed)
    drawn = spread.links
    if drawn is None:
        drawn = graphs.topology(spread.topology, nodes or DEFAULT_NODES, seed=seed)
    network = graphs.weighting(spread.weights, drawn)
    if plot is not None:
        names = [str(drawn.nodes[node].get("name", node)) for node in range(network.n_nodes)]
        save_picture(network_picture(network, names, title=spread.topology), plot)
    messages.print(facts_table(_facts(network, spread.topology, resolved(weights, drawn))))
    messages.print(averaging_table(network))
    if not network.averages:
        messages.print("Averages by mixing need weights whose rows and columns all sum to 1: --weights balanced.")
    if plot is not None:
        messages.print(f"wrote {plot}")


def _facts(network: graphs.Weights, topology: str, weights: str) -> dict[str, str]:
    links = network.graph
    degrees = [degree for _, degree in (links.out_degree if links.is_directed() else links.degree)]
    spectrum = network.spectrum
    return {
        "network": f"{topology}, {weights} weights",
        "nodes": f"{network.n_nodes:,}",
        "links": f"{network.edges:,}",
        "links per node": f"{min(degrees)} to {max(degrees)}",
        "diameter": f"{spectrum.diameter}",
        "beta": f"{spectrum.beta:.6f}",
        "spectral gap": f"{spectrum.gap:.3g}",
    }
