"""Components in use, the warning about unused ones, and pruning."""

import functools
import warnings

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from gsnmf.inference import DeadComponentsWarning, Fit, Posterior, cavi, components, in_use, prune
from gsnmf.inference.components import without
from gsnmf.inference.families import LogNormal, Point
from gsnmf.model import Gamma, GroupSparse, Priors, as_data

K, C = 6, 2
GROUPS = np.arange(40) % C


def counts(rank=3):
    """20 features × 40 samples in two groups that so many components explain."""
    rng = np.random.default_rng(0)
    T, V = rng.gamma(0.5, 10.0, (20, rank)), rng.exponential(size=(rank, 40))
    V[0, GROUPS == 1] = V[1, GROUPS == 0] = 0
    return as_data(rng.poisson(T @ V).astype(float), GROUPS)


# Each leaves some of the six components without counts.
DICTIONARY = Gamma(np.full((1, K), 0.6), [20.0] * K)
DYING = {
    "group sparse": Priors(DICTIONARY, GroupSparse(Gamma(np.full((K, C), 60.0), 1e6))),
    "gamma": Priors(DICTIONARY, Gamma(1.0, 0.1)),
}


@pytest.fixture(params=DYING, scope="module")
def dying(request):
    """Data, and a fit to them in which components died."""
    data = counts()
    with jax.enable_x64(True), pytest.warns(DeadComponentsWarning, match=rf"of {K} components explain nothing \(\d"):
        return data, cavi.run(data, DYING[request.param], key=jax.random.key(0), max_steps=3000, tol=1e-10)


def test_unused_is_what_the_bound_does_without(dying):
    """Each component by itself: the bound rises without an unused one and falls by far without one in use."""
    data, fit = dying
    used, before = in_use(fit.posterior), cavi.bound(fit.posterior, data, fit.priors)
    assert 1 <= used.sum() < K
    for i in range(K):
        posterior, priors = without(fit.posterior, fit.priors, np.arange(K) != i)
        change = cavi.bound(posterior, data, priors) - before
        assert change < -10 if used[i] else change > 0


def test_pruning_leaves_out_what_is_dead_and_no_more(dying):
    data, fit = dying
    used, pruned = in_use(fit.posterior), prune(fit, data)
    assert pruned.posterior.T.a.shape == (20, used.sum())
    assert in_use(pruned.posterior).all()
    kept = jax.tree.leaves(without(fit.posterior, fit.priors, used))
    for ours, theirs in zip(jax.tree.leaves((pruned.posterior, pruned.priors)), kept, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert pruned.elbo[-1] == cavi.bound(pruned.posterior, data, pruned.priors) > fit.elbo[-1]
    assert len(pruned.elbo) == pruned.num_steps
    assert f"{(~used).sum()} of {K} components were left out" in pruned.message


def test_what_is_left_is_a_fit_of_its_own(dying):
    """The rest was at its optimum, and nearly still is: going on, it takes over the few counts of the dead."""
    data, fit = dying
    pruned = prune(fit, data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        more = cavi.run(data, pruned.priors, start=pruned, max_steps=3000, tol=1e-10)
    rise = pruned.elbo[-1] - fit.elbo[-1]
    assert -1e-9 * abs(fit.elbo[-1]) <= more.elbo[-1] - pruned.elbo[-1] < 0.2 * rise
    assert prune(more, data) is more


def test_the_bound_rises_by_what_dead_components_cost(dying):
    """½ Σ_c log(1 + N_c/aˡ) each under the group-sparse prior; Stirling leaves off 1/(12 aˡ) a group at most."""
    data, fit = dying
    if fit.posterior.lam is None:
        pytest.skip("no such formula")
    rise = (prune(fit, data).elbo[-1] - fit.elbo[-1]) / (~in_use(fit.posterior)).sum()
    # What is left is the cost of T, about the expected counts.
    np.testing.assert_allclose(rise, 0.5 * C * np.log(1 + 20 / 60), atol=C / (12 * 60) + 1e-2)


def test_the_bound_has_the_last_word(dying, monkeypatch):
    """A component that explains something is put back, whatever `in_use` says of it."""
    data, fit = dying
    used = in_use(fit.posterior)
    live = np.flatnonzero(used)
    monkeypatch.setattr(components, "in_use", lambda *_: used & (np.arange(K) != live[0]))
    assert prune(fit, data).posterior.T.a.shape == (20, len(live))


def test_one_component_stays_when_all_are_dead():
    data = counts()._replace(X=np.zeros((20, 40)))
    with pytest.warns(DeadComponentsWarning, match="6 of 6 components explain nothing \\(0, 1, 2, 3, 4, …\\)"):
        fit = cavi.run(data, DYING["group sparse"], key=jax.random.key(0))
    assert prune(fit, data).posterior.T.a.shape == (20, 1)


@functools.cache
def half_hidden():
    """Three components, that half of the features and samples show, and a prior that is wide at the rest."""
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(0.5, 10.0, (30, 3)) @ rng.exponential(size=(3, 40))).astype(float)
    mask = np.ones(X.shape, bool)
    mask[:15] = mask[:, :20] = False
    return as_data(X, mask=mask), Priors(Gamma(0.1, 20.0), Gamma(1.0, 10.0))


def test_what_is_wholly_hidden_does_not_count():
    """Components that explain all that is seen live, however wide they are elsewhere."""
    data, priors = half_hidden()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeadComponentsWarning)
        fit = cavi.run(data, priors, key=jax.random.key(0), rank=3)
        cavi.run_many(data, priors, keys=jax.random.split(jax.random.key(0), 1), rank=3)
    assert in_use(fit.posterior, data).all()
    assert not in_use(fit.posterior).all()
    assert prune(fit, data) is fit
    with pytest.raises(ValueError, match=r"the data that were fitted, features × samples \(30, 40\); got \(20, 40\)"):
        in_use(fit.posterior, counts()._replace(mask=np.ones((20, 40), bool)))


