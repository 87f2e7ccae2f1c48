"""Do components of classes carry the batch? With and without a second grouping, on counts with a batch effect.

Three classes in two batches, 150 samples, 100 features: two programmes for each class, one for each batch (ambient
counts, present in all samples of the batch) and one common to all. 85 % of class a are in the first batch, 85 % of
class c in the second, half of class b in each; new samples have the opposite balance. All models have 9 components:

    individual    three for each class: the default
    common        two for each class, three that all classes share
    crossed       two for each class, one for each batch, one for all: `crossed` and `serving`
    multi-label   the same with two labels for each sample, its class and its batch, whose rates it averages

    leak       per cent of the true counts of the batch that components of classes explain; "truth" is the least
               possible, as programmes overlap
    variance   per cent of the variance of √proportions of a component of a class that the batch explains within the
               class, of the component where it is largest; mean over classes
    cosine     of a batch's true programme with the nearest component of a class; mean over batches
    nearest    accuracy on new samples by the nearest sample in √proportions of the components of classes
    posterior  accuracy on new samples by the class posterior; crossed: within the batch, which is known

Leak was chosen after the four other measures.

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
MODELS = ["individual", "common", "crossed", "multi-label"]


class Counts(NamedTuple):
    """Counts, the class and batch of every sample, and the expected counts of its class, its batch and the rest."""

    X: np.ndarray
    classes: np.ndarray
    batches: np.ndarray
    expected: tuple[np.ndarray, np.ndarray, np.ndarray]


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
        parts = T[:, :6] @ V[:6], T[:, 6:8] @ V[6:8], T[:, 8:] @ V[8:]
        return Counts(rng.poisson(sum(parts)).astype(float), np.array(CLASSES)[c], np.array(BATCHES)[b], parts)

    return part(0.85), part(0.15)


def stated(model: str, some: Counts) -> tuple[Data, Priors, np.ndarray, Any]:
    """Return data, priors, which components are of classes, and the crossing if there is one."""
    two = crossed(some.classes.tolist(), some.batches.tolist())
    if model in ("individual", "common"):
        shared = 3 if model == "common" else 0
        data, structure = as_data(some.X, some.classes), common_and_individual(shared, 2 if shared else 3, 3)
        own = np.arange(9) >= shared
    elif model == "crossed":
        data = as_data(some.X, two.labels, group_names=two.group_names, label_prior=two.label_prior)
        structure = two.serving(per_class=2, per_batch=1, num_common=1)
    else:
        sets = [set(pair) for pair in zip(some.classes.tolist(), some.batches.tolist(), strict=True)]
        data = as_data(some.X, sets, group_names=CLASSES + BATCHES)
        by_class = np.hstack([np.repeat(np.eye(3), 2, axis=0), np.ones((6, 2))])
        by_batch = np.hstack([np.ones((2, 3)), np.eye(2)])
        structure = np.vstack([np.ones((1, 5)), by_class, by_batch])
    if model in ("crossed", "multi-label"):
        own = (np.arange(9) > 0) & (np.arange(9) < 7)
    priors = Priors(Gamma(0.6, 20.0), GroupSparse(relative_rates(data, structure=structure)))
    return data, priors, own, two if model == "crossed" else None


def measured(model: str, some: Counts, new: Counts, restarts: int, seed: int) -> dict[str, float]:
    """Return the measures of the best of several restarts."""
    data, priors, own, two = stated(model, some)
    with quiet():
        fits = cavi.run_many(data, priors, keys=jax.random.split(jax.random.key(seed), restarts))
    fit = max(fits, key=lambda one: one.elbo[-1])
    T, V = (np.asarray(x.mean, float) for x in (fit.posterior.T, fit.posterior.V))

    def shares(V: Any) -> np.ndarray:
        """Return √ of the proportions of the components of classes in the counts of all of these."""
        counts = (np.asarray(V, float) * T.sum(axis=0)[:, None])[own]
        return np.sqrt(counts / np.maximum(counts.sum(axis=0), 1e-9)).T

    used, result = shares(V), {"leak": _leak(some, T[:, own] @ V[own], T @ V)}
    result["variance"] = float(
        np.mean([_explained(used[some.classes == c], some.batches[some.classes == c]) for c in CLASSES])
    )
    result["cosine"] = float(
        np.mean([_nearest(some.expected[1][:, some.batches == b].sum(axis=1), T[:, own]) for b in BATCHES])
    )
    if model == "multi-label":  # a new sample of unknown class has no rates: fold_in takes one group for each sample
        return result
    folded = fold_in(fit, new.X)
    z = folded.class_posterior() if two is None else two.posterior(folded.bound, new.batches)
    guess = np.asarray(z) if two is None else two.by_class(z)
    found = np.einsum("ckn,nc->kn", np.asarray(folded.V.mean), np.asarray(z))
    nearest = KNeighborsClassifier(1).fit(used, some.classes).predict(shares(found))
    result["nearest"] = float(np.mean(nearest == new.classes))
    result["posterior"] = float(np.mean(np.array(CLASSES)[guess.argmax(axis=1)] == new.classes))
    return result


def _leak(some: Counts, of_classes: np.ndarray, of_all: np.ndarray) -> float:
    """Return the per cent of the batch's counts, by feature and sample, that components of classes explain."""
    of_batch = some.expected[1]
    return float(100 * (of_batch * of_classes / np.maximum(of_all, 1e-9)).sum() / of_batch.sum())


def _explained(values: np.ndarray, batches: np.ndarray) -> float:
    """Return the largest per cent of a column's variance that the batch explains, among columns that vary."""
    means, of_all = pd.DataFrame(values).groupby(batches).transform("mean").to_numpy(), values.var(axis=0)
    return float(100 * (means.var(axis=0) / np.maximum(of_all, 1e-12))[of_all > 1e-4].max(initial=0))


def _nearest(t: np.ndarray, T: np.ndarray) -> float:
    """Return the cosine of a programme with the nearest component."""
    return float((t @ T / np.linalg.norm(t) / np.linalg.norm(T, axis=0)).max())


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
        rows.append({"model": "truth", "leak": _leak(some, some.expected[0], sum(some.expected))})
        rows += [{"model": m} | measured(m, some, new, options.restarts, seed) for m in MODELS]
    table = pd.DataFrame(rows).groupby("model")
    print(table.mean().round(3).to_string(), "\n\nstandard errors\n", table.sem().round(3).to_string(), sep="")


if __name__ == "__main__":
    main()
