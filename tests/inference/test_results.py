"""Functions of results take the result's own priors, in one order of arguments."""

import functools
import inspect
import pickle

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from gsnmf import compare
from gsnmf.inference import (
    Posterior,
    align,
    cavi,
    collapsed_bound,
    fold_in,
    held_out_score,
    impute,
    label_probabilities,
    leave_one_out,
    linear_response,
    mcmc,
    prune,
    psis,
    to_arviz,
)
from gsnmf.inference.results import difference, priors_of, require_own_data, same_priors
from gsnmf.model import Dirichlet, Gamma, GroupSparse, Priors, Problem, as_data, hide
from gsnmf.model.data import with_several
from gsnmf.model.missing import label_fingerprint
from gsnmf.reporting import report
from gsnmf.saving import load_fit, save_fit

KEY = jax.random.key(0)
rng = np.random.default_rng(0)
DATA = hide(as_data(rng.poisson(4.0, (5, 8)).astype(float), [0, 1] * 4), 0.1)
PRIORS = Priors(Gamma(0.7, 2.0), GroupSparse(Gamma(2.0, 1.0)))
OTHERS = Priors(Gamma(0.9, 1.0), GroupSparse(Gamma(1.0, 1.0)))
UNLABELLED = as_data(np.asarray(DATA.X), [0, 1, None, 1, 0, None, 0, 1])
FEW = {"key": KEY, "num_samples": 30}
CALLS = {
    "bound": lambda r, d, *p: cavi.bound(r, d, *p),
    "paper_bound": lambda r, d, *p: cavi.paper_bound(r, d, *p),
    "collapsed_bound": lambda r, d, *p: collapsed_bound(r, d, *p, **FEW).value,
    "psis": lambda r, d, *p: psis(r, d, *p, **FEW),
    "to_arviz": lambda r, d, *p: to_arviz(r, d, *p, **FEW)["log_likelihood"]["X"].values,
    "impute": lambda r, d, *p: np.stack(impute(r, d, *p, **FEW)),
    "held_out_score": lambda r, d, *p: held_out_score(r, d, *p, **FEW).per_entry,
    "align": lambda r, d, *p: align(r, r, d, *p).posterior.T.mean,
    "fold_in": lambda r, d, *p: fold_in(r, d, *p).bound,
}


@pytest.fixture(scope="module")
def learned():
    with jax.enable_x64(True):
        learn = cavi.learn("all", "all", what=("both", "scale"))
        return cavi.run(DATA, PRIORS, key=KEY, rank=2, max_steps=40, tol=None, learn=learn)


@pytest.mark.parametrize("name", CALLS)
def test_priors_default_to_the_fits(learned, name):
    """The learned ones, and nothing else: the user's own priors would give other values without a word."""
    call = CALLS[name]
    np.testing.assert_array_equal(call(learned, DATA), call(learned, DATA, learned.priors))
    with pytest.raises(ValueError, match=r"no priors, or fit\.priors, for a fit whose hyperparameters were learned.*"):
        call(learned, DATA, PRIORS)


def test_the_bound_depends_on_which_priors_are_taken(learned):
    """So that the test above can fail."""
    assert cavi.bound(learned, DATA) == pytest.approx(learned.elbo[-1], rel=1e-12)
    assert cavi.bound(learned.posterior, DATA, PRIORS) < learned.elbo[-1] - 1


def test_other_priors_may_be_compared_for_a_fit_that_learned_none():
    fit = cavi.run(DATA, PRIORS, key=KEY, rank=2, max_steps=5, tol=None)
    assert cavi.bound(fit, DATA) == cavi.bound(fit, DATA, PRIORS) == pytest.approx(fit.elbo[-1], rel=1e-12)
    assert cavi.bound(fit, DATA, OTHERS) != cavi.bound(fit, DATA)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "align"])
def test_a_posterior_has_no_priors(learned, name):
    with pytest.raises(ValueError, match="expected priors, as a Posterior does not have its own; got priors=None"):
        CALLS[name](learned.posterior, DATA)


def test_chains_have_their_priors():
    options = {"rank": 2, "num_warmup": 5, "num_samples": 10, "progress_bar": False}
    chains = mcmc.run_gibbs(as_data(DATA.X, [0, 1] * 4), PRIORS, key=KEY, **options)
    assert chains.priors is PRIORS
    again = [held_out_score(chains, DATA, *p).per_entry for p in ((), (PRIORS,))]
    np.testing.assert_array_equal(*again)
    hidden = mcmc.run_gibbs(UNLABELLED, PRIORS, key=KEY, **options)
    found = label_probabilities(hidden, UNLABELLED)
    np.testing.assert_array_equal(found, label_probabilities(hidden, UNLABELLED, PRIORS))
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)


