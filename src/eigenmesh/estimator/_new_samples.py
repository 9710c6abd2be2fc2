"""Samples that were not in the fit: their distances from the model, and scores without shrinkage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigenmesh.data import Source, as_source
from eigenmesh.data._distances import spe_limit, t2_limit
from eigenmesh.data._scores import Projector
from eigenmesh.data._shrinkage import unshrunk
from eigenmesh.errors import InputError


class Distances(NamedTuple):
    """T2 and SPE of samples, (n,) each."""

    t2: np.ndarray
    spe: np.ndarray


class NewSamples:
    """Distances and scores of new samples; a subclass sets the attributes below."""

    whiten: bool
    components_: np.ndarray
    explained_variance_: np.ndarray
    singular_values_: np.ndarray
    n_components_: int
    n_samples_: float | None
    _checked: Callable[..., Any]
    # d over all nodes. If columns are split over sites, a model may have only the columns of one site.
    _all_features: int | None

    if TYPE_CHECKING:

        @property
        def _projector(self) -> Projector: ...

        @property
        def _feature_names(self) -> tuple[str, ...] | None: ...

        @property
        def _quiet_spe(self) -> tuple[float, float] | None:
            """Mean and variance of SPE of samples that were not in the fit, if a stream has measured them."""

    def distances(self, X: Any, where: str = "X") -> Distances:
        """Hotelling's T2 and the squared prediction error of samples: (n, d) -> (n,), (n,)::

            T2 = sum_k t_k^2 / l_k,    SPE = |z - V^T t|^2

        for the scores t of a centred and scaled sample z, and the explained variances l. T2 measures how unusual a
        sample is within the components, SPE how much of it is outside them.
        """
        t2, spe, _ = self._read(X, where)
        return Distances(t2, spe)

    @property
    def t2_limit_(self) -> float | None:
        """Limit that T2 of 1 % of new samples exceeds, by the F distribution; None if N is not known."""
        check_is_fitted(self)
        return None if self.n_samples_ is None else t2_limit(self.n_samples_, self.n_components_)

    @property
    def spe_limit_(self) -> float | None:
        """Limit that SPE of 1 % of normal samples exceeds; None unless a stream has measured it."""
        check_is_fitted(self)
        return None if self._quiet_spe is None else spe_limit(*self._quiet_spe)

    def transform_new(self, X: Any, where: str = "X") -> np.ndarray:
        """Scores of samples that were not in the fit, comparable with those of samples that were: (n, d) -> (n, K).

        ``transform`` shrinks such scores towards zero, more strongly the more features there are per sample. Here each
        sample is added to the fitted ones, and the result is rotated back to their scores. For samples that were in the
        fit, use ``transform``.
        """
        _, spe, scores = self._read(X, where)
        corrected = unshrunk(scores, np.sqrt(spe), self.singular_values_)
        spread = self._projector.spread
        return corrected if spread is None else corrected / spread

    def _read(self, X: Any, where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """T2, SPE and plain scores, in float64: (n, d) -> (n,), (n,), (n, K)."""
        check_is_fitted(self)
        if self._all_features not in (None, self.components_.shape[1]):
            raise InputError("this model has the loadings of one site's columns, but this needs those of all sites.")
        source = X if isinstance(X, Source) else as_source(self._checked(X, reset=False))
        return self._projector.distances_of(source, self.explained_variance_, self._feature_names, where)
