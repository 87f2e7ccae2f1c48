"""The augmented bound can be differentiated twice in (log a, log b) of every factor."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import FAMILIES

from gsnmf.inference import cavi
from gsnmf.inference.labels.unlabelled import label_terms
from gsnmf.inference.observed.dense import ratios
from gsnmf.inference.posterior import Posterior
from gsnmf.model import Dirichlet, Gamma, Priors, as_data

F, N, K = 7, 9, 3


def sparse_data(groups, **options):
    """Counts that are mostly 0, with a feature of zeros and, with a mask, a sample that is hidden as a whole."""
    rng = np.random.default_rng(3)
    X = rng.poisson(rng.gamma(0.3, 3.0, (F, N))).astype(float)
    X[2] = 0
    assert (X == 0).mean() > 0.4
    return as_data(X, groups, **options)


def mask():
    seen = np.random.default_rng(4).uniform(size=(F, N)) < 0.7
    seen[:, 5] = False
    return seen


GROUPS = [0, 1, 2] * 3
CASES = {
    "zeros": (sparse_data(GROUPS), FAMILIES["group sparse"], None),
    "mask": (sparse_data(GROUPS, mask=mask()), FAMILIES["group sparse"], None),
    "without groups": (sparse_data(None), FAMILIES["gamma"], None),
    "relevance": (sparse_data(GROUPS), FAMILIES["relevance"], None),
    "from outside": (sparse_data(GROUPS), FAMILIES["from outside"], None),
    "multi-label": (sparse_data([{0, 1}, 1, 2] * 3, mask=mask()), FAMILIES["group sparse"], None),
    "mean field": (
        sparse_data([None, 1, 2, 0, None, 2, 0, 1, 2], mask=mask()),
        FAMILIES["group sparse"],
        cavi.labelling("mean_field", annealing=0),
    ),
    "structured": (
        sparse_data([None, 1, 2, 0, None, 2, {0, 1}, 1, 2], label_prior=Dirichlet([1.0, 2.0, 1.5])),
        FAMILIES["group sparse"],
        cavi.labelling("structured", annealing=0),
    ),
    "impossible groups": (
        sparse_data([None, 1, 2, 0, None, 2, 0, 1, 2], label_prior=[1.0, 0.0, 2.0]),
        FAMILIES["group sparse"],
        cavi.labelling("structured", annealing=0),
    ),
}


def small_shapes(q, seed):
    """The posterior with every third shape at 0.05, where ψ and log Γ are steep and exp ψ(a) is 1e-9."""
    rng = np.random.default_rng(seed)

    def one(factor):
        shape = np.shape(factor.a)
        a, b = (np.array(np.broadcast_to(x, shape)) for x in factor)
        return Gamma(jnp.asarray(np.where(rng.uniform(size=shape) < 1 / 3, 0.05, a)), jnp.asarray(b))

    made = Posterior(*(None if f is None else one(f) for f in q[:3]))
    labels = q.labels
    if labels is not None and labels.V is not None:
        labels = labels._replace(V=one(labels.V))
    return made.with_labels(labels)


def in_logarithms(name):
    """The bound as a function of the logarithms of all parameters of Gamma factors, and a point to look at."""
    data, family, how = CASES[name]
    priors = Priors(Gamma(0.6, 2.0), family)
    q = cavi.run(data, priors, key=jax.random.key(0), rank=K, max_steps=3, tol=None, accelerate=False, labels=how)
    q = small_shapes(q.posterior, 5)
    factors = dict(q.sites)
    if q.labels is not None and q.labels.V is not None:
        factors["given"] = q.labels.V

    def bound(logarithms):
        made = {site: Gamma(*map(jnp.exp, pair)) for site, pair in logarithms.items()}
        labels = q.labels if "given" not in made else q.labels._replace(V=made["given"])
        return cavi.bound(Posterior(made["T"], made["V"], made.get("lam")).with_labels(labels), data, priors)

    at = {site: tuple(jnp.log(x) for x in factor) for site, factor in factors.items()}
    return bound, at


SHORT = ("mask", "structured", "without groups")
RUNS = [pytest.param(name, marks=() if name in SHORT else pytest.mark.slow) for name in CASES]


@pytest.mark.parametrize("name", RUNS)
def test_gradients_and_products_with_the_hessian_agree_with_differences(name):
    """Central differences of the bound, and of its gradient, along random directions of all parameters at once."""
    bound, at = in_logarithms(name)
    both = jax.jit(jax.value_and_grad(bound))  # traced once: most of this test's time
    rng = np.random.default_rng(6)
    h = 1e-5
    way = jax.tree.map(lambda x: rng.normal(size=x.shape), at)
    (high, ahead), (low, behind) = (both(jax.tree.map(lambda x, d, s=s: x + s * h * d, at, way)) for s in (1, -1))
    (_, gradient), (_, product) = jax.jvp(both, (at,), (way,))
    slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: np.sum(g * d), gradient, way)))
    np.testing.assert_allclose(slope, (high - low) / (2 * h), rtol=1e-5)
    difference = jax.tree.map(lambda a, b: (np.asarray(a) - np.asarray(b)) / (2 * h), ahead, behind)
    scale = max(float(np.abs(x).max()) for x in jax.tree.leaves(difference))
    jax.tree.map(lambda p, d: np.testing.assert_allclose(p, d, rtol=1e-5, atol=1e-5 * scale), product, difference)


def test_the_hessian_is_finite_and_symmetric():
    bound, at = in_logarithms("mask")
    flat, restore = jax.flatten_util.ravel_pytree(at)
    H = jax.jit(jax.hessian(lambda x: bound(restore(x))))(flat)
    assert np.isfinite(H).all()
    np.testing.assert_allclose(H, H.T, atol=1e-9 * np.abs(H).max())


@pytest.mark.slow
def test_at_an_optimum_the_hessian_has_no_positive_eigenvalue():
    data, family, _ = CASES["zeros"]
    priors = Priors(Gamma(0.6, 2.0), family)
    fit = cavi.run(data, priors, key=jax.random.key(1), rank=2, max_steps=20_000, tol=1e-14)
    full = {site: Gamma(*(jnp.broadcast_to(x, f.a.shape) for x in f)) for site, f in fit.posterior.sites.items()}
    flat, restore = jax.flatten_util.ravel_pytree({s: tuple(jnp.log(x) for x in f) for s, f in full.items()})

    def bound(x):
        return cavi.bound(Posterior(**{s: Gamma(*map(jnp.exp, p)) for s, p in restore(x).items()}), data, priors)

    slopes = jax.grad(bound)(flat)
    assert np.abs(slopes).max() < 1e-3  # it is the optimum in these coordinates, too
    values = np.linalg.eigvalsh(jax.hessian(bound)(flat))
    assert values.max() < 1e-3 * np.abs(values).max()


def test_where_M_underflows_derivatives_are_finite():
    """Products of exp E[log ·] as small as a floating-point number may be, or smaller."""
    X, M = jnp.array([0.0, 3.0, 3.0, 0.0]), jnp.array([1e-300, 1e-300, 1e-200, 0.0])
    for n in (0, 1):  # ξ itself is 3e200 here, and its derivative by M overflows unless it meets something small
        assert np.isfinite(jax.grad(lambda M, n=n: ratios(X, M)[n].sum() * 1e-220)(M)).all()
    assert np.isfinite(jax.jvp(jax.grad(lambda M: ratios(X, M)[1].sum()), (M,), (M,))[1]).all()


def test_derivatives_of_a_share():
    """By x and by M, against those of x/M and x log(x/M) themselves."""
    X, M = jnp.array([2.0, 3.0, 0.5]), jnp.array([0.3, 4.0, 0.7])
    for n, plain in enumerate((lambda X, M: X / M, lambda X, M: X * jnp.log(X / M))):
        for by in (0, 1):
            ours = jax.jacobian(lambda *at, n=n: ratios(*at)[n], argnums=by)(X, M)
            np.testing.assert_allclose(ours, jax.jacobian(plain, argnums=by)(X, M), rtol=1e-12)
    twice = jax.hessian(lambda M: ratios(X, M)[1].sum())(M)
    np.testing.assert_allclose(twice, np.diag(X / M**2), rtol=1e-12)


def test_labels_that_are_all_but_impossible_can_be_differentiated_twice():
    """In single precision, where 1/z² overflows: z is about 1, 1e-22 and 0 here."""
    with jax.enable_x64(False):
        bounds = jnp.array([[0.0, -50.0, -110.0]], np.float32)

        def optimum(b):
            z = jax.nn.softmax(b, axis=1)
            return jnp.sum(z * b) + label_terms(z, jnp.zeros_like(z))

        assert np.isfinite(jax.hessian(optimum)(bounds)).all()
