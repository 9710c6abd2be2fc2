"""``plan`` of an estimator: the cost of every method on its data, without a fit."""

from contextlib import ExitStack
from typing import Any

from sklearn.base import clone

from eigenmesh.errors import InputError
from eigenmesh.estimator._inputs import connect, data_for
from eigenmesh.estimator._parameters import request_of
from eigenmesh.fitting import ColumnData, Costs, NodeData, Plan, plan


class Planning:
    """Adds ``plan`` to an estimator; a subclass has the parameters."""

    def plan(self, X: Any, y: Any = None, nodes: Any = None, costs: Costs | None = None) -> Plan:
        """Forecast the cost of every solver with every averaging on these data, and which is best; nothing is fitted.

        Parameters
        ----------
        X, y, nodes : arrays
            As for ``fit``.
        costs : Costs or None
            Replaces the parameter of the same name.
        """
        # On a copy, because validating X sets attributes of an estimator that may be fitted to other data.
        planned = clone(self).set_params(**({} if costs is None else {"costs": costs}))
        request = request_of(planned)
        with ExitStack() as stack:
            transport, _ = connect(planned, X, stack)
            data = data_for(planned, X, y, nodes, request.layout_seed, transport)
            if not isinstance(data, NodeData):
                raise InputError("dask data support only fit and transform: there is no network to plan for.")
            if isinstance(data, ColumnData):
                raise InputError('a plan is for partition="samples"; split columns are fitted without one.')
            return plan(request, data)
