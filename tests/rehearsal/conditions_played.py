"""Networks with settings, and conditions, as files."""

from __future__ import annotations

import json
from pathlib import Path

from eigenmesh.rehearsal.conditions import read_conditions
from eigenmesh.rehearsal.fits import made_up
from eigenmesh.rehearsal.forecast import forecast
from eigenmesh.sites import read_network_file

SITES = ("oslo", "bergen", "trondheim", "bodo")
RING = (("oslo", "bergen"), ("bergen", "trondheim"), ("trondheim", "bodo"), ("bodo", "oslo"))
# With stated times a seed decides everything.
TIMES = "[sites]\nproduct_ms = 1\nset_up_ms = 3\n"


def write_network(folder: Path, edges=RING, **settings) -> Path:
    usual = {"n_components": 2, "tol": 1e-6, "seed": 0, "solver": "block-krylov", "patience_s": 20, "join_s": 60}
    settings = usual | settings
    lines = [f"edges = {json.dumps(edges)}"]
    for name in sorted({name for edge in edges for name in edge}, key=SITES.index):
        lines += ["[[site]]", f'name = "{name}"', f'address = "{name}.example:7400"']
    lines += ["[settings]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    (folder / "network.toml").write_text("\n".join(lines))
    return folder / "network.toml"


def play(folder: Path, conditions: str = "", shape=(40, 8), seed=0, parked_s=None, **settings):
    """The forecast of a run under conditions, and the samples of the sites."""
    network = read_network_file(write_network(folder, **settings))
    first = "" if parked_s is None else f"restart_parked_s = {parked_s}\n"
    (folder / "conditions.toml").write_text(first + TIMES + conditions)
    under = read_conditions(folder / "conditions.toml", network.names, network.edges)
    parts = made_up(network, shape[1], (shape[0],) * len(network.names), 0.6, 0)
    tables = dict(zip(network.names, parts, strict=True))
    return forecast(network, under, tables, seed), tables
