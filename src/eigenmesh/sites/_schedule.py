"""Who is in which batch of a followed run: sites that join, sites that leave, and who keeps a leaver's samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eigenmesh.errors import InputError
from eigenmesh.sites._names import site_graph
from eigenmesh.sites._toml_fields import Fields

TABLES = ("joins", "leaves", "heirs")


@dataclass(frozen=True)
class Schedule:
    """The changes of membership; all sites have to know each of them before the batch that it begins with.

    Attributes
    ----------
    joins : the first batch that a site is in; 0 for those that are not named.
    leaves : the first batch that a site is no longer in.
    heirs : for a site that leaves, the one that counts its samples from then on; without one they are taken out.
    """

    joins: Mapping[str, int] = field(default_factory=dict)
    leaves: Mapping[str, int] = field(default_factory=dict)
    heirs: Mapping[str, str] = field(default_factory=dict)

    def members(self, sites: Sequence[str], batch: int) -> tuple[str, ...]:
        """The sites of a batch, in the order of the network."""
        return tuple(name for name in sites if self.joins.get(name, 0) <= batch < self.leaves.get(name, batch + 1))

    @property
    def changes(self) -> tuple[int, ...]:
        """The batches that begin with other members than the one before, and the first."""
        return tuple(sorted({0, *self.joins.values(), *self.leaves.values()}))

    def handed_over(self, name: str, batch: int) -> tuple[str, ...]:
        """The sites whose samples this one has taken over by then."""
        return tuple(left for left, heir in self.heirs.items() if heir == name and self.leaves[left] <= batch)

    def require_usable(self, sites: Sequence[str], edges: Sequence[tuple[str, str]]) -> None:
        """Raise unless the members of every batch are linked to each other, and heirs are there to inherit."""
        for name in (*self.joins, *self.leaves, *self.heirs, *self.heirs.values()):
            if name not in sites:
                raise InputError(f"{name!r} is no site of this network ({', '.join(sites)}).")
        for name in self.leaves:
            if self.leaves[name] <= self.joins.get(name, 0):
                raise InputError(f"{name} leaves in batch {self.leaves[name]}, before it is in; give a later batch.")
        for name, heir in self.heirs.items():
            if name not in self.leaves or heir not in self.members(sites, self.leaves[name]):
                raise InputError(f"{heir} cannot be the heir of {name}: it has to be there when {name} leaves.")
        for batch in self.changes:
            members = self.members(sites, batch)
            if not members:
                raise InputError(f"nobody is in batch {batch}; let sites join earlier or leave later.")
            site_graph(members, [edge for edge in edges if set(edge) <= set(members)])

    def lines(self) -> list[str]:
        """The tables of a site.toml."""
        found = []
        for name, words in zip(
            TABLES, ("first batch of a site", "first batch without it", "who counts on"), strict=True
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
