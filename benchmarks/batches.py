"""Do components of classes carry the batch? With and without a second grouping, on counts with a batch effect.

Three classes in two batches, 150 samples, 100 features: two programmes for each class, one for each batch (ambient
counts, present in all samples of the batch) and one common to all. A batch has 85 % of its samples from some classes
(a and half of b in the first batch, c and the other half of b in the second); new samples have the opposite balance.
All models have the same number of components:

    classes       two for each class, three common ones
    crossed       two for each class, one for each batch, one common: `crossed` and `serving`
    multi-label   the same components with two labels for each sample, its class and its batch, whose rates it averages

    leak      variance of √proportions of the components of classes that the batch explains within a sample's own class,
              in per cent of the whole (0: none), largest over the components of that class
    between   |cosine| of a batch's true programme with the nearest component of a class
    nearest   accuracy on new samples by the nearest sample in √proportions of the components of classes
    posterior accuracy on new samples by the class posterior; crossed: within the batch, which is known

    python benchmarks/batches.py --draws 20
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from sklearn.neighbors import KNeighborsClassifier
from tqdm import tqdm

from gsnmf.inference import cavi, fold_in
from gsnmf.inference.warning import quiet
from gsnmf.model import Data, Gamma, GroupSparse, Priors, as_data, common_and_individual, crossed, relative_rates

CLASSES, BATCHES = ["a", "b", "c"], ["p", "q"]
MODELS = ["classes", "crossed", "multi-label"]


class Counts(NamedTuple):
    """Counts, the class and batch of every sample, and the true programmes of batches."""

    X: np.ndarray
    classes: np.ndarray
    batches: np.ndarray
    programmes: np.ndarray


def drawn(seed: int, effect: float = 1.0, num_features: int = 100, num_samples: int = 150) -> tuple[Counts, Counts]:
    """Draw training samples and new samples, whose classes have the opposite balance over batches.

    Args:
        seed: of the draw.
        effect: counts of the batch's programme, relative to those of a class.
        num_features: F.
        num_samples: of each of the two.
    """
    rng = np.random.default_rng(seed)
    T = rng.gamma(0.3, 1.0, (num_features, 9))  # two for each class, one for each batch, one for all
    T /= T.sum(axis=0)

    def part(share: float) -> Counts:
        c = rng.integers(3, size=num_samples)
        b = (rng.random(num_samples) < np.array([1 - share, 0.5, share])[c]).astype(int)
        V = np.zeros((9, num_samples))
        for of_class in range(2):
            V[2 * c + of_class, np.arange(num_samples)] = 60 * rng.exponential(size=num_samples)
        V[6 + b, np.arange(num_samples)] = 120 * effect * rng.gamma(4.0, 0.25, size=num_samples)
        V[8] = 60 * rng.exponential(size=num_samples)
        return Counts(rng.poisson(T @ V).astype(float), np.array(CLASSES)[c], np.array(BATCHES)[b], T[:, 6:8])

    return part(0.85), part(0.15)


def stated(model: str, some: Counts) -> tuple[Data, Priors, np.ndarray, Any]:
    """Return data, priors, the class of every component (−1 for others), and the crossing if there is one."""
    two = crossed(some.classes.tolist(), some.batches.tolist())
    if model == "classes":
        data, structure = as_data(some.X, some.classes), common_and_individual(3, 2, 3)
        own = np.r_[[-1] * 3, np.repeat(range(3), 2)]
    elif model == "crossed":
        data = as_data(some.X, two.labels, group_names=two.group_names, label_prior=two.label_prior)
        structure = two.serving(per_class=2, per_batch=1, num_common=1)
        own = np.r_[-1, np.repeat(range(3), 2), [-1] * 2]
    else:
        sets = [set(pair) for pair in zip(some.classes.tolist(), some.batches.tolist(), strict=True)]
        data = as_data(some.X, sets, group_names=CLASSES + BATCHES)
        by_class = np.hstack([np.repeat(np.eye(3), 2, axis=0), np.ones((6, 2))])
        by_batch = np.hstack([np.ones((2, 3)), np.eye(2)])
        structure, own = np.vstack([np.ones((1, 5)), by_class, by_batch]), np.r_[-1, np.repeat(range(3), 2), [-1] * 2]
    priors = Priors(Gamma(0.6, 20.0), GroupSparse(relative_rates(data, structure=structure)))
    return data, priors, own, two if model == "crossed" else None


def measured(model: str, some: Counts, new: Counts, restarts: int, seed: int) -> dict[str, float]:
    """Return the measures of the best of several restarts."""
    data, priors, own, two = stated(model, some)
    with quiet():
        fits = cavi.run_many(data, priors, keys=jax.random.split(jax.random.key(seed), restarts))
    fit = max(fits, key=lambda one: one.elbo[-1])
    T = np.asarray(fit.posterior.T.mean, float)
    of_class = own >= 0

    def shares(V: Any) -> np.ndarray:
        """√ of the proportions of the components of classes in a sample's counts of these components."""
        counts = (np.asarray(V, float) * T.sum(axis=0)[:, None])[of_class]
        return np.sqrt(counts / np.maximum(counts.sum(axis=0), 1e-9)).T

    used = shares(fit.posterior.V.mean)
    result = {
        "leak": 100
        * float(np.mean([_explained(used[some.classes == c], some.batches[some.classes == c]) for c in CLASSES])),
        "between": float(np.mean([np.abs(_cosines(t, T[:, of_class])).max() for t in new.programmes.T])),
    }
    if model == "multi-label":  # a new sample of unknown class has no rates: fold_in takes one group for each sample
        return result
    folded = fold_in(fit, new.X)
    z = np.asarray(folded.class_posterior(), float) + 1e-300
    guess = z if two is None else two.by_class(z, new.batches.tolist())
    within = z if two is None else z * (np.array(two.batches)[two.batch_of] == new.batches[:, None])
    V = np.einsum("ckn,nc->kn", np.asarray(folded.V.mean), within / within.sum(axis=1, keepdims=True))
    nearest = KNeighborsClassifier(1).fit(used, some.classes).predict(shares(V))
    result["nearest"] = float(np.mean(nearest == new.classes))
    result["posterior"] = float(np.mean(np.array(CLASSES)[guess.argmax(axis=1)] == new.classes))
    return result


def _explained(values: np.ndarray, batches: np.ndarray) -> float:
    """Return the largest share of a column's variance that the batch explains."""
    means = pd.DataFrame(values).groupby(batches).transform("mean").to_numpy()
    return float((means.var(axis=0) / np.maximum(values.var(axis=0), 1e-12))[values.var(axis=0) > 1e-4].max(initial=0))


def _cosines(t: np.ndarray, T: np.ndarray) -> np.ndarray:
    return np.asarray(t @ T / np.linalg.norm(t) / np.linalg.norm(T, axis=0))


def main() -> None:
    """Print means and standard errors over draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--effect", type=float, default=1.0, help="counts of the batch relative to those of the class")
    options = parser.parse_args()
    rows = []
    for seed in tqdm(range(options.draws), unit="draw"):
        some, new = drawn(seed, options.effect)
        rows += [{"model": m} | measured(m, some, new, options.restarts, seed) for m in MODELS]
    table = pd.DataFrame(rows).groupby("model")
    print(table.mean().round(3).to_string(), "\n\nstandard errors\n", table.sem().round(3).to_string(), sep="")


if __name__ == "__main__":
    main()
