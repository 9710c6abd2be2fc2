"""Whether a batch looks like those before it: Hotelling's T2 and the squared prediction error, with their limits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from eigenmesh.arrays import Array, like, namespace, to_numpy
from eigenmesh.data import Moments
from eigenmesh.data._distances import distances, spe_limit, t2_limit
from eigenmesh.events import BatchChecked

# Share of quiet samples that may be beyond a limit, which is at 1 %: the limits are good to a factor of two.
LARGEST_SHARE = 0.02
# Chance that a quiet batch has as many samples beyond a limit as one that raises the alarm.
FALSE_ALARM = 1e-3


class Sums(NamedTuple):
    """Sums over samples: their number, those beyond the limits of T2 and SPE, SPE and its square."""

    samples: float = 0.0
    beyond_t2: float = 0.0
    beyond_spe: float = 0.0
    spe: float = 0.0
    spe_squares: float = 0.0

    def plus(self, other: Sums) -> Sums:
        return Sums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


@dataclass(frozen=True, eq=False)
class Monitor:
    """Components (K, d) and variances (K,) of the last batch, its moments, and the sums over all quiet batches since.

    With scores t and residual e of a sample that was not used for them,

        T2 = sum_k t_k^2 / l_k > K (N^2 - 1) / (N (N - K)) F(K, N - K),    SPE = |e|^2 > g chi2(h)

    at 1 %, where g = v / 2m and h = 2 m^2 / v match the mean m and the variance v of SPE in the quiet batches.
    """

    components: np.ndarray
    variances: np.ndarray
    moments: Moments
    quiet: Sums = field(default_factory=Sums)

    @property
    def t2_limit(self) -> float:
        return t2_limit(self.moments.n_samples, len(self.variances))

    @property
    def quiet_spe(self) -> tuple[float, float] | None:
        """Mean and variance of SPE in the quiet batches; None before there were any."""
        if self.quiet.samples < 2:
            return None
        mean = self.quiet.spe / self.quiet.samples
        return mean, self.quiet.spe_squares / self.quiet.samples - mean**2

    @property
    def spe_limit(self) -> float:
        """Infinite before a batch has told how large SPE is."""
        return float("inf") if self.quiet_spe is None else spe_limit(*self.quiet_spe)

    def statistics(self, rows: Array) -> tuple[Array, Array, Array]:
        """T2 and SPE of samples, and the squared residuals of their features: (n, d) -> (n,), (n,), (n, d)."""
        centred = rows - like(self.moments.mean, rows)
        if self.moments.scale is not None:
            centred /= like(self.moments.scale, rows)
        return distances(centred, self.components, self.variances)

    def node_sums(self, rows: Array) -> np.ndarray:
        """What a node adds to the sums of all nodes, and its squared residuals by feature: (n, d) -> (5 + d,)."""
        t2, spe, squares = self.statistics(rows)
        t2, spe, by_feature = (to_numpy(each) for each in (t2, spe, namespace(rows).sum(squares, axis=0)))
        beyond = np.sum(t2 > self.t2_limit), np.sum(spe > self.spe_limit)
        return np.concatenate([[len(rows), *beyond, spe.sum(), (spe**2).sum()], by_feature])

    def checked(self, batch: int, new: Sums, variance_lost: float) -> BatchChecked:
        """What the sums over a batch say of it."""
        n = max(new.samples, 1)
        odd = []
        for name, beyond, before in (
            ("T2", new.beyond_t2, self.quiet.beyond_t2),
            ("SPE", new.beyond_spe, self.quiet.beyond_spe),
        ):
            # Real data are not Gaussian: what quiet batches had beyond a limit is no reason for an alarm.
            usual = max(LARGEST_SHARE, before / self.quiet.samples) if self.quiet.samples else LARGEST_SHARE
            if self.quiet.samples and special.bdtrc(int(beyond) - 1, int(new.samples), usual) < FALSE_ALARM:
                odd.append(f"{beyond / n:.1%} of its samples are beyond the limit of {name}, usual {usual:.1%}")
        shares = {"t2_share": new.beyond_t2 / n, "spe_share": new.beyond_spe / n}
        return BatchChecked(batch, int(new.samples), variance_lost, **shares, alarm=bool(odd), message="; ".join(odd))

    def after(self, new: Sums, checked: BatchChecked) -> Sums:
        """The sums of all quiet batches, this one among them if it was."""
        return self.quiet if checked.alarm else self.quiet.plus(new)


def renewed(monitor: Monitor | None, components: np.ndarray, variances: np.ndarray, moments: Moments) -> Monitor:
    """The monitor for the next batch, with what this one has taught."""
    if monitor is None:
        return Monitor(components, variances, moments)
    return replace(monitor, components=components, variances=variances, moments=moments)
