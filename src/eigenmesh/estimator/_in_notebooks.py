"""How a notebook shows a fitted estimator: scikit-learn's view of its parameters, then the result."""

from typing import Any


class InNotebooks:
    """Comes before scikit-learn's own view; the estimator has ``result_`` once it is fitted."""

    def _repr_html_inner(self) -> str:
        return f"{super()._repr_html_inner()}{self._result_html()}"  # type: ignore[misc]

    def _repr_mimebundle_(self, **settings: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**settings)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] += self._result_html()
        return bundle

    def _result_html(self) -> str:
        result = getattr(self, "result_", None)
        return "" if result is None else str(result._repr_html_())
