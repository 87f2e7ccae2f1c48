"""What every algorithm returns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..model.priors import Gamma


class Posterior(NamedTuple):
    """The mean field q(T) q(V) q(λ), Gamma factors named as the model's sites.

    T: features × components.
    V: components × samples.
    lam: components × groups; None for a family of coefficients without λ.
    """

    T: Gamma
    V: Gamma
    lam: Gamma | None


class Fit(NamedTuple):
    """A fitted posterior and how it was reached.

    posterior: the factors.
    elbo: the valid augmented bound after each sweep, with q(S) at its optimum for those factors.
    num_steps: how many sweeps were made.
    converged: whether the tolerance was met.
    message: why it stopped, in a sentence.
    """

    posterior: Posterior
    elbo: np.ndarray
    num_steps: int
    converged: bool
    message: str
