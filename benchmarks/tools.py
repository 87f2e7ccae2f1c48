"""Topics of documents and programmes of cells by several tools: the same matrix, the same split, as many components.

    pip install cnmf tomotopy hpfrec scSpectra && python benchmarks/tools.py --counts DIR --splits 3

DIR holds the data of benchmarks/defaults.py, and newsgroups20.npz. Tools that are not installed are left out. With
--rows FILE, results are added to a table, and what is in it already is not run again. Half of the counts of every test
sample are seen, half are predicted (each count by a coin): log density is that of one count, Σ x log p / Σ x with
p the proportions that the tool predicts of the sample's features, mixed with 1 % of those of the training part, as one
0 would cost everything. It is a measure that topic models, factorisations and point estimates all have. Accuracy is
that of logistic regression on square roots of the tool's proportions of components, and that of the tool itself, if it
classifies. Every tool runs in a process of its own: CPU seconds of learning and of the coefficients of all samples
include the tool's imports and compilation, peak memory includes Python with SciPy, pandas and scikit-learn.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Iterator
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

PER_CLASS, FLOOR, SWEEPS, RUNS, EPOCHS = 3, 0.01, 300, 20, 2000


class Task(NamedTuple):
    """Training samples, and the two halves of the counts of test samples; rows are samples, counts are dense."""

    X: np.ndarray
    y: np.ndarray
    seen: np.ndarray
    hidden: np.ndarray
    y_new: np.ndarray
    rank: int
    seed: int
    features: Any = None


class Learned(NamedTuple):
    """What a tool learned: components × features, samples × components, and its own predictions if it classifies.

    expected: the expected counts of test samples up to a factor for each, if they are not the product of the above.
    """

    components: Any
    train: Any
    test: Any
    predicted: Any = None
    note: str = ""
    expected: Any = None


def task(split: Split, seed: int) -> Task:
    """Divide the counts of test samples."""
    new = np.asarray(split.X_new, int)
    seen = np.random.default_rng(seed).binomial(new, 0.5)
    filled = seen.sum(axis=1) > 0  # an empty sample has no proportions
    halves = seen[filled], (new - seen)[filled]
    rank = PER_CLASS * len(np.unique(split.y))
    return Task(split.X, split.y, *halves, split.y_new[filled], rank, seed, split.features)


def ours(task: Task, labelled: bool) -> Learned:
    """Learn with one restart and the estimator's other defaults, with labels or without."""
    from gsnmf import GroupSparseNMF

    how: dict[str, Any] = {"per_class": PER_CLASS} if labelled else {"n_components": task.rank}
    how |= {"n_restarts": 1, "predict_by": "nearest", "transform_by": "posterior", "random_state": task.seed}
    model = GroupSparseNMF(**how).fit(task.X, task.y if labelled else None)
    predicted = model.predict(task.seen) if labelled else None
    note = f"{model.in_use_.sum()} in use"
    return Learned(model.components_, model.transform(task.X), model.transform(task.seen), predicted, note)


def by_consensus(task: Task, restarts: int = RUNS) -> Learned:
    """Learn without labels from several starts, and take medians of matched components; coefficients as for NMF."""
    from gsnmf import GroupSparseNMF, consensus

    how: dict[str, Any] = {"n_restarts": restarts, "predict_by": "nearest", "random_state": task.seed}
    model = GroupSparseNMF(task.rank, **how).fit(task.X)
    found = consensus(model.restarts_, priors=model.priors_)
    alive, back = found.profiles.sum(axis=0) > 0, found.stable().sum()
    note = f"silhouette {found.silhouette:.2f}, {back} of {task.rank} come back in half of the restarts"
    return projected(found.profiles.T[alive], task)._replace(note=note)


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


def by_tomotopy(task: Task, per_label: int) -> Learned:
    """Learn by collapsed Gibbs sampling, 500 sweeps: PLDA with topics of each label (one: labelled LDA), or LDA."""
    import tomotopy

    words = [str(n) for n in range(task.X.shape[1])]

    def tokens(x: np.ndarray) -> list[str]:
        return list(np.repeat(words, x.astype(int)))

    labelled = per_label > 0
    if labelled:
        model = tomotopy.PLDAModel(topics_per_label=per_label, latent_topics=0, seed=task.seed + 1)
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
    mass = test.reshape(len(test), len(names), per_label).sum(axis=2)
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


def hide_this_folder() -> None:
    """Remove this folder from the path: its coverage.py would be taken for the package that Numba imports."""
    sys.path[:] = [folder for folder in sys.path if folder not in ("", str(Path(__file__).parent))]


def by_spectra(task: Task, epochs: int = EPOCHS) -> Learned:
    """Learn Spectra: two factors for each label and as many global ones as labels, its own gene sets, log counts.

    Its factors are of log-normalised counts: coefficients of these are as for NMF, and e^· − 1 turns them back.
    """
    hide_this_folder()
    import anndata
    import Spectra

    def logs(X: np.ndarray) -> np.ndarray:
        return np.log1p(1e4 * X / X.sum(axis=1, keepdims=True).clip(1))

    genes = [str(name) for name in task.features]
    table = pd.DataFrame({"label": task.y.astype(str)}, [f"s{n}" for n in range(len(task.X))])
    cells = anndata.AnnData(logs(task.X), table, pd.DataFrame(index=genes))
    labels = sorted(set(table["label"]))
    every = json.loads((Path(Spectra.__file__).parent / "data" / "default_gene_sets.json").read_text())["global"]
    sets = {name: own for name, those in every.items() if len(own := [g for g in those if g in genes]) >= 3}
    numbers = {"global": task.rank - (PER_CLASS - 1) * len(labels)} | dict.fromkeys(labels, PER_CLASS - 1)
    how: dict[str, Any] = {"use_highly_variable": False, "cell_type_key": "label", "label_factors": False}
    nested = {"global": sets} | {label: {} for label in labels}
    model = Spectra.est_spectra(cells, nested, L=numbers, clean_gs=False, num_epochs=epochs, **how).internal_model
    components = np.concatenate([_profiles(model, kind) for kind in numbers])
    found = projected(components, task._replace(X=logs(task.X), seen=logs(task.seen)))
    return found._replace(expected=np.expm1(found.test @ found.components), note=f"{len(sets)} gene sets")