def test_arguments_come_in_one_order():
    functions = (cavi.bound, cavi.paper_bound, collapsed_bound, psis, to_arviz, impute, held_out_score)
    for function in (*functions, label_probabilities):
        parameters = inspect.signature(function).parameters
        assert list(parameters)[:3] == ["result", "data", "priors"], function
        assert parameters["priors"].default is None
    assert list(inspect.signature(align).parameters)[:4] == ["result", "reference", "data", "priors"]
    assert list(inspect.signature(fold_in).parameters)[:3] == ["result", "X", "priors"]


def test_the_former_order_works_with_a_warning(learned):
    q = learned.posterior
    with pytest.warns(DeprecationWarning, match=r"now result, data, priors: cavi\.bound\(posterior, data, priors\)"):
        assert cavi.bound(DATA, learned.priors, q) == cavi.bound(learned, DATA)
    with pytest.warns(DeprecationWarning, match="result, data, priors"):
        assert cavi.paper_bound(DATA, learned.priors, q) == cavi.paper_bound(learned, DATA)
    with pytest.warns(DeprecationWarning, match="result, data, priors"):
        assert cavi.paper_bound_gap(DATA, q) == cavi.paper_bound_gap(learned, DATA)
    with pytest.warns(DeprecationWarning, match="result, data, priors"):
        folded = fold_in(DATA, learned, learned.priors)
    np.testing.assert_array_equal(folded.bound, fold_in(learned, DATA).bound)


def test_same_priors():
    copy = jax.tree.map(lambda x: np.array(x), PRIORS)
    assert same_priors(PRIORS, PRIORS)
    assert same_priors(PRIORS, copy)
    assert not same_priors(PRIORS, OTHERS)
    assert not same_priors(PRIORS, PRIORS._replace(coefficients=Gamma(2.0, 1.0)))
    single = jax.tree.map(np.float32, PRIORS._replace(coefficients=Gamma(1 / 3, 1.0)))
    assert not same_priors(single, PRIORS._replace(coefficients=Gamma(1 / 3, 1.0)))
    assert same_priors(single, PRIORS._replace(coefficients=Gamma(1 / 3, 1.0)), rtol=1e-6)
    by_list = PRIORS._replace(dictionary=Gamma([0.6, 0.6], 2.0))
    assert same_priors(by_list, PRIORS._replace(dictionary=Gamma(np.full((3, 1), 0.6), np.full(2, 2.0))))
    assert not same_priors(by_list, PRIORS._replace(dictionary=Gamma(np.array([0.6, 0.7]), 2.0)))
    assert not same_priors(by_list, PRIORS._replace(dictionary=Gamma(np.full((3, 3), 0.6), 2.0)))
    assert same_priors(PRIORS, Problem(DATA, PRIORS, 2).priors, rtol=1e-6)
    fit = cavi.run(DATA, PRIORS, key=KEY, rank=2, max_steps=2, tol=None)
    assert priors_of(fit) is PRIORS
    assert isinstance(fit.posterior, Posterior)


