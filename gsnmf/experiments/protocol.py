"""The paper's protocol: dictionaries from training folds, with several random starts; 1-NN by cosine on test folds."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from joblib import Parallel, delayed, parallel_config
from joblib.parallel import BACKENDS, EXTERNAL_BACKENDS
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from tqdm import tqdm

from .. import __version__
from ..classification.projection import COMBINED, both_cosines, combine
from .methods import METHODS, Space, resolve
from .results import identity, read, record, write


class PreparedDataset(NamedTuple):
    """A prepared dataset.

    name: as in the presets.
    X: features × samples.
    labels: one per sample.
    """

    name: str
    X: NDArray[Any]
    labels: NDArray[Any]

    @property
    def fingerprint(self) -> str:
        """A hash of the numbers and labels: results of other preprocessing are not mixed with these."""
        labels = np.unique(self.labels, return_inverse=True)[1]
        parts = np.ascontiguousarray(self.X, np.float32).tobytes(), labels.astype(np.int64).tobytes()
        return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


class Workload(NamedTuple):
    """The amount of work of an experiment.

    runs: number of cross-validations, each with its own folds.
    folds: number of parts of each.
    use: number of parts that are left out in turn; all of them, except in a quick run.
    restarts: number of random starts of each method that has them.
    validation: whether each start is also validated on a part of the training samples, to choose one: twice the work.
    bounds: whether collapsed bounds are estimated.
    """

    runs: int = 5
    folds: int = 10
    use: int = 10
    restarts: int = 10
    validation: bool = False
    bounds: bool = False


FULL, QUICK = Workload(), Workload(runs=1, use=2, restarts=2)


def tasks(
    problem: PreparedDataset, plan: Workload, methods: Sequence[tuple[str, Mapping[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Yield every fold of every method: a row of results without its outcome.

    Args:
        problem: the prepared dataset.
        plan: numbers of runs, folds and restarts.
        methods: names with their settings; a name may occur with several settings.
    """
    common = {"dataset": problem.name, "fingerprint": problem.fingerprint, "folds": plan.folds, "bounds": plan.bounds}
    common |= {"version": __version__, "precision": str(jnp.result_type(float))}
    for run, fold, (method, settings) in itertools.product(range(plan.runs), range(plan.use), methods):
        own = {"method": method, "settings": resolve(method, settings), "run": run, "fold": fold}
        restarts = 1 if method == "pca" else plan.restarts  # principal components do not depend on a start
        yield common | own | {"restarts": restarts, "validation": False}
        if plan.validation and restarts > 1:
            yield common | own | {"restarts": restarts, "validation": True}


def run_fold(X: NDArray[Any], labels: NDArray[Any], task: Mapping[str, Any]) -> dict[str, Any]:
    """Learn from all folds except one, from every start, and classify the remaining fold.

    Args:
        X: features × samples.
        labels: one per sample.
        task: as from `tasks`.

    Returns the task with its outcome, in numbers of correctly classified test samples: `correct`, for every start, by
    the paper's classifier, and `roots`, by the same classifier with the cosine of square roots of coefficients; `vote`,
    by the majority of the starts; `cosine`, by the class that is nearest on average over the starts; `blend`, by the
    class that is nearest on average over starts and both cosines. With `validation` it is only `chosen`: by the start
    that did best on validation samples set aside from training.
    """
    train, test = parts(labels, task["folds"], task["run"], task["fold"])
    fold = _Fold(X, labels, train, test)
    if task["validation"]:
        return {**task, "size": len(test), **_chosen(task, fold)}
    spaces, seconds = _learn(task, X[:, train], labels[train])
    cosines = np.array([fold.cosines(space) for space in spaces])  # starts × measures × samples × classes
    outcome: dict[str, Any] = {"size": len(test)}
    for name, own in zip(("correct", "roots"), np.moveaxis(cosines, 1, 0), strict=False):
        outcome[name] = [fold.right(scores) for scores in own]
    if task["restarts"] > 1:
        outcome |= {name: fold.right(combine(cosines, name)) for name in COMBINED}
    if spaces[0].bound is not None:
        outcome["bound"] = [float(f"{space.bound:.8g}") for space in spaces]
    if task["bounds"]:
        found = [space.collapsed(seeds(task)[0]) for space in spaces]
        outcome["collapsed"] = [float(f"{pair[0]:.8g}") for pair in found if pair is not None]
        outcome["collapsed_error"] = [float(f"{pair[1]:.3g}") for pair in found if pair is not None]
    return {**task, **outcome, "sweeps": [space.sweeps for space in spaces], "seconds": seconds}


