"""The members of each batch of a followed run: sites that join, sites that leave, and heirs of their samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eigenmesh.errors import InputError
from eigenmesh.sites._names import site_graph
from eigenmesh.sites._toml_fields import Fields

TABLES = ("joins", "leaves", "heirs")


@dataclass(frozen=True)
class Schedule:
    """The changes of membership. All sites must know a change before the batch that it begins with.

    Attributes
    ----------
    joins : the first batch with the site; 0 for sites that are not named.
    leaves : the first batch without the site.
    heirs : for a site that leaves, the site that counts its samples from then on; without one they are removed.
    """

    joins: Mapping[str, int] = field(default_factory=dict)
    leaves: Mapping[str, int] = field(default_factory=dict)
    heirs: Mapping[str, str] = field(default_factory=dict)

    def members(self, sites: Sequence[str], batch: int) -> tuple[str, ...]:
        """The sites of a batch, in the order of the network."""
        return tuple(name for name in sites if self.joins.get(name, 0) <= batch < self.leaves.get(name, batch + 1))

    @property
    def changes(self) -> tuple[int, ...]:
        """Batch 0, and all batches whose members differ from those of the batch before."""
        return tuple(sorted({0, *self.joins.values(), *self.leaves.values()}))

    def handed_over(self, name: str, batch: int) -> tuple[str, ...]:
        """The sites whose samples this site counts in this batch, because it is their heir."""
        return tuple(left for left, heir in self.heirs.items() if heir == name and self.leaves[left] <= batch)

    def require_usable(self, sites: Sequence[str], edges: Sequence[tuple[str, str]]) -> None:
        """Raise unless the members of every batch form a connected graph, and every heir is present in time."""
        for name in (*self.joins, *self.leaves, *self.heirs, *self.heirs.values()):
            if name not in sites:
                raise InputError(f"{name!r} is not a site of this network ({', '.join(sites)}).")
        for name in self.leaves:
            if self.leaves[name] <= self.joins.get(name, 0):
                raise InputError(f"{name} leaves in batch {self.leaves[name]}, before it joins; give a later batch.")
        for name, heir in self.heirs.items():
            if name not in self.leaves or heir not in self.members(sites, self.leaves[name]):
                raise InputError(f"{heir} cannot be the heir of {name}: it must be a member when {name} leaves.")
        for batch in self.changes:
            members = self.members(sites, batch)
            if not members:
                raise InputError(f"no site is in batch {batch}; let sites join earlier or leave later.")
            site_graph(members, [edge for edge in edges if set(edge) <= set(members)])

    def lines(self) -> list[str]:
        """The tables of a site.toml."""
        found = []
        for name, words in zip(
            TABLES, ("first batch of a site", "first batch without it", "who counts its samples"), strict=True
        ):
            if values := getattr(self, name):
                quote = '"' if name == "heirs" else ""
                found += ["", f"[{name}]".ljust(33) + f"# {words}; the same at all sites"]
                found += [f"{key} = {quote}{value}{quote}" for key, value in values.items()]
        return found


def read_schedule(fields: Fields, sites: Sequence[str], edges: Sequence[tuple[str, str]]) -> Schedule:
    """The tables ``[joins]``, ``[leaves]`` and ``[heirs]``."""
    joins, leaves, heirs = (fields.table(name) for name in TABLES)
    schedule = Schedule(
        {name: joins.whole(name, 0) for name in joins.content},
        {name: leaves.whole(name, 1) for name in leaves.content},
        {name: heirs.text(name) for name in heirs.content},
    )
    fields.checked("leaves", schedule.require_usable, sites, edges)
    return schedule
