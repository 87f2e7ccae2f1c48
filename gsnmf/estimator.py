"""The model for scikit-learn: a transformer and a classifier, rows are samples."""

from __future__ import annotations

from typing import Any, Self

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from .classification import parameters
from .classification.prediction import (
    Plan,
    calibrated,
    class_scores,
    learn,
    shares_of,
    temperature_on_folds,
    temperature_on_training,
    transduced,
)
from .classification.restarts import Recipe, draw_seeds
from .inference import cavi, in_use
from .inference.defaults import ACCELERATE, INIT, LAM_START, MAX_STEPS, TOL
from .inference.posterior import divergence
from .model import Priors, as_data
from .model.defaults import A_T, B_T, PER_GROUP, PRIOR, SCALE
from .model.units import unit_of


class GroupSparseNMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Supervised dictionary learning by Bayesian nonnegative matrix factorisation with group sparsity.

    With labels, components are bound to classes by the paper's prior (11); without (`fit(X)`), it is the
    unsupervised model, which transforms but does not predict. X is read as counts, under Poisson noise: its unit says
    how sure it is, and pixels from 0 to 255 usually serve better than the same from 0 to 1. A scaler before it must not
    make new samples negative: MaxAbsScaler does not, nor MinMaxScaler(clip=True). NaN in X are missing entries, in
    training and in new samples alike: they are left out, not filled in.

    Args:
        n_components: components in all, shared out evenly among classes but for `common` ones; None for `per_class` of
            each, or, without labels, 10.
        per_class: components of each class.
        common: components that all classes share, besides; not used without labels.
        prior: "relative", where small and large are shares of a sample's counts, whatever the unit of X and the sizes
            of classes; or "paper", where they are the shapes of λ in (11).
        small: what a component loses in its own class; None for 0.001 of a sample, or the shape 32.
        large: what it loses in others; None for 0.01 of a sample, or the shape 256.
        a_t: shape of the dictionary's prior.
        b_t: its scale.
        scale: scale bˡ of λ's prior.
        priors: a `gsnmf.model.Priors` in place of all the above but n_components, for what shapes leave open.
        init: how T and V start: "random" (the paper's) or "groups" (samples of each component's class). The latter
            reaches higher bounds; on faces the former made the better classifier.
        lam_start: where λ starts: "prior", its prior mean, as the paper's program has it; or "shape", far weaker.
        max_iter: sweeps at most.
        tol: relative change of the bound to stop at; None for all sweeps. A higher bound does not mean a better
            classifier (docs/experiments.md).
        accelerate: momentum and the scale step, for several times fewer sweeps; what is said of tol holds here too.
        counts: X is multiplied by what makes its mean entry this many counts, 128 for pixels in whatever unit; None
            reads X as counts as it is. `components_` and what is transformed are in the unit of X all the same.
        learn: which hyperparameters are learned as well, a `gsnmf.inference.cavi.learn`; None for none. Every restart
            learns its own, from the priors above; not by sample, as new ones would have none.
        transform_by: "nnls", nonnegative least squares (the paper's); or "posterior", the mean of v under the
            variational posterior with the dictionary held, averaged over the candidate classes.
        predict_by: "nearest", the nearest training sample by cosine of coefficients (the paper's). With every restart's
            dictionary: "vote", the same, the majority wins; "cosine", the class that is nearest on average; "blend",
            the same over cosines of coefficients and of their square roots. Or "model", the class posterior of
            `fold_in`. All but "model" are as the tables of docs/experiments.md have them.
        n_restarts: fits from different random starts.
        select: which restart is kept. "bound": the one with the highest bound. "validation": each is fitted without a
            stratified part of the training samples; the one with the best 1-NN accuracy on that part (the highest
            bound among equals) then goes on from its dictionary with all training samples.
        validation_fraction: its share of every class; at least one sample of each is in it, and one is not.
        calibrate: how `predict_proba` finds the temperature at which probabilities come true as often as they say.
            "training": by the training samples with labels, none its own neighbour; it costs nothing, but the
            dictionary has seen them. A number of folds, from 2: by samples that are left out of the fit in turn, with
            so many fits more. None: shares as they come (see there). What is predicted is the same.
        unlabelled: the label that stands for an unknown one, besides NaN and None, which always do; None for no other.
            "auto": scikit-learn's −1, if there are two or more other labels and all are whole numbers ≥ 0; in {−1, 1}
            it is a class, and {−1, 0, 1} is refused, as it may mean either.
        random_state: a seed, a RandomState or None. A seed N gives the fit of `gsnmf fit --seed N`.
        verbose: 1 for a progress bar over restarts.

    Attributes:
        components_: E[T], n_components × n_features; in_use_: which of them explain anything in X.
        unit_: by what X was multiplied, 1 without `counts`; factors in `posterior_` are of that.
        posterior_: the `Posterior` that was kept, features × samples as in `gsnmf.inference`.
        priors_: its `Priors`, as given or as learned.
        elbo_: its augmented bound after each sweep.
        n_iter_: its number of sweeps.
        reconstruction_err_: √(2 KL(X ‖ E[T] E[V])), as scikit-learn's NMF reports it, over the entries observed.
        restarts_: the posteriors of all restarts; bounds_: their last bounds; best_restart_: which was kept. With
            select="validation" they are of the fits without the validation part, except the posterior that was kept.
            Those whose bound is not finite are never kept, and do not vote.
        validation_scores_: accuracy of every restart on the validation part, with select="validation".
        classes_: the labels that are known, sorted; only with labels, as the following.
        transduction_: the label of every training sample, as given, or learned if it was unknown: known ones spread
            over neighbours in the spaces of all restarts' dictionaries (`transduce` in
            `gsnmf.classification.transduction`), on images more often right than the model's own `posterior_.z`.
        label_distributions_: their shares, samples × classes; 1 for labels that were given. They are not calibrated.
        temperature_: of `predict_proba` with the `predict_by` of the fit; None if it was not calibrated, or could not
            be, as no class has two labelled samples or there is only one. With another set later it has no effect.
        n_components_, n_features_in_, feature_names_in_: as everywhere.

    >>> X, y = np.eye(4)[[0, 1, 0, 1]] * 20 + 1, ["a", "b", "a", "b"]
    >>> GroupSparseNMF(per_class=1, random_state=0).fit(X, y).predict([[9.0, 0.0, 0.0, 1.0]]).tolist()
    ['a']
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        per_class: int = PER_GROUP,
        common: int = 0,
        prior: str = PRIOR,
        small: float | None = None,
        large: float | None = None,
        a_t: float = A_T,
        b_t: float = B_T,
        scale: float = SCALE,
        priors: Priors | None = None,
        init: str = INIT,
        lam_start: str = LAM_START,
        max_iter: int = MAX_STEPS,
        tol: float | None = TOL,
        accelerate: bool = ACCELERATE,
        counts: float | None = None,
        learn: cavi.Learn | None = None,
        transform_by: str = "nnls",
        predict_by: str = "nearest",
        n_restarts: int = 1,
        select: str = "bound",
        validation_fraction: float = 0.1,
        calibrate: str | int | None = "training",
        unlabelled: Any = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.per_class = per_class
        self.common = common
        self.prior = prior
        self.small = small
        self.large = large
        self.a_t = a_t
        self.b_t = b_t
        self.scale = scale
        self.priors = priors
        self.init = init
        self.lam_start = lam_start
        self.max_iter = max_iter
        self.tol = tol
        self.accelerate = accelerate
        self.counts = counts
        self.learn = learn
        self.transform_by = transform_by
        self.predict_by = predict_by
        self.n_restarts = n_restarts
        self.select = select
        self.validation_fraction = validation_fraction
        self.calibrate = calibrate
        self.unlabelled = unlabelled
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = False
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn a dictionary.

        Args:
            X: samples × features, nonnegative; NaN where missing.
            y: one label per sample; NaN, None or what `unlabelled` says where it is unknown, and then it is learned,
                and the dictionary from all samples. None for the unsupervised model.
        """
        recipe = Recipe(*(getattr(self, name) for name in Recipe._fields))
        parameters.check_recipe(recipe)
        parameters.check_choices(self)
        parameters.check_restarts(self, y)
        if self.predict_by == "model" and self.priors is not None:
            parameters.check_class_posterior(self.priors)
        matrix, index = self._read(X, y)
        part_seed, seeds = draw_seeds(self.random_state, self.n_restarts)
        keys = [jax.random.key(seed) for seed in seeds]
        how = self.select, self.validation_fraction, part_seed, self.transform_by, self.predict_by, self.verbose
        plan = Plan(recipe, keys, *how)
        found, self._memory = learn(plan, matrix, index, getattr(self, "classes_", None))
        kept = found.fits[found.best]
        if self.select == "validation":
            self.validation_scores_ = found.scores
        self.best_restart_, self.bounds_ = found.best, found.bounds
        self.restarts_, self.priors_ = self._memory.posteriors, self._memory.priors[found.best]
        self.posterior_, self.elbo_, self.n_iter_ = kept.posterior, kept.elbo, kept.num_steps
        T = np.asarray(kept.posterior.T.mean, float)
        self.components_, self.n_components_ = T.T / self.unit_, T.shape[1]
        data = as_data(matrix)
        self.in_use_ = in_use(self.posterior_, data)
        self.reconstruction_err_ = float(np.sqrt(2 * divergence(kept, data) / self.unit_))
        if index is not None:
            self._calibrate(plan, matrix, index)
            self._transduce(plan, matrix, index)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Coefficients of samples, samples × components, by nonnegative least squares or by the posterior.

        Args:
            X: samples × features.
        """
        check_is_fitted(self)
        parameters.check_choices(self)
        return self._memory.represent(self._new(X), self.best_restart_, self.transform_by).T

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """The samples that coefficients stand for: X @ components_.

        Args:
            X: coefficients, samples × components.
        """
        check_is_fitted(self)
        V = check_array(X, dtype=float)
        if V.shape[1] != self.n_components_:
            raise ValueError(f"expected coefficients of {self.n_components_} components; got {V.shape[1]}")
        samples: NDArray[Any] = V @ self.components_
        return samples

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label with the highest score, and so the most probable in `predict_proba`, calibrated or not.

        Args:
            X: samples × features.
        """
        scores = self._scores(X)
        labels: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return labels

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Probabilities of classes, samples × classes.

        exp(score / `temperature_`) in proportion, where a score is minus the angle between coefficients, a share of
        votes, or the model's log π_c + ℒ_τ(c). Without a temperature they are shares whose order is of more use than
        their size: 1 for the "nearest" and shares of votes for "vote"; mean cosines divided by their sum for "cosine"
        and "blend", which are all much alike; the "model"'s own are far too sure.

        Args:
            X: samples × features.
        """
        scores = self._scores(X)
        if self.calibrate is None or self.temperature_ is None or self.predict_by != self._calibrated_for:
            return shares_of(scores, self.predict_by)
        return calibrated(scores, self.predict_by, self.temperature_)

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        parameters.check_choices(self)
        if not hasattr(self, "classes_"):
            raise ValueError("expected an estimator fitted with labels, fit(X, y), for predictions; got one without")
        samples = self._new(X)
        if self.predict_by == "model":
            parameters.check_class_posterior(self.priors_)
        return class_scores(self._memory, self.predict_by, samples)

    def _calibrate(self, plan: Plan, matrix: NDArray[Any], index: NDArray[Any]) -> None:
        self._calibrated_for, self.temperature_ = self.predict_by, None
        if self.calibrate == "training":
            known = matrix[:, index >= 0]
            self.temperature_ = temperature_on_training(self._memory, self.predict_by, known, plan.part_seed)
        elif self.calibrate is not None:
            folds = int(self.calibrate)
            self.temperature_ = temperature_on_folds(plan, matrix, index, self.classes_, folds)

    def _transduce(self, plan: Plan, matrix: NDArray[Any], index: NDArray[Any]) -> None:
        """Labels of the training samples: those given, and what is learned of the others."""
        C = len(self.classes_)
        all_known = (index >= 0).all()
        self.label_distributions_ = np.eye(C)[index] if all_known else transduced(plan, self._memory, matrix, index, C)
        self.transduction_ = self.classes_[self.label_distributions_.argmax(axis=1)]

    def _read(self, X: ArrayLike, y: ArrayLike | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """X, features × samples, and the classes' indices; what an earlier fit left behind is forgotten."""
        for name in ("classes_", "validation_scores_", "transduction_", "label_distributions_", "temperature_"):
            self.__dict__.pop(name, None)
        X = parameters.unmasked(X)
        index: NDArray[Any] | None = None
        if y is not None:
            parameters.check_single(y)
            unknown = parameters.find_unknown(y, self.unlabelled)
        if y is None or unknown.any():
            matrix = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        else:
            matrix, labels = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
            self.classes_, index = parameters.index_labels(labels)
        if y is not None and unknown.any():
            check_consistent_length(matrix, unknown)
            self.classes_, known = parameters.index_labels(parameters.read_known(y, unknown))
            index = np.full(len(unknown), -1)
            index[~unknown] = known
        parameters.check_nonnegative(matrix)
        self.unit_ = 1.0 if self.counts is None else unit_of(matrix, self.counts)
        return matrix.T * self.unit_, index

    def _new(self, X: ArrayLike) -> NDArray[Any]:
        """New samples, features × samples."""
        matrix = validate_data(
            self, parameters.unmasked(X), dtype=np.float64, reset=False, ensure_all_finite="allow-nan"
        )
        parameters.check_nonnegative(matrix)
        new: NDArray[Any] = matrix.T * self.unit_
        return new

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)
