"""Topics of documents and programmes of cells by several tools: the same matrix, the same split, as many components.

    pip install cnmf tomotopy hpfrec && python benchmarks/tools.py --counts DIR

DIR holds the data of benchmarks/defaults.py. Tools that are not installed are left out. Half of the counts of every
test sample are seen, half are predicted (each count by a coin): log density is that of one count, Σ x log p / Σ x with
p the proportions that the tool predicts of the sample's features, mixed with 1 % of those of the training part, as one
0 would cost everything. It is a measure that topic models, factorisations and point estimates all have. Accuracy is
that of logistic regression on square roots of the tool's proportions of components, and that of the tool itself, if it
classifies. Every tool runs in a process of its own: CPU seconds of learning and of the coefficients of all samples
include the tool's imports and compilation, peak memory includes Python with SciPy, pandas and scikit-learn.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import xlogy
from sklearn.decomposition import NMF, LatentDirichletAllocation, non_negative_factorization
from sklearn.linear_model import LogisticRegression

if TYPE_CHECKING:
    from defaults import Split  # imports JAX, whose memory should not be counted for other tools

PER_CLASS, FLOOR, SWEEPS = 3, 0.01, 300


class Task(NamedTuple):
    """Training samples, and the two halves of the counts of test samples; rows are samples, counts are dense."""

    X: np.ndarray
    y: np.ndarray
    seen: np.ndarray
    hidden: np.ndarray
    y_new: np.ndarray
    rank: int
    seed: int


class Learned(NamedTuple):
    """What a tool learned: components × features, samples × components, and its own predictions if it classifies."""

    components: Any
    train: Any
    test: Any
    predicted: Any = None
    note: str = ""


def task(split: Split, seed: int) -> Task:
    """Divide the counts of test samples."""
    new = np.asarray(split.X_new, int)
    seen = np.random.default_rng(seed).binomial(new, 0.5)
    filled = seen.sum(axis=1) > 0  # an empty sample has no proportions
    halves = seen[filled], (new - seen)[filled]
    return Task(split.X, split.y, *halves, split.y_new[filled], PER_CLASS * len(np.unique(split.y)), seed)


def ours(task: Task, labelled: bool, restarts: int = 1) -> Learned:
    """Learn with the estimator's defaults, with labels or without; with restarts, say what they agree on."""
    from gsnmf import GroupSparseNMF, consensus

    how: dict[str, Any] = {"per_class": PER_CLASS} if labelled else {"n_components": task.rank}
    how["n_restarts"] = restarts
    model = GroupSparseNMF(**how, predict_by="nearest", transform_by="posterior", random_state=task.seed)
    model.fit(task.X, task.y if labelled else None)
    predicted = model.predict(task.seen) if labelled else None
    note = f"{model.in_use_.sum()} in use"
    if restarts > 1:
        found = consensus(model.restarts_, priors=model.priors_)
        note += f", silhouette {found.silhouette:.2f}, {found.stable().sum()} come back in half of the restarts"
    return Learned(model.components_, model.transform(task.X), model.transform(task.seen), predicted, note)


def by_nmf(task: Task) -> Learned:
    """Learn scikit-learn's NMF with the Kullback–Leibler divergence."""
    model = NMF(
        task.rank, solver="mu", beta_loss="kullback-leibler", init="nndsvda", max_iter=SWEEPS, random_state=task.seed
    )
    train = model.fit_transform(task.X)
    return Learned(model.components_, train, model.transform(task.seen))


def by_lda(task: Task) -> Learned:
    """Learn scikit-learn's variational latent Dirichlet allocation."""
    model = LatentDirichletAllocation(task.rank, max_iter=30, random_state=task.seed)
    train = model.fit_transform(task.X)
    return Learned(model.components_, train, model.transform(task.seen))