def _profiles(model: Any, kind: str) -> np.ndarray:
    """Return Spectra's factors of one kind, factors × genes, with their scales of genes."""
    scale = 1 / (1 + np.exp(-model.gene_scaling[kind].detach().numpy())) + model.delta
    return np.asarray(model.theta[kind].softmax(dim=1).detach().numpy().T * scale)


def by_cnmf(task: Task) -> Learned:
    """Learn cNMF's consensus of 20 runs (its default is 100); coefficients as for NMF."""
    import tempfile

    import matplotlib

    matplotlib.use("agg")
    hide_this_folder()
    import cnmf

    with tempfile.TemporaryDirectory() as folder:
        names = [f"f{n}" for n in range(task.X.shape[1])]
        rows = [f"s{n}" for n in range(len(task.X))]
        pd.DataFrame(task.X, rows, names).to_csv(f"{folder}/counts.tsv", sep="\t")
        run = cnmf.cNMF(output_dir=folder, name="run")
        used = {"components": [task.rank], "n_iter": RUNS, "seed": task.seed, "num_highvar_genes": len(names)}
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
    "gsnmf consensus of 20": ("gsnmf", by_consensus),
    "scikit-learn NMF (KL)": ("sklearn", by_nmf),
    "scikit-learn LDA": ("sklearn", by_lda),
    "tomotopy PLDA, labels": ("tomotopy", partial(by_tomotopy, per_label=PER_CLASS)),
    "tomotopy labelled LDA": ("tomotopy", partial(by_tomotopy, per_label=1)),
    "tomotopy LDA": ("tomotopy", partial(by_tomotopy, per_label=0)),
    "hpfrec (scHPF's model)": ("hpfrec", by_hpfrec),
    "cNMF": ("cnmf", by_cnmf),
    "Spectra, labels": ("Spectra", by_spectra),
}
FEATURES = "features themselves"
CELLS_ONLY = ("Spectra, labels",)  # its gene sets are of genes


def log_density(learned: Learned, task: Task) -> float:
    """Return Σ x log p / Σ x over hidden counts, p = (1 − ε) proportions of VT + ε proportions of training counts."""
    product = learned.test @ learned.components if learned.expected is None else learned.expected
    M = np.asarray(product, float)
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


def measure(task: Task, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each tool, each from a fresh process, and one for features themselves."""
    for name in names:
        if name == FEATURES:
            yield {"tool": name, "regression": regression(task.X, task.seen, task)}
            continue
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool.submit(row, name, task).result()


def wanted(tools: list[str], features: Any, done: pd.DataFrame) -> list[str]:
    """Return the tools that are installed, suit the data and are not done."""
    there = [FEATURES]
    for name in tools:
        if importlib.util.find_spec(TOOLS[name][0]) is None:
            print(f"{name}: left out, not installed", file=sys.stderr)
        elif features is not None or name not in CELLS_ONLY:
            there.append(name)
    return [name for name in there if name not in set(done.get("tool", ()))]


def shown(rows: pd.DataFrame) -> str:
    """Return means over splits, with standard errors of log density and accuracies if there are two or more."""
    numbers = [name for name in ("log density", "regression", "own", "seconds", "GB") if name in rows]
    groups = rows.groupby("tool", sort=False)
    means, errors, sizes = groups[numbers].mean(), groups[numbers].sem(), groups.size()
    table = means.map("{:.3f}".format)
    for name in set(numbers) & {"log density", "regression", "own"}:
        table[name] += [f" ± {e:.3f}" if e == e else "" for e in errors[name]]  # NaN for one split
    return table.assign(splits=sizes, note=groups["note"].last()).replace("nan", "–").fillna("").to_string()


def main(argv: list[str] | None = None) -> int:
    """Print a table for each collection."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--counts", type=Path, metavar="DIR", required=True, help="folder with the count data")
    parser.add_argument("--data", nargs="+", default=["reuters_r8", "immune_cells"], metavar="NAME")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), metavar="TOOL")
    parser.add_argument("--splits", type=int, default=1, help="of each collection, with seeds 0, 1, … (default: 1)")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="a .csv to which rows are added")
    given = parser.parse_args(argv)
    from defaults import documents, problems

    found = problems(given.counts) | {"newsgroups20": partial(documents, given.counts / "newsgroups20.npz")}
    old = pd.read_csv(given.rows) if given.rows is not None and given.rows.exists() else pd.DataFrame()
    rows = old.to_dict("records")
    for name in given.data:
        if name not in found:
            parser.error(f"expected --data to name files in --counts; got {name}")
        for seed, split in enumerate(found[name](given.splits)):
            made, own = task(split, seed), {"data": name, "split": seed}
            done = old[(old["data"] == name) & (old["split"] == seed)] if len(old) else old
            for one in measure(made, wanted(given.tools, split.features, done)):
                rows.append(own | {"note": ""} | one)
                print(rows[-1], file=sys.stderr, flush=True)
                if given.rows is not None:
                    pd.DataFrame(rows).to_csv(given.rows, index=False)
        print(f"\n{name}: {made.X.shape[0]} × {made.X.shape[1]}, {made.rank} components")
        print(shown(pd.DataFrame([one for one in rows if one["data"] == name])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
