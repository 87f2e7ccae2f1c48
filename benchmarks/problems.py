"""The problems that are timed: digits, faces (real or generated), and matrices drawn from the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse
from measure import Options
from sklearn.datasets import load_digits
from sparse import read

from gsnmf import model
from gsnmf.images.preprocessing import prepared
from gsnmf.inference import cavi
from gsnmf.model import Data, Gamma, GroupSparse, Priors, as_data, label_driven

YALE_PIXELS = 4484  # that the paper's preparation leaves of an image


class Problem(NamedTuple):
    """Data, priors, and where λ starts."""

    name: str
    data: Data
    priors: Priors

    @property
    def shape(self) -> tuple[int, int, int]:
        """F, N, K."""
        return self.data.num_features, self.data.num_samples, len(self.rates.a)

    @property
    def rates(self) -> Gamma:
        """The prior of λ, components × groups."""
        return self.priors.coefficients.hyperprior

    @property
    def size(self) -> str:
        """As the table prints it."""
        F, N, K = self.shape
        return f"{self.name} {F}×{N}, K={K}"

    def options(self, seed: int) -> dict[str, Any]:
        """What `cavi.run` needs besides data and priors: a key, and λ starting at aˡ."""
        return {"key": jax.random.key(seed), "start": cavi.start(lam=self.rates.a)}

    def prepared(self, seed: int = 0) -> tuple[Data, Priors, cavi.State]:
        """Data, priors and first state, as `cavi.run` makes them in the precision that JAX is set to."""
        data, priors, _ = model.Problem(self.data, self.priors)
        return data, priors, cavi.init(self.data, self.priors, **self.options(seed))


def digits(samples: int | None = None, per_group: int = 3) -> Problem:
    """Scikit-learn's digits, pixels 0 to 16."""
    X, labels = load_digits(return_X_y=True)
    priors = Priors(Gamma(0.6, 20.0), GroupSparse(label_driven(per_group, 10, small=32.0, large=256.0)))
    return Problem("digits", as_data(X[:samples].T, labels[:samples]), priors)


def generated(
    F: int, N: int, K: int, C: int, *, name: str = "", large: float = 1024.0, T: Gamma | None = None, seed: int = 0
) -> Problem:
    """Counts drawn from the model: V is exponential, twenty times larger where component and group belong together."""
    rng = np.random.default_rng(seed)
    dictionary = Gamma(0.6, 20.0)
    rates = label_driven(rank=K, num_groups=C, small=32.0, large=large)
    groups = np.arange(N) % C
    shape, scale = (0.5, 10.0) if T is None else T
    true_T = rng.gamma(shape, scale, (F, K)).astype(np.float32)
    true_V = (rng.exponential(size=(K, N)) * np.where(rates.a[:, groups] == 32, 1.0, 0.05)).astype(np.float32)
    X = np.empty((F, N), np.float32)
    for rows in np.array_split(np.arange(F), max(1, F * N // 4_000_000)):  # the draws themselves are 64 bits wide
        X[rows] = rng.poisson(true_T[rows] @ true_V)
    return Problem(name, as_data(X, groups), Priors(dictionary, GroupSparse(rates)))


def yale(file: Path | None) -> Problem:
    """The Yale faces as the paper prepares them, or data of that shape drawn from the model."""
    if file is None:
        return generated(YALE_PIXELS, 165, 45, 15, name="like Yale", large=8192.0, T=Gamma(0.6, 20.0))
    X, labels, _, _ = prepared("yale", file)
    priors = Priors(Gamma(0.6, 20.0), GroupSparse(label_driven(3, 15, small=32.0, large=8192.0)))
    return Problem("Yale", as_data(X, labels), priors)


def words(file: Path | None) -> Problem:
    """Counts of words in documents of 20 groups, sparse: from a file (see `sparse.read`), or drawn at that shape."""
    if file is None:
        name, groups, documents, features = "like newsgroups20", 20, 18_821, 21_393
        rng = np.random.default_rng(0)
        sizes = rng.lognormal(np.log(85), 0.8, documents).astype(int)
        common = 1 / np.arange(5, features + 5)  # Zipf's law
        places = rng.choice(features, sizes.sum(), p=common / common.sum())
        ends = np.concatenate([[0], np.cumsum(sizes)])
        X = scipy.sparse.csr_array((np.ones(places.size, np.float32), places, ends), (documents, features))
        X.sum_duplicates()
        labels = np.arange(documents) % groups
    else:
        (X, labels), name = read(file), file.stem
        groups = len(np.unique(labels))
    rates = label_driven(60 // groups, groups, 32.0, 256.0, 1e3)
    return Problem(name, as_data(X.T, labels), Priors(Gamma(0.3, 1.0), GroupSparse(rates)))


def orl() -> Problem:
    """Data of the shape of the ORL faces."""
    return generated(2576, 360, 160, 40, name="like ORL")


def large() -> Problem:
    """Many samples: X is 160 MB in single precision."""
    return generated(2000, 20000, 50, 10, name="large")


def standard(options: Options) -> list[Problem]:
    """The sizes at which a sweep is timed, largest last."""
    if options.tiny:
        return [generated(30, 40, 6, 3, name="tiny")]
    return [digits(), yale(options.yale), orl(), large()]