def parts(labels: NDArray[Any], folds: int = 10, run: int = 0, fold: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the indices of the training and of the test samples.

    Args:
        labels: one per sample; parts are stratified by label.
        folds: number of parts.
        run: index of the random partition.
        fold: index of the part that is left out of training.
    """
    cuts = StratifiedKFold(folds, shuffle=True, random_state=run).split(labels, labels)
    train, test = next(itertools.islice(cuts, fold, None))
    return train, test


class _Fold(NamedTuple):
    """A fold: indices of training and of test samples."""

    X: NDArray[Any]
    labels: NDArray[Any]
    train: NDArray[np.intp]
    test: NDArray[np.intp]

    def cosines(self, space: Space) -> NDArray[Any]:
        """Return `both_cosines`, measures × test samples × classes.

        Training samples enter the space by the same map as test samples: E[V] of the fit has seen their labels.
        """
        train, test = (space.project(self.X[:, part]) for part in (self.train, self.test))
        return both_cosines(train, self.labels[self.train], test)

    def right(self, scores: NDArray[Any]) -> int:
        """Return the number of test samples whose own class has the highest score."""
        return int(np.sum(np.unique(self.labels[self.train])[scores.argmax(axis=1)] == self.labels[self.test]))


def seeds(task: Mapping[str, Any]) -> list[int]:
    """Return one seed for each start; the same for all methods and settings."""
    return [100_000 * task["run"] + 1_000 * task["fold"] + restart for restart in range(task["restarts"])]


def _learn(task: Mapping[str, Any], X: NDArray[Any], labels: NDArray[Any]) -> tuple[list[Space], list[float]]:
    """Return a space from every start, and the seconds each took."""
    spaces, seconds = [], []
    for seed in seeds(task):
        begin = time.perf_counter()
        spaces.append(METHODS[task["method"]](X, labels, seed, **task["settings"]))
        seconds.append(round(time.perf_counter() - begin, 3))
    return spaces, seconds


def _chosen(task: Mapping[str, Any], fold: _Fold) -> dict[str, Any]:
    """Choose the start whose dictionary, learned from a part of the training samples, classifies the other part best.

    Ties go to the higher bound. `validated`: number of validation samples that each start classified correctly.
    """
    learn, held = (fold.train[part] for part in parts(fold.labels[fold.train], task["folds"] - 1, task["run"]))
    spaces, seconds = _learn(task, fold.X[:, learn], fold.labels[learn])
    aside = fold._replace(train=learn, test=held)
    validated = [aside.right(aside.cosines(space)[0]) for space in spaces]
    best = np.lexsort(([space.bound or 0.0 for space in spaces], validated))[-1]
    return {"chosen": fold.right(fold.cosines(spaces[best])[0]), "validated": validated, "seconds": seconds}


def run(
    problem: PreparedDataset,
    plan: Workload,
    methods: Sequence[tuple[str, Mapping[str, Any]]],
    path: Path,
    *,
    jobs: int = 2,
    backend: str = "loky",
    command: str = "",
) -> list[dict[str, Any]]:
    """Run every fold that the file does not have yet, in parallel, and append each as soon as it is done.

    Args:
        problem: the prepared dataset.
        plan: numbers of runs, folds and restarts.
        methods: names with their settings.
        path: the file; created if it does not exist.
        jobs: number of folds in parallel.
        backend: joblib's "loky" (processes), "threading", "sequential", or a registered backend, for example "dask".
            Not "multiprocessing", whose forks hang once JAX has started.
        command: recorded in the file.

    Returns the rows of this plan, old and new.
    """
    if backend == "multiprocessing":
        raise ValueError("expected a joblib backend that does not fork, loky or threading; got multiprocessing")
    if backend not in BACKENDS and backend not in EXTERNAL_BACKENDS:
        raise ValueError(f"expected a joblib backend, such as loky, threading or dask; got {backend}")
    wanted = {identity(task): task for task in tasks(problem, plan, methods)}
    known = {identity(row): row for row in read(path)} if path.exists() else {}
    done = {key: known[key] for key in wanted if key in known}
    left = [task for key, task in wanted.items() if key not in done]
    if left:
        record(path, {"command": command, "versions": versions()})
        with _one_thread_each(backend), parallel_config(backend=backend, n_jobs=jobs):
            pool = Parallel(return_as="generator_unordered")
            outcomes = pool(delayed(run_fold)(problem.X, problem.labels, task) for task in left)
            every = 0.1 if sys.stderr.isatty() else 30  # seconds; a log needs fewer lines
            with tqdm(outcomes, total=len(wanted), initial=len(done), unit="fold", mininterval=every) as progress:
                for row in progress:
                    write(path, row)
                    done[identity(row)] = row
                    progress.set_description(f"{row['method']} run {row['run']} fold {row['fold']}")
    return [done[key] for key in wanted]


@contextmanager
def _one_thread_each(backend: str) -> Iterator[None]:
    """Limit new worker processes to one thread: several folds in parallel keep the cores busy, without waiting."""
    if backend != "loky":
        yield
        return
    names = ("XLA_FLAGS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    flags = "--xla_cpu_multi_thread_eigen=false"
    os.environ |= {"XLA_FLAGS": f"{before['XLA_FLAGS'] or ''} {flags}".strip()} | dict.fromkeys(names[1:], "1")
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def versions() -> dict[str, str]:
    """Return the versions of the packages that the numbers depend on."""
    from importlib.metadata import version

    libraries = {name: version(name) for name in ("gsnmf", "jax", "numpy", "scipy", "scikit-learn")}
    return {"python": sys.version.split()[0]} | libraries
