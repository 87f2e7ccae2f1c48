"""The model for scikit-learn: a transformer and a classifier, rows are samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from .classification import parameters
from .classification.calibration import fit_temperature
from .classification.choosing import AUTO, candidates, compare_heads
from .classification.heads import LEARNED
from .classification.multilabel import label_sets, learn_several
from .classification.pointless import undecided, warn_of_pointless, warn_of_pointless_stream
from .classification.prediction import (
    LearningPlan,
    calibrated,
    class_scores,
    learn,
    shares_of,
    temperature_on_folds,
    temperature_on_training,
    transduced,
)
from .classification.restarts import Recipe, draw_seeds
from .classification.samples import OF_LABELS
from .classification.streaming import learn_batch, memory_of
from .inference import Fit, cavi, in_use
from .inference.defaults import ACCELERATE, INIT, LAM_START, MAX_STEPS, TOL
from .inference.results import divergence
from .model import Priors, as_data
from .model.checks import whole
from .model.defaults import A_T, B_T, PER_GROUP, PRIOR, SCALE
from .model.seeds import STRENGTH
from .posterior_tables import PosteriorTables

OF_ALL_SAMPLES = ("in_use_", "reconstruction_err_", "restarts_", "bounds_")  # attributes that only `fit` sets


class GroupSparseNMF(
    PosteriorTables,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # scikit-learn has no types
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Supervised dictionary learning by Bayesian nonnegative matrix factorisation with group sparsity.

    With labels, components are bound to classes by the paper's prior (11); without labels, `fit(X)`, it is the
    unsupervised model, which transforms but does not predict. X is read as counts, under Poisson noise: its unit
    determines the noise level, and pixels from 0 to 255 usually work better than the same pixels from 0 to 1. A
    preceding scaler must not make new samples negative: MaxAbsScaler does not, nor does MinMaxScaler(clip=True). NaN in
    X are missing entries, in training samples and in new samples: they are left out, not imputed.

    Args:
        n_components: total number of components, divided evenly among classes after `common` ones; None for `per_class`
            of each class, or, without labels, 10.
        per_class: number of components of each class.
        common: number of further components that all classes share; not used without labels.
        prior: "relative", where small and large are proportions of a sample's counts, whatever the unit of X and the
            sizes of classes; or "paper", where they are the shapes of λ in (11).
        small: loss of a component in its own class; None for 0.001 of a sample, or the shape 32.
        large: loss of a component in other classes; None for 0.01 of a sample, or the shape 256.
        a_t: shape of the dictionary's prior.
        b_t: scale of the dictionary's prior.
        scale: scale bˡ of λ's prior.
        priors: a `gsnmf.model.Priors` in place of all of the above except n_components, which is used where the shapes
            of the priors leave the rank open.
        seeds: gene sets or seed words, the names of features by the name of the set, each of which is expected to be
            large in one component: of the class that the set is named after, else of `common` or of a model without
            labels (`gsnmf.model.seeded`). Names are columns of a DataFrame, or numbers of columns; those that do not
            occur are listed in a warning.
        seed_strength: the ratio of the prior means of seeds and of other features.
        init: initialisation of T and V: "random" (the paper's) or "groups" (samples of each component's class).
            "groups" reaches higher bounds; on faces "random" made the better classifier.
        lam_start: initialisation of λ: "prior", its prior mean, as in the paper's program; or "shape", far weaker.
        max_iter: maximum number of sweeps.
        tol: relative change of the bound at which to stop; None for all sweeps. A higher bound does not mean a better
            classifier (docs/experiments.md).
        accelerate: momentum and the scale step, for several times fewer sweeps; again, a higher bound does not mean a
            better classifier.
        counts: mean entry of X in counts, to which X is rescaled: 128 for pixels in any unit; None reads X as counts as
            it is. `components_` and transformed samples stay in the unit of X.
        learn: the hyperparameters that are learned as well, a `gsnmf.inference.cavi.learn`; None for none. Every
            restart learns its own, starting from the priors above; learning by sample is refused, as new samples would
            have no prior.
        transform_by: "nnls", nonnegative least squares (the paper's); or "posterior", the mean of v under the
            variational posterior with the dictionary fixed, averaged over the candidate classes. "auto": "posterior" if
            X is sparse, else "nnls".
        predict_by: the head that predicts classes (docs/classification.md). "nearest": the nearest training sample by
            cosine of coefficients (the paper's). With the dictionaries of all restarts: "vote", the majority of their
            nearest neighbours; "cosine", the class that is nearest on average; "blend", the class that is nearest on
            average over cosines of coefficients and of their square roots; "model", the class posterior of `fold_in`;
            "lda", shrinkage linear discriminants on square roots of the components' proportions; "stacked", which also
            sees the samples themselves, as a weighted sum of scores: for dense X, the nearest sample by cosine,
            discriminants on log-normalised samples, and "lda"; for sparse X, a linear support vector machine and
            discriminants on log-normalised samples, and "model". "auto": the head of these with the lowest log loss on
            parts of the training samples that are left out of dictionary and head in turn, which costs three more sets
            of fits (one, from 300 samples on): nearest, blend, lda and stacked, and model if X is sparse. Several
            labels per sample have a head of their own.
        n_restarts: number of fits from different random starts, all of which take part in predictions, except by
            "nearest". The default head gains little from more than one, "blend" and the other neighbours more.
        select: criterion by which one restart is kept. "bound": the highest bound. "validation": each restart is fitted
            without a stratified part of the training samples; the restart with the best 1-NN accuracy on that part (the
            highest bound among equals) is then refitted to all training samples, starting from its dictionary.
        validation_fraction: proportion of every class in the validation part; at least one sample of each class is in
            it, and at least one is not.
        calibrate: method by which `predict_proba` finds the temperature that calibrates probabilities. "training": on
            the labelled training samples, none of which is its own neighbour; it needs no further fits, but the
            dictionary has seen these samples. With predict_by "auto", "lda" or "stacked", on samples that were left out
            in turn. A number of folds, from 2: on samples that are left out of the fit in turn, with one more set of
            fits for every fold. None: uncalibrated probabilities (see `predict_proba`). Predicted labels are the same
            for all of these.
        unlabelled: the value in y that marks unlabelled samples, in addition to NaN and None, which always do; None for
            no other. "auto": scikit-learn's −1, if there are two or more other labels and all are whole numbers ≥ 0; in
            {−1, 1} it is a class, and {−1, 0, 1} is refused, as it may mean either.
        total_samples: for `partial_fit`, the number of samples in the collection that batches come from; None for the
            samples so far. The strength of the priors and the weight of a batch depend on it.
        random_state: a seed, a RandomState or None. With a seed N, the first restart is that of `gsnmf fit --seed N`.
        verbose: 1 for a progress bar over restarts, and a line about how X is read and the memory that it takes.

    Attributes:
        components_: E[T], n_components × n_features; in_use_: whether each component explains anything in X.
        unit_: the factor by which X was multiplied, 1 without `counts`; `posterior_` is in these units.
        posterior_: the `Posterior` that was kept, features × samples as in `gsnmf.inference`.
        priors_: its `Priors`, as given or as learned.
        elbo_: its augmented bound after each sweep.
        n_iter_: its number of sweeps.
        reconstruction_err_: √(2 KL(X ‖ E[T] E[V])), as scikit-learn's NMF reports it, over the observed entries.
        restarts_: the posteriors of all restarts; bounds_: their last bounds; best_restart_: the index of the one that
            was kept. With select="validation" they belong to the fits without the validation part, except the posterior
            that was kept. Restarts whose bound is not finite are never kept, and do not vote.
        validation_scores_: accuracy of every restart on the validation part, with select="validation".
        classes_: the known labels, sorted; like the following attributes, only with labels.
        transduction_: the label of every training sample: as given, or learned for unlabelled samples. For sparse X it
            is the model's own, by q(z), mean over restarts. For dense X, known labels spread over neighbours in the
            spaces of all restarts' dictionaries (`transduce` in `gsnmf.classification.transduction`), on images more
            often right than q(z).
        label_distributions_: probabilities of the labels, samples × classes; 1 for labels that were given. They are not
            calibrated.
        predictor_: the head that predicts, chosen if predict_by is "auto"; predictor_scores_: accuracy of every head on
            training samples that were left out in turn, with its standard error, and log loss, by which the choice is
            made; predictor_reason_: the choice in words. The last two are only set where heads were compared.
        temperature_: the temperature of `predict_proba` for the `predict_by` of the fit; None if it was not calibrated,
            or could not be, as no class has two labelled samples or there is only one class. It has no effect if
            `predict_by` is changed later.
        n_components_, n_features_in_, feature_names_in_: as in scikit-learn's own estimators.

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
        seeds: Mapping[Any, Iterable[Any]] | None = None,
        seed_strength: float = STRENGTH,
        init: str = INIT,
        lam_start: str = LAM_START,
        max_iter: int = MAX_STEPS,
        tol: float | None = TOL,
        accelerate: bool = ACCELERATE,
        counts: float | None = None,
        learn: cavi.Learn | None = None,
        transform_by: str = "auto",
        predict_by: str = "auto",
        n_restarts: int = 1,
        select: str = "bound",
        validation_fraction: float = 0.1,
        calibrate: str | int | None = "training",
        unlabelled: Any = "auto",
        total_samples: int | None = None,
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
        self.seeds = seeds
        self.seed_strength = seed_strength
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
        self.total_samples = total_samples
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.target_tags.required = False
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn a dictionary.

        Args:
            X: samples × features, nonnegative; NaN where missing. Or a sparse matrix of SciPy, which stays sparse.
            y: one label per sample; NaN, None or the value of `unlabelled` for unlabelled samples, whose labels are
                learned while the dictionary is learned from all samples. Or several labels per sample: a matrix of 0
                and 1, samples × labels, or a list, object array or Series of sets, lists or tuples of labels, among
                which a bare label is the only one of its sample; a sample without any counts as unlabelled for the
                dictionary. Lists of numbers of equal length are rows of a matrix. None for the unsupervised model.
        """
        recipe = Recipe(*(getattr(self, name) for name in Recipe._fields))
        parameters.check_recipe(recipe)
        parameters.check_choices(self)
        parameters.check_restarts(self, y)
        if self.priors is not None:
            parameters.check_class_posterior(self.priors, self.predict_by)
        matrix, index = self._read(X, y)
        parameters.warn_of_choices(recipe, len(getattr(self, "classes_", ())))
        recipe = recipe._replace(seeds=self._name_seeds())
        part_seed, seeds = draw_seeds(self.random_state, self.n_restarts)
        keys = [jax.random.key(seed) for seed in seeds]
        self._transform_by = parameters.coefficients_by(self.transform_by, matrix)
        how = self.select, self.validation_fraction, part_seed, self._transform_by, self.predict_by, self.verbose
        plan = LearningPlan(recipe, keys, *how)
        if index is not None and index.ndim == 2:
            found, self._memory, self._several = learn_several(plan, matrix, index)
            self.predictor_ = "labels"
        else:
            plan = self._choose(plan, matrix, index)
            found, self._memory = learn(plan, matrix, index, getattr(self, "classes_", None))
        self._keep(found.fits[found.best], index, found.best)
        self.restarts_, self.bounds_ = self._memory.posteriors, found.bounds
        if self.select == "validation":
            self.validation_scores_ = found.scores
        data = as_data(matrix)
        self.in_use_ = in_use(self.posterior_, data)
        self.reconstruction_err_ = float(np.sqrt(2 * divergence(self._fit, data) / self.unit_))
        if index is not None and index.ndim == 1:
            self._calibrate(plan, matrix, index)
            self._transduce(plan, matrix, index)
        warn_of_pointless(self, self._memory, matrix, index)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None, classes: ArrayLike | None = None) -> Self:
        """Learn from one more batch of samples, none of which is kept: one step of `cavi.stream`.

        `transform` then works as after `fit`, and predictions do with predict_by="model". Attributes that need all
        samples (`in_use_`, `reconstruction_err_`, `transduction_`, a temperature) are missing, and `n_restarts`,
        `select` and `calibrate` have no effect. After `fit`, the stream begins with the dictionary of the fit.

        Args:
            X: samples × features, as in `fit`.
            y: as in `fit`; in every batch or in none.
            classes: all labels, at the first call; by default those of its y.
        """
        recipe = Recipe(*(getattr(self, name) for name in Recipe._fields))
        parameters.check_recipe(recipe)
        parameters.check_choices(self)
        if self.total_samples is not None:
            whole("total_samples", self.total_samples, 1)
        last = getattr(self, "_fit", None)
        matrix, index = self._read_batch(X, y, classes, first=last is None)
        number = len(getattr(self, "classes_", []))
        recipe = recipe._replace(seeds=self._name_seeds() if last is None else None)
        fit = learn_batch(recipe, matrix, index, number, self.total_samples, self.random_state, last)
        for name in {*OF_LABELS, *OF_ALL_SAMPLES} - {"classes_"}:
            self.__dict__.pop(name, None)
        self._transform_by = parameters.coefficients_by(self.transform_by, matrix)
        self._memory = memory_of(fit, self._transform_by)
        self._keep(fit, None, best=0)
        self.predictor_ = "model" if self.predict_by == AUTO else self.predict_by
        self._calibrated_for = self.predictor_
        self.temperature_: float | None = None
        if last is None:
            parameters.warn_of_choices(recipe, number)
            warn_of_pointless_stream(fit, matrix)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return coefficients, samples × components, by nonnegative least squares or by the posterior.

        Args:
            X: samples × features.
        """
        check_is_fitted(self)
        parameters.check_choices(self)
        by = self._transform_by if self.transform_by == "auto" else self.transform_by
        return self._memory.represent(self._new(X), self.best_restart_, by).T

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return the samples that coefficients represent: X @ components_.

        Args:
            X: coefficients, samples × components.
        """
        check_is_fitted(self)
        V = check_array(X, dtype=float)
        if V.shape[1] != self.n_components_:
            raise ValueError(f"expected coefficients of {self.n_components_} components; got {V.shape[1]}")
        samples: NDArray[Any] = V @ self.components_
        return samples

    def score(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy; a sample with several labels counts as right if all of them are.

        Args:
            X: samples × features.
            y: as in `fit`, without unlabelled samples.
            sample_weight: of each sample.
        """
        sets = label_sets(y) if hasattr(self, "_several") else None
        if sets is not None:
            y = MultiLabelBinarizer(classes=self.classes_).fit_transform(sets)
        return float(super().score(X, y, sample_weight))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label with the highest score, which is the most probable in `predict_proba`, calibrated or not.

        After a fit to several labels per sample, return a matrix of 0 and 1, samples × labels.

        Args:
            X: samples × features.
        """
        if hasattr(self, "_several"):
            return (self._several.margins(self._memory, self._new(X)) > 0).astype(int)
        scores = self._scores(X)
        labels: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return labels

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return probabilities of classes, samples × classes.

        They are proportional to exp(score / `temperature_`). A score is minus the angle between coefficients for
        "nearest", "cosine" and "blend", a proportion of votes for "vote", the model's log π_c + ℒ_τ(c) for "model", the
        discriminants' own score for "lda", and the weighted sum of scores of its terms for "stacked". Without a
        temperature only their order is of much use: 1 for the class of the "nearest" sample and proportions of votes
        for "vote"; mean cosines divided by their sum for "cosine" and "blend", which are all close to uniform;
        proportional to exp(score) for the others, which is far too sure for "model".

        Args:
            X: samples × features.
        """
        if hasattr(self, "_several"):
            return self._several.probabilities(self._memory, self._new(X))
        scores = self._scores(X)
        head = self._head
        if self.calibrate is None or self.temperature_ is None or head != self._calibrated_for:
            return shares_of(scores, head)
        return calibrated(scores, head, self.temperature_)

    def _keep(self, fit: Fit, index: NDArray[Any] | None, best: int) -> None:
        """Set what `fit` and `partial_fit` both learn: the fit that is kept, with its priors and dictionary."""
        self._fit, self._index = fit, index
        self.best_restart_, self.priors_ = best, self._memory.priors[best]
        self.posterior_, self.elbo_, self.n_iter_ = fit.posterior, fit.elbo, fit.num_steps
        T = np.asarray(fit.posterior.T.mean, float)
        self.components_, self.n_components_ = T.T / self.unit_, T.shape[1]

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        parameters.check_choices(self)
        if not hasattr(self, "classes_"):
            raise ValueError("expected an estimator fitted with labels, fit(X, y), for predictions; got y=None at fit")
        if self._fit.stream is not None and self._head != "model":
            raise ValueError(
                f"expected predict_by='model' after partial_fit, which keeps no samples; got {self.predict_by!r}"
            )
        samples = self._new(X)
        parameters.check_class_posterior(self.priors_, self._head)
        return undecided(class_scores(self._memory, self._head, samples), samples, self._head)

    @property
    def _head(self) -> str:
        """The head that predicts now; parameters may change after fit."""
        return self.predictor_ if self.predict_by == AUTO else self.predict_by

    def _choose(self, plan: LearningPlan, matrix: Any, index: NDArray[Any] | None) -> LearningPlan:
        """Return the plan with the head that predicts; compare heads if one is to be chosen, or learns itself."""
        self._comparison = None
        if index is None:
            return plan._replace(predict_by="nearest")
        if self.predict_by == AUTO or self.predict_by in LEARNED:
            names = candidates(matrix, self.priors) if self.predict_by == AUTO else (self.predict_by,)
            self._comparison = found = compare_heads(plan, matrix, index, self.classes_, names)
            self.predictor_scores_, self.predictor_reason_ = found.table, found.reason
            plan = plan._replace(predict_by=found.chosen, weights=found.weights)
        self.predictor_ = plan.predict_by
        return plan

    def _calibrate(self, plan: LearningPlan, matrix: NDArray[Any], index: NDArray[Any]) -> None:
        self._calibrated_for, self.temperature_ = plan.predict_by, None
        left_out = self._comparison
        if self.calibrate == "training" and left_out is not None and left_out.scores is not None:
            self.temperature_ = fit_temperature(left_out.scores, left_out.y)
        elif self.calibrate == "training":
            known = matrix[:, index >= 0]
            self.temperature_ = temperature_on_training(self._memory, plan.predict_by, known, plan.part_seed)
        elif self.calibrate is not None:
            folds = int(self.calibrate)
            self.temperature_ = temperature_on_folds(plan, matrix, index, self.classes_, folds)

    def _transduce(self, plan: LearningPlan, matrix: NDArray[Any], index: NDArray[Any]) -> None:
        """Set the labels of the training samples: as given, and learned for unlabelled samples."""
        C = len(self.classes_)
        all_known = (index >= 0).all()
        self.label_distributions_ = np.eye(C)[index] if all_known else transduced(plan, self._memory, matrix, index, C)
        self.transduction_ = self.classes_[self.label_distributions_.argmax(axis=1)]

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)