def by_tomotopy(task: Task, labelled: bool) -> Learned:
    """Learn by collapsed Gibbs sampling, 500 sweeps: PLDA with topics of each label, or LDA."""
    import tomotopy

    words = [str(n) for n in range(task.X.shape[1])]

    def tokens(x: np.ndarray) -> list[str]:
        return list(np.repeat(words, x.astype(int)))

    if labelled:
        model = tomotopy.PLDAModel(topics_per_label=PER_CLASS, latent_topics=0, seed=task.seed + 1)
    else:
        model = tomotopy.LDAModel(k=task.rank, seed=task.seed + 1)
    for x, label in zip(task.X, task.y, strict=True):
        model.add_doc(tokens(x), **({"labels": [str(label)]} if labelled else {}))
    model.train(500, workers=1)
    place = {word: n for n, word in enumerate(model.used_vocabs)}
    order = [place.get(word, -1) for word in words]
    components = np.array([np.append(model.get_topic_word_dist(k), 0.0)[order] for k in range(model.k)])
    unlabelled = [model.make_doc(tokens(x)) for x in task.seen]
    test = np.array(model.infer(unlabelled, iterations=100, workers=1)[0])
    train = np.array(model.infer([model.make_doc(tokens(x)) for x in task.X], iterations=100, workers=1)[0])
    if not labelled:
        return Learned(components, train, test)
    names = np.array(list(model.topic_label_dict))
    mass = test.reshape(len(test), len(names), PER_CLASS).sum(axis=2)
    return Learned(components, train, test, names[mass.argmax(axis=1)])


def by_hpfrec(task: Task) -> Learned:
    """Learn hierarchical Poisson factorisation, the model of scHPF, by hpfrec; coefficients as for NMF."""
    import hpfrec

    sample, feature = np.nonzero(task.X)
    table = pd.DataFrame({"UserId": sample, "ItemId": feature, "Count": task.X[sample, feature]})
    settings = {"stop_crit": "maxiter", "maxiter": 100, "check_every": 100, "verbose": False, "ncores": 1}
    model = hpfrec.HPF(k=task.rank, random_seed=task.seed + 1, **settings).fit(table)
    components = np.zeros((task.rank, task.X.shape[1]))
    components[:, np.asarray(model.item_mapping_, int)] = model.Beta.T
    return projected(components, task)


def by_cnmf(task: Task) -> Learned:
    """Learn cNMF's consensus of 20 runs (its default is 100); coefficients as for NMF."""
    import tempfile

    import matplotlib

    matplotlib.use("agg")
    folder_of_this = str(Path(__file__).parent)  # its coverage.py would be taken for the package that Numba imports
    sys.path[:] = [folder for folder in sys.path if folder not in ("", folder_of_this)]
    import cnmf

    with tempfile.TemporaryDirectory() as folder:
        names = [f"f{n}" for n in range(task.X.shape[1])]
        rows = [f"s{n}" for n in range(len(task.X))]
        pd.DataFrame(task.X, rows, names).to_csv(f"{folder}/counts.tsv", sep="\t")
        run = cnmf.cNMF(output_dir=folder, name="run")
        used = {"components": [task.rank], "n_iter": 20, "seed": task.seed, "num_highvar_genes": len(names)}
        run.prepare(counts_fn=f"{folder}/counts.tsv", **used)
        run.factorize(worker_i=0, total_workers=1)
        run.combine()
        stats = run.consensus(
            task.rank, density_threshold=2.0, show_clustering=False, skip_density_and_return_after_stats=True
        ).stats
        run.consensus(task.rank, density_threshold=0.5, show_clustering=False)
        _, _, spectra, _ = run.load_results(task.rank, 0.5)
    components = spectra.T.reindex(columns=names, fill_value=0.0).to_numpy(float).clip(0)
    return projected(components, task)._replace(note=f"silhouette {float(stats['silhouette']):.2f}")


def projected(components: np.ndarray, task: Task) -> Learned:
    """Return the coefficients that minimise the Kullback–Leibler divergence for given components."""
    H = components / components.sum(axis=1, keepdims=True).clip(1e-300) + 1e-12

    def fit(X: np.ndarray) -> np.ndarray:
        how: dict[str, Any] = {"solver": "mu", "beta_loss": "kullback-leibler", "max_iter": SWEEPS}
        return np.asarray(
            non_negative_factorization(X.astype(float), None, H, len(H), init="custom", update_H=False, **how)[0]
        )

    return Learned(H, fit(task.X), fit(task.seen))


