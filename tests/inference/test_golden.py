"""The paper author's program (double precision, GNU Octave), reproduced."""

import jax.numpy as jnp
import numpy as np
import pytest

from gsnmf.inference import cavi
from gsnmf.inference.observations import observe
from gsnmf.inference.sweep import moments, sweep
from gsnmf.model import Gamma, GroupSparse, Priors, Rate, as_data
from gsnmf.model.conjugacy import expected, negative_kl
from gsnmf.model.problem import Problem


@pytest.fixture
def setting(golden):
    data = as_data(golden["X"], golden["groups"])
    priors = Priors(Gamma(golden["a_t"], golden["b_t"]), GroupSparse(Gamma(golden["a_lam"], golden["b_lam"])))
    return data, priors, cavi.start(T=golden["T0"], V=golden["V0"], lam=golden["lam0"])


@pytest.mark.parametrize("steps", [1, 5, 50])
def test_factors_and_bound(golden, setting, steps):
    # 1e-12: rounding grows tenfold in 50 sweeps, to 1e-13.
    data, priors, start = setting
    fit = cavi.run(data, priors, start=start, max_steps=steps, tol=None, accelerate=False)
    for name, q in zip(("t", "v", "lam"), fit.posterior, strict=True):
        np.testing.assert_allclose(q.mean, golden[f"E_{name}_{steps}"], rtol=1e-12)
        np.testing.assert_allclose(q.log_mean, golden[f"L_{name}_{steps}"], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(fit.elbo, golden["elbo"][:steps], rtol=1e-12)
    assert fit.num_steps == steps


def test_lambda_starts_at_its_prior_mean(golden, setting):
    data, priors, start = setting
    fit = cavi.run(data, priors, start=start._replace(lam=None), max_steps=1, tol=None, accelerate=False)
    np.testing.assert_allclose(fit.posterior.lam.mean, golden["E_lam_1"], rtol=1e-12)


def test_printed_bound_where_the_program_evaluates_it(golden, setting):
    """Between the updates of V and λ, with q(S) and q(λ) of the sweep before and log E[λ] for E[log λ].

    Not in the first sweep, before which the program's q(λ) has no shape.
    """
    data, priors, start = setting
    state = cavi.init(data, priors, start=start)
    prepared, hyper, _ = Problem(data, priors)
    seen = observe(prepared)

    for n in range(8):
        before, old = state.moments, state.posterior
        q, S = sweep(seen, hyper, before)
        printed = (
            seen.X.base
            + seen.labels.moved(S, before, moments(seen, hyper, q))
            - jnp.sum(seen.X.expected_totals(q.T, q.V))
        )
        rates = [prepared.membership @ f.T for f in (jnp.exp(before.lam), before.lam)]
        printed += jnp.sum(negative_kl(q.T, expected(hyper.dictionary).transpose()))
        printed += jnp.sum(negative_kl(q.V, Rate(1.0, *rates)))
        if n > 0:
            printed += jnp.sum(negative_kl(old.lam, expected(hyper.coefficients.rate)))
            np.testing.assert_allclose(printed, golden["paper_bound"][n], rtol=1e-12)
        state, _ = cavi.step(data, priors, state)