def test_a_part_of_the_posterior_is_asked_alike():
    """The mask says the same as leaving out rows and columns."""
    rng = np.random.default_rng(1)
    size = np.linspace(0.1, 4.0, 9)
    T, V = Gamma(rng.gamma(0.5, size, (30, 9)), np.ones((30, 9))), Gamma(rng.gamma(2.0, size=(9, 40)), np.ones((9, 40)))
    data, _ = half_hidden()
    part = Posterior(Gamma(*(x[15:] for x in T)), Gamma(*(x[:, 20:] for x in V)), None)
    assert 0 < in_use(part).sum() < 9
    np.testing.assert_array_equal(in_use(Posterior(T, V, None), data), in_use(part))


@pytest.mark.parametrize("expanded", [False, True])
def test_priors_in_numpyros_words_lose_their_components_too(dying, expanded):
    _, fit = dying
    kept = np.arange(K) % 2 == 0
    T, rate = dist.Gamma(np.full((1, K), 0.6), 1 / 20.0), dist.Gamma(np.full((K, C), 60.0), 1e-6)
    if expanded:
        T, rate = dist.Gamma(0.6, 1 / 20.0).expand((20, K)), dist.Gamma(60.0, 1e-6).expand((K, C))
    _, priors = without(fit.posterior, Priors(T, GroupSparse(rate)), kept)
    assert [np.shape(x) for x in priors.dictionary] == [(20 if expanded else 1, 3)] * 2
    assert [np.shape(x) for x in priors.coefficients.rate] == [(3, C)] * 2
    np.testing.assert_allclose(priors.dictionary.mean, 12.0)
    np.testing.assert_allclose(priors.coefficients.rate.b, 1e6)


@pytest.mark.parametrize("shape", [(), (1, 1), (1, C), (K, 1), (K, C)])
def test_hyperparameters_lose_their_components_and_nothing_else(dying, shape):
    """Groups, or features, may be as many as components."""
    _, fit = dying
    kept = np.arange(K) % 2 == 0
    rate = Gamma(np.full(shape, 2.0), [[3.0] * C] * K)
    posterior, priors = without(fit.posterior, Priors(Gamma(np.ones((K, 1)), np.ones(K)), GroupSparse(rate)), kept)
    assert np.shape(posterior.T.a) == (20, 3)
    assert np.shape(posterior.V.b) == (3, 40)
    assert [np.shape(x) for x in priors.dictionary] == [(K, 1), (3,)]
    short = tuple(3 if length == K else length for length in shape)
    assert [np.shape(x) for x in priors.coefficients.rate] == [short, (3, C)]


def test_many_fits_warn_once_together():
    keys = jax.random.split(jax.random.key(0), 2)
    with pytest.warns(DeadComponentsWarning, match="2 of 2 fits have dead components. ") as caught:
        cavi.run_many(counts(), DYING["group sparse"], keys=keys, tol=1e-5)
    assert [w.filename for w in caught] == [__file__]


def test_who_lives_is_not_warned_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeadComponentsWarning)
        fit = cavi.run(counts(K), DYING["gamma"], key=jax.random.key(0))
    assert in_use(fit.posterior).all()


def test_points_are_unused_below_a_thousandth():
    posterior = Posterior(Point(np.array([[2.0, 12.0]])), Point(np.array([[5.0, 6.0], [1e-6, 1e-6]])), None)
    assert in_use(posterior).tolist() == [True, False]


def test_wide_factors_of_any_kind_are_unused():
    """exp E[log x] / E[x] is exp(−scale²/2) of a log-normal."""
    T = LogNormal(np.zeros((3, 2)), np.array([[0.1, 1.0]] * 3))
    V = LogNormal(np.zeros((2, 4)), np.array([[0.1] * 4, [1.0] * 4]))
    assert in_use(Posterior(T, V, None)).tolist() == [True, False]


@pytest.mark.parametrize("fit", [Fit(None, np.zeros(1), 1, True, ""), None])
def test_other_fits_are_refused(fit):
    with pytest.raises(ValueError, match=r"expected a Fit of cavi.run, with its priors; got"):
        prune(fit, counts())
