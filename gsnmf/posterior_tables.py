"""Tables of the estimator's posterior: top features and proportions of components, with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .classification.restarts import data_with_index
from .classification.samples import SampleReader
from .features import top_features_table
from .inference import Fit, LinearResponse, Posterior, cavi, linear_response
from .intervals import PROB, REFINING, proportion_intervals, proportions, rows_of
from .model.metadata import Names


class PosteriorTables(SampleReader):
    """The methods of a fitted estimator that describe its posterior, with the training samples given again."""

    _fit: Fit
    _index: NDArray[Any] | None
    posterior_: Posterior
    components_: NDArray[Any]
    n_components_: int

    def linear_response(self, X: ArrayLike, *, refine: bool = True) -> LinearResponse:
        """Return an object that gives standard deviations, intervals and sensitivities of functions of the posterior.

        Args:
            X: the training samples, as they were given to `fit`; others are refused.
            refine: whether to continue the fit with S summed out first (`cavi.refine`), which removes most of its bias.
        """
        check_is_fitted(self)
        data = data_with_index(self._new(X), self._index)
        return linear_response(cavi.refine(self._fit, data, **REFINING) if refine else self._fit, data)

    def top_features(
        self,
        X: ArrayLike | LinearResponse,
        n_features: int = 10,
        *,
        feature_names: ArrayLike | None = None,
        by: str = "probability",
        intervals: str = "auto",
        prob: float = PROB,
        refine: bool = True,
        corrected: bool = False,
    ) -> pd.DataFrame:
        """Return the largest features of every component, as proportions t/Σt of the component, with intervals.

        Args:
            X: the training samples, or what `linear_response` returned for them, so that its work is done once.
            n_features: number of features of each component.
            feature_names: one for each feature; None for `feature_names_in_`, or numbers. In a pipeline, those of the
                step before, such as `CountVectorizer.get_feature_names_out()`.
            by: "probability", "lift" or "frex", as in `gsnmf.top_features_table`.
            intervals: "auto", "linear response" or "mean field", as in `gsnmf.top_features_table`.
            prob: probability of the intervals.
            refine: as in `linear_response`.
            corrected: whether to correct the means as well; for small problems with all labels known.

        Returns the table of `gsnmf.top_features_table`, whose column width says which kind of interval is in a row.
        """
        check_is_fitted(self)
        result: Any = self._response(X, refine) if isinstance(X, LinearResponse) else self._fit
        data = data_with_index(self._new(X), self._index) if not isinstance(X, LinearResponse) else X.problem.data
        names: Any = getattr(self, "feature_names_in_", np.arange(self.n_features_in_))
        if feature_names is not None:
            names = np.asarray(feature_names)
            if names.shape != (self.n_features_in_,):
                raise ValueError(
                    f"expected a name for each of the {self.n_features_in_} features; got feature_names of shape "
                    f"{names.shape}"
                )
        data = data._replace(names=Names(names, *map(list, (data.names.sample, data.names.group))))
        how: Any = {"by": by, "intervals": intervals, "prob": prob, "refine": refine, "corrected": corrected}
        return top_features_table(result, data, n_features, **how)

    def proportions(
        self,
        X: ArrayLike | LinearResponse,
        samples: ArrayLike | None = None,
        *,
        prob: float = PROB,
        refine: bool = True,
        corrected: bool = False,
    ) -> pd.DataFrame:
        """Return each component's proportion of the expected counts of training samples, with intervals.

        Args:
            X: as in `top_features`.
            samples: row numbers of training samples; all by default.
            prob: as in `top_features`.
            refine: as in `top_features`.
            corrected: as in `top_features`.

        Returns a table with columns sample, the row number, component, mean, lower, upper, sd, by linear response, and
        mean_field_sd, which ignores that factors depend on each other.
        """
        check_is_fitted(self)
        rows = rows_of(samples, self.posterior_.V.mean.shape[1])
        response = self._response(X, refine)
        n, i = np.repeat(rows, self.n_components_), np.tile(np.arange(self.n_components_), len(rows))
        table = proportion_intervals(response, proportions(i, n), prob, corrected=corrected)
        return pd.concat([pd.DataFrame({"sample": n, "component": i}), table], axis=1)

    def _response(self, X: ArrayLike | LinearResponse, refine: bool) -> LinearResponse:
        check_is_fitted(self)
        if not isinstance(X, LinearResponse):
            return self.linear_response(X, refine=refine)
        F, N = X.problem.data.X.shape
        if (F, N, X.problem.rank) != (*map(len, (self.components_.T, self.posterior_.V.mean.T)), self.n_components_):
            raise ValueError(
                f"expected what linear_response of this estimator returned; got one of {F} features × {N} samples"
            )
        return X
