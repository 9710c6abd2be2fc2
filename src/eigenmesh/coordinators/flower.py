"""Flower: an app whose server finds the components, and whose clients answer with sums over the rows of their sites.

In the file ``pyproject.toml`` of an app, ``serverapp`` is ``eigenmesh.coordinators.flower:server`` and ``clientapp`` is
``eigenmesh.coordinators.flower:client``. Flower starts a process for every message, so a client imports NumPy alone
where its rows are an ``.npy`` file.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from eigenmesh.coordinators import verbs
from eigenmesh.coordinators.coordinator import Coordinator
from eigenmesh.errors import DeadlineError, InputError

# Where the bytes of a message are in Flower's records.
RECORD, BYTES = "eigenmesh", "message"
# Settings of a run, which ``[tool.flwr.app.config]`` of the app may have: those of DecentralizedPCA with these names.
SETTINGS = ("tol", "scale", "missing", "covariance", "solver", "random_state")


class FlowerSites(Coordinator):
    """The sites of a federation of Flower, in the order of their names.

    Parameters
    ----------
    grid : Grid
        What Flower gives to its server app.
    n_sites : int
        How many sites must take part.
    timeout_s : float
        Longest time for one request, and for all sites to come.
    """

    name, request_s = "flower", 5.0

    def __init__(self, grid: Any, n_sites: int, timeout_s: float = 600.0) -> None:
        self.grid, self.n_parts, self.timeout_s = grid, n_sites, timeout_s
        self._names: dict[int, str] = {}

    def _nodes(self) -> list[int]:
        """Flower's numbers of the sites; they are new whenever a site is started."""
        if self._names:
            return list(self._names)
        deadline = time.monotonic() + self.timeout_s
        while len(nodes := list(self.grid.get_node_ids())) < (self.n_parts or 1):
            if time.monotonic() > deadline:
                raise DeadlineError(f"{len(nodes)} sites of {self.n_parts} have come in {self.timeout_s:g} s.")
            time.sleep(1.0)
        return nodes

    def ask(self, message: bytes) -> bytes:
        nodes = self._nodes()
        content = RecordDict({RECORD: ConfigRecord({BYTES: message})})
        sent = [Message(content, dst_node_id=node, message_type="query") for node in nodes]
        answers, reason = {}, f"nothing has come within {self.timeout_s:g} s"
        for reply in self.grid.send_and_receive(sent, timeout=self.timeout_s):
            if reply.has_error():
                # The superlink answers for a site that is gone, under a number of its own.
                reason = str(reply.error.reason)
                continue
            answers[reply.metadata.src_node_id] = bytes(reply.content[RECORD][BYTES])
        # After the time Flower returns fewer replies, without an error.
        if missing := [self._label(node) for node in nodes if node not in answers]:
            raise DeadlineError(f"{', '.join(missing)} did not answer: {reason}; the fit ends.")
        if not self._names:
            named = sorted((verbs.decode(answers[node])[0]["site"], node) for node in nodes)
            self._names = {node: name for name, node in named}
        return verbs.add([answers[node] for node in self._names])

    def _label(self, node: int) -> str:
        return self._names.get(node, f"node {node}")


# Flower reads the file, and looks for these two assignments.
server = ServerApp()
client = ClientApp()


@server.main()  # type: ignore[untyped-decorator]
def fit(grid: Grid, context: Context) -> None:
    """Find the components of all sites, and write the model to the file ``out`` of the run's configuration."""
    from eigenmesh.estimator import DecentralizedPCA

    config = context.run_config
    for name in ("sites", "components", "out"):
        if name not in config:
            raise InputError(f"the configuration of the run has no {name!r}; add it to [tool.flwr.app.config].")
    sites = FlowerSites(grid, int(config["sites"]), float(config.get("timeout", 600)))
    settings = {name: config[name] for name in SETTINGS if name in config}
    pca = DecentralizedPCA(config["components"], **settings).fit(sites)
    pca.save(str(config["out"]))
    print(f"{pca.n_samples_} samples of {pca.n_nodes_} sites, {pca.traffic_.rounds} requests: {pca.stop_reason_.label}")
    print(f"sin(angle) to the true components at most {pca.certificate_.error_bound:.1e}; model in {config['out']}")


@client.query()  # type: ignore[untyped-decorator]
def answer(message: Message, context: Context) -> Message:
    """The sums of this site, over the rows of the file ``data`` of its node's configuration."""
    config, asked = context.node_config, bytes(message.content[RECORD][BYTES])
    site = f"site {config.get('name', context.node_id)}"
    try:
        held = held_at(config)
        answered = verbs.answer(asked, held.rows, site, held.columns, weights=held.weights)
    except Exception as error:
        # An error is an answer: Flower would hide its text.
        answered = verbs.refusal(error, site)
    return Message(RecordDict({RECORD: ConfigRecord({BYTES: answered})}), reply_to=message)


class Held(NamedTuple):
    """The rows of a site, the names of their columns, and their weights, if they have any."""

    rows: Any
    columns: tuple[str, ...] | None
    weights: np.ndarray | None


def held_at(config: Any) -> Held:
    """The rows of the file ``data`` of a node's configuration, of any kind, and their weights.

    ``weights`` is another ``.npy`` file, or the name of a column of a table.
    """
    if "data" not in config:
        raise InputError("the configuration of the node has no data=; start it with --node-config 'data=\"...\"'.")
    path, weights = Path(str(config["data"])), config.get("weights")
    if path.suffix == ".npy":
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
        return Held(rows, None, None if weights is None else np.load(str(weights), allow_pickle=False))
    from eigenmesh.data import read_table

    table = read_table(path, weight_column=weights)
    source = table.source
    return Held(source.read(slice(0, source.shape[0])), source.feature_names, table.weights)