TOOLS: dict[str, tuple[str, Callable[[Task], Learned]]] = {
    "gsnmf, labels": ("gsnmf", partial(ours, labelled=True)),
    "gsnmf, no labels": ("gsnmf", partial(ours, labelled=False)),
    "gsnmf, no labels, 20 restarts": ("gsnmf", partial(ours, labelled=False, restarts=20)),
    "scikit-learn NMF (KL)": ("sklearn", by_nmf),
    "scikit-learn LDA": ("sklearn", by_lda),
    "tomotopy PLDA, labels": ("tomotopy", partial(by_tomotopy, labelled=True)),
    "tomotopy LDA": ("tomotopy", partial(by_tomotopy, labelled=False)),
    "hpfrec (scHPF's model)": ("hpfrec", by_hpfrec),
    "cNMF": ("cnmf", by_cnmf),
}


def log_density(learned: Learned, task: Task) -> float:
    """Return Σ x log p / Σ x over hidden counts, p = (1 − ε) proportions of VT + ε proportions of training counts."""
    M = np.asarray(learned.test, float) @ np.asarray(learned.components, float)
    overall = task.X.sum(axis=0) + 1.0
    p = (1 - FLOOR) * M / M.sum(axis=1, keepdims=True).clip(1e-300) + FLOOR * overall / overall.sum()
    return float(xlogy(task.hidden, p).sum() / task.hidden.sum())


def regression(train: Any, test: Any, task: Task) -> float:
    """Return the accuracy of logistic regression on square roots of proportions."""

    def roots(V: Any) -> np.ndarray:
        V = np.asarray(V, float)
        return np.asarray(np.sqrt(V / V.sum(axis=1, keepdims=True).clip(1e-300)))

    return float(LogisticRegression(C=100.0, max_iter=2000).fit(roots(train), task.y).score(roots(test), task.y_new))


def row(name: str, task: Task) -> dict[str, Any]:
    """Run one tool, and say what it learned and needed."""
    warnings.simplefilter("ignore")
    began = time.process_time()
    learned, seconds = TOOLS[name][1](task), time.process_time() - began
    own = None if learned.predicted is None else float(np.mean(learned.predicted == task.y_new.astype(str)))
    found = {"log density": log_density(learned, task), "regression": regression(learned.train, learned.test, task)}
    return {"tool": name, **found, "own": own, "seconds": seconds, "GB": peak(), "note": learned.note}


def peak() -> float:
    """Return the peak memory of this process in GB, on Linux; getrusage would count that of the parent as well."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1e6 for line in lines if line.startswith("VmHWM")), np.nan)


def measure(task: Task, names: list[str]) -> list[dict[str, Any]]:
    """Return a row for each tool that is installed, each from a fresh process, and one for features themselves."""
    rows = [{"tool": "features themselves", "regression": regression(task.X, task.seen, task)}]
    for name in names:
        if importlib.util.find_spec(TOOLS[name][0]) is None:
            print(f"{name}: left out, not installed", file=sys.stderr)
            continue
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            rows.append(pool.submit(row, name, task).result())
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main(argv: list[str] | None = None) -> int:
    """Print a table for each collection."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--counts", type=Path, metavar="DIR", required=True, help="folder with the count data")
    parser.add_argument("--data", nargs="+", default=["reuters_r8", "immune_cells"], metavar="NAME")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), metavar="TOOL")
    parser.add_argument("--seed", type=int, default=0, help="of the tools and of the coins (default: 0)")
    given = parser.parse_args(argv)
    from defaults import problems

    for name in given.data:
        if name not in problems(given.counts):
            parser.error(f"expected --data to name files in --counts; got {name}")
        [split] = problems(given.counts)[name](1)
        found = task(split, given.seed)
        print(f"\n{name}: {found.X.shape[0]} × {found.X.shape[1]}, {found.rank} components, seed {given.seed}")
        print(
            pd.DataFrame(measure(found, given.tools)).to_string(index=False, float_format="{:.3f}".format, na_rep="–")
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