DISTRIBUTIONS = {
    "LogNormal": lambda x: dist.LogNormal(0.0, x),
    "expanded": lambda x: dist.LogNormal(0.0, x).expand([3, 2]),
    "InverseGamma": lambda x: dist.InverseGamma(2.0, x),
    "HalfCauchy": dist.HalfCauchy,
    "truncated": lambda x: dist.TruncatedNormal(0.0, x, low=0.0),
    "transformed": lambda x: dist.TransformedDistribution(
        dist.Normal(0.0, 1.0), [dist.transforms.AffineTransform(0.0, x), dist.transforms.ExpTransform()]
    ),
    "mixture": lambda x: dist.MixtureGeneral(
        dist.Categorical(np.full(2, 0.5)), [dist.LogNormal(0.0, x), dist.HalfNormal(1.0)]
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_same_priors_of_numpyro(name):
    """Made twice they are the same, and so they are in another process; another number or family is another prior."""
    one, again, other = (PRIORS._replace(dictionary=DISTRIBUTIONS[name](x)) for x in (2.0, 2.0, 3.0))
    assert same_priors(one, again)
    assert same_priors(one, pickle.loads(pickle.dumps(one)))
    assert not same_priors(one, other)
    assert difference(one, PRIORS._replace(dictionary=dist.HalfNormal(2.0))) == "other families, or shapes of them"


def test_a_problem_with_other_priors_is_refused_for_a_learned_fit(learned):
    right, wrong = Problem(DATA, learned.priors, 2), Problem(DATA, PRIORS, 2)
    assert cavi.bound(learned, right) == cavi.bound(learned, DATA)
    for call in (CALLS["bound"], CALLS["collapsed_bound"], CALLS["held_out_score"], CALLS["impute"]):
        with pytest.raises(ValueError, match=r"expected no priors, or fit\.priors, for a fit whose hyperparameters"):
            call(learned, wrong)
    with pytest.raises(ValueError, match="expected no priors with a Problem, which has its own; got Priors"):
        cavi.bound(learned, right, PRIORS)


def test_saved_fits_and_reports_take_the_fits_priors(learned, tmp_path):
    save_fit(tmp_path / "fit", learned, None, DATA)
    assert same_priors(load_fit(tmp_path / "fit").fit.priors, learned.priors)
    for call in (lambda: save_fit(tmp_path / "other", learned, PRIORS, DATA), lambda: report(learned, DATA, PRIORS)):
        with pytest.raises(ValueError, match="whose hyperparameters were learned"):
            call()
    assert not (tmp_path / "other.npz").exists()


def test_draws_from_arviz_keep_labels_and_proportions():
    data = as_data(np.asarray(DATA.X), [0, 1, None, 1, 0, None, 0, 1], label_prior=Dirichlet([1.0, 2.0]))
    options = {"rank": 2, "num_warmup": 5, "num_samples": 10, "progress_bar": False}
    chains = mcmc.run_gibbs(data, PRIORS, key=KEY, **options)
    tree = to_arviz(chains, data, align=None, posterior_predictive=False, log_likelihood=None)
    found = label_probabilities(tree, data, PRIORS)
    np.testing.assert_allclose(found, label_probabilities(chains, data), rtol=1e-12)


def test_swapped_arguments_are_refused(learned):
    with pytest.raises(ValueError, match="expected a Fit, a Posterior or a NumPyro MCMC that has run; got Data"):
        to_arviz(DATA, learned, PRIORS)


ONCE_MORE = as_data(np.asarray(DATA.X), [1, 0] * 4, mask=DATA.mask)._replace(held_out=DATA.held_out)
NEED_THEIR_DATA = {
    "linear_response": linear_response,
    "leave_one_out": leave_one_out,
    "refine": cavi.refine,
    "prune": prune,
    "to_arviz": to_arviz,
    "held_out_score": held_out_score,
    "compare": lambda fit, data: compare([fit], data),
    "report": report,
}


@pytest.mark.parametrize("name", NEED_THEIR_DATA)
def test_other_labels_are_refused(name):
    fit = fitted_plainly()
    with pytest.raises(ValueError, match=r"the same X with other labels of samples .checksum \d+, that of the fit"):
        NEED_THEIR_DATA[name](fit, ONCE_MORE)


@functools.cache
def fitted_plainly(priors=PRIORS):
    return cavi.run(DATA, priors, key=KEY, rank=2, max_steps=3, tol=None)


def test_labels_are_compared_where_they_matter(tmp_path):
    """Not with priors without groups, not for fits of older versions, nor where they are stated in another way."""
    fit = fitted_plainly()
    require_own_data(fit, DATA)
    require_own_data(fit, DATA._replace(labels=with_several(DATA)))
    require_own_data(fit._replace(labels=None), ONCE_MORE)
    require_own_data(fit, Problem(ONCE_MORE, PRIORS, 2))
    require_own_data(fitted_plainly(Priors(Gamma(0.7, 2.0), Gamma(1.0, 1.0))), ONCE_MORE)
    save_fit(tmp_path / "fit", fit, None, DATA)
    saved = load_fit(tmp_path / "fit")
    assert saved.fit.labels == fit.labels
    require_own_data(saved.fit, saved.data)
    with pytest.raises(ValueError, match="other labels"):
        require_own_data(saved.fit, ONCE_MORE)


def test_the_checksum_of_labels_has_their_prior():
    X, groups = np.asarray(DATA.X), [0, 1, None, 1, 0, None, 0, {0, 1}]
    others = [None, [0.3, 0.7], Dirichlet(np.array([1.0, 2.0])), Dirichlet(np.array([2.0, 2.0]))]
    marks = {label_fingerprint(as_data(X, groups, label_prior=prior)) for prior in others}
    marks |= {label_fingerprint(as_data(X, [0, 1, None, 1, 0, None, 0, 1])), label_fingerprint(DATA)}
    assert len(marks) == 6
    assert label_fingerprint(as_data(X)) == 0
