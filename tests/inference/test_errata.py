"""Each test shows one row of docs/errata.md."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from conftest import problem
from scipy.special import gammaln, psi

from gsnmf.inference import cavi
from gsnmf.model import Dirichlet, Gamma, GroupSparse, Priors, as_data


def fitted(seed=0, steps=20, **sizes):
    data, priors = problem(seed, **sizes)
    return data, priors, cavi.run(data, priors, key=jax.random.key(0), max_steps=steps, tol=None, accelerate=False)


def test_every_row_names_a_test_that_exists():
    rows = [line for line in Path("docs/errata.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 17
    for row in rows:
        names = re.findall(r"`(?:(test_\w+)\.py::)?(test_\w+)`", row)
        assert names, row
        for module, name in names:
            [path] = Path("tests").rglob(f"{module or 'test_errata'}.py")
            source = path.read_text()
            assert f"def {name}(" in source, name


def test_14_line_1_is_not_the_bound():
    data, _, fit = fitted()
    q = fit.posterior
    M = np.exp(q.T.log_mean) @ np.exp(q.V.log_mean)
    printed = fit.elbo[-1] - np.sum(data.X * np.log(M)) - np.sum(np.log(M))
    assert abs(printed - fit.elbo[-1]) > 0.5 * abs(fit.elbo[-1])


def test_14_log_of_the_mean_exceeds_the_bound_by_its_gap():
    """log(E_λ Δᵀ) for L_λ Δᵀ, written out, and the same at every sweep."""
    for steps in (1, 20):
        data, priors, fit = fitted(steps=steps)
        lam = fit.posterior.lam
        swapped = np.sum((np.log(lam.mean) - lam.log_mean) @ data.membership.T)
        gap = cavi.paper_bound(fit.posterior, data, priors) - cavi.bound(fit.posterior, data, priors)
        np.testing.assert_allclose(gap, swapped, rtol=1e-9)
        np.testing.assert_allclose(cavi.paper_bound_gap(fit.posterior, data), swapped, rtol=1e-12)
    alpha = priors.coefficients.rate.a + data.group_sizes
    np.testing.assert_allclose(gap, np.sum(data.group_sizes * (np.log(alpha) - psi(alpha))), rtol=1e-9)


def exact_evidence(x, a_t, b_t, a_l, b_l):
    """Log p(x) for one entry, component and group, by quadrature over log t and log v (λ integrates out)."""

    def density(log_v, log_t):
        t, v = np.exp(log_t), np.exp(log_v)
        lomax = a_l * b_l * (1 + b_l * v) ** (-a_l - 1)
        return scipy.stats.gamma.pdf(t, a_t, scale=b_t) * lomax * scipy.stats.poisson.pmf(x, t * v) * t * v

    grid_t, grid_v = np.linspace(-2, 2, 801), np.linspace(-12, 12, 2401)
    values = density(grid_v[None, :], grid_t[:, None])
    return np.log(scipy.integrate.simpson(scipy.integrate.simpson(values, x=grid_v), x=grid_t))


def test_14_printed_bound_is_no_lower_bound():
    """One entry, T all but known: small enough for the exact evidence, which the printed bound exceeds."""
    hyper = {"a_t": 400.0, "b_t": 1 / 400, "a_l": 0.3, "b_l": 1.0}
    data = as_data([[3.0]], ["only"])
    priors = Priors(Gamma(hyper["a_t"], hyper["b_t"]), GroupSparse(Gamma(hyper["a_l"], hyper["b_l"])))
    fit = cavi.run(data, priors, rank=1, key=jax.random.key(0), max_steps=500, tol=None)
    evidence = exact_evidence(3.0, **hyper)
    assert fit.elbo[-1] < evidence < cavi.paper_bound(fit.posterior, data, priors)


def test_14_gap_depends_on_the_prior():
    data, _, _ = fitted()
    gaps = []
    for a in (1.0, 1000.0):
        priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(a, 1.0)))
        fit = cavi.run(data, priors, rank=4, key=jax.random.key(0), max_steps=2, tol=None)
        gaps.append(cavi.paper_bound_gap(fit.posterior, data))
    assert gaps[0] > 10 * gaps[1] > 0


def test_14_has_a_term_left_over_from_another_model():
    """With Gamma(1, b) on V, Cemgil's model, −A^v log B^v is due; with λ in its place there is no b to put in."""
    data, _ = problem(0)
    plain = Priors(Gamma(1.0, 1.0), Gamma(1.0, 3.0))
    fit = cavi.run(data, plain, rank=2, key=jax.random.key(0), max_steps=3, tol=None)
    V, due = fit.posterior.V, fit.posterior.V.a.size * np.log(3.0)
    entropy = np.sum(scipy.stats.gamma.entropy(np.asarray(V.a), scale=np.asarray(V.b)))
    without_term = np.sum(-V.mean / 3) + entropy
    lam = Gamma(np.full((2, 3), 1e12), np.full((2, 3), 1 / 3e12))  # q(λ) a spike at 1/3: the same prior on V
    with_lambda = np.sum(lam.log_mean @ data.membership.T - (lam.mean @ data.membership.T) * V.mean) + entropy
    np.testing.assert_allclose(with_lambda, without_term - due, rtol=1e-9)
    assert due > 1  # L_λ already said it: subtracting A^v log B^v once more would count it twice


U = np.array([0.7, 2.0, 5.0])


def test_14_dirichlet_terms_lack_log_gamma():
    """For q = p, E log p + H(q) is 0; the printed terms, (U−1)Π + (U₀−C)ψ(U₀) − Σ(U−1)ψ(U), are that without log Γ."""
    pi = psi(U) - psi(U.sum())
    printed_entropy = (U.sum() - 3) * psi(U.sum()) - np.sum((U - 1) * psi(U))
    log_normaliser = np.sum(gammaln(U)) - gammaln(U.sum())
    assert abs(np.sum((U - 1) * pi) + printed_entropy) < 1e-12  # what is printed happens to cancel at q = p ...
    V = U + np.array([1.0, 0.0, 0.0])  # ... but not once a label was counted
    pi = psi(V) - psi(V.sum())
    printed = np.sum((U - 1) * pi) + (V.sum() - 3) * psi(V.sum()) - np.sum((V - 1) * psi(V))
    kl = gammaln(V.sum()) - np.sum(gammaln(V)) + log_normaliser + np.sum((V - U) * pi)
    assert abs(printed + kl) > 0.1
    np.testing.assert_allclose(printed - log_normaliser + np.sum(gammaln(V)) - gammaln(V.sum()), -kl, rtol=1e-10)


def test_appendix_c_label_update():
    """Softmax of Π − E_Vᵀ E_Λ + 1ᵀ L_Λ maximises the bound in Δ; the printed ratio does not."""
    _, _, fit = fitted()
    q, C = fit.posterior, 3
    prior = np.log(np.full((1, C), 1 / C))
    P = prior - q.V.mean.T @ q.lam.mean + q.lam.log_mean.sum(axis=0)[None, :]
    best = scipy.special.softmax(P, axis=1)

    def terms(delta):
        return np.sum(delta * P, axis=1) + scipy.stats.entropy(delta, axis=1)

    rng = np.random.default_rng(0)
    for _ in range(20):
        other = rng.dirichlet(np.ones(C), size=len(P))
        assert (terms(other) <= terms(best) + 1e-12).all()
    printed = prior + q.V.mean.T @ q.lam.mean + q.lam.log_mean.sum(axis=0)[None, :]
    printed /= printed.sum(axis=1, keepdims=True)
    assert abs(printed - best).max() > 0.1


def test_appendix_c_old_values_lose_monotonicity():
    """All updates of a sweep from the factors before it, as printed; ours from the newest."""
    data, priors = problem(0, mean=50.0)
    q = cavi.run(data, priors, key=jax.random.key(0), max_steps=1, tol=None, accelerate=False).posterior
    X, z, rate = data.X, data.membership, priors.coefficients.rate
    elbo = []
    for _ in range(30):
        g_T, g_V = np.exp(q.T.log_mean), np.exp(q.V.log_mean)
        xi = X / (g_T @ g_V)
        T = Gamma(
            priors.dictionary.a + g_T * (xi @ g_V.T),
            1 / (1 / priors.dictionary.b + q.V.mean.sum(axis=1)[None, :]) + np.zeros_like(g_T),
        )
        V = Gamma(1 + g_V * (g_T.T @ xi), 1 / (q.lam.mean @ z.T + q.T.mean.sum(axis=0)[:, None]))
        lam = Gamma(q.lam.a, 1 / (1 / rate.b + q.V.mean @ z))
        q = type(q)(T, V, lam)
        elbo.append(cavi.bound(q, data, priors))
    assert np.diff(elbo).min() < -1e-3 * abs(elbo[-1])


def test_appendix_c_count_has_the_wrong_shape():
    data, priors, fit = fitted(N=16)
    printed = data.membership @ np.ones(3)  # Δ * 1: one number per sample
    with pytest.raises(ValueError, match="broadcast"):
        priors.coefficients.rate.a + printed
    counts = fit.posterior.lam.a - priors.coefficients.rate.a
    np.testing.assert_allclose(counts, np.broadcast_to(data.membership.sum(axis=0), (4, 3)), rtol=1e-12)


def test_appendix_a_multinomial_mean():
    s, p = 200, np.array([0.2, 0.3, 0.5])  # so many that none of the counts is 0
    draws = np.random.default_rng(0).multinomial(s, p, size=100_000)
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (abs(draws.mean(axis=0) - s * p) < 4 * error).all()
    assert draws.min() > 0
    np.testing.assert_allclose(np.log(draws).mean(axis=0), np.log(s * p), atol=0.05)


def test_appendix_a_dirichlet_entropy():
    def entropy(log_gamma):
        return np.sum(log_gamma(U)) - log_gamma(U.sum()) + (U.sum() - 3) * psi(U.sum()) - np.sum((U - 1) * psi(U))

    np.testing.assert_allclose(entropy(gammaln), scipy.stats.dirichlet(U).entropy(), rtol=1e-12)
    assert abs(entropy(scipy.special.gamma) - scipy.stats.dirichlet(U).entropy()) > 1


def test_jensen_step_is_an_equality():
    """E log Σ_c δ(z−c) λ_c = Σ_c δ(z−c) E log λ_c, by Monte Carlo; for two groups at once it is strict."""
    lam = np.random.default_rng(0).gamma([0.5, 3.0], [2.0, 1.0], size=(200_000, 2))
    for c in (0, 1):
        one_hot = np.eye(2)[c]
        np.testing.assert_allclose(np.log(lam @ one_hot).mean(), one_hot @ np.log(lam).mean(axis=0), rtol=1e-12)
    half = np.array([0.5, 0.5])
    assert np.log(lam @ half).mean() > half @ np.log(lam).mean(axis=0) + 0.1


def test_table_5_repeats_table_3():
    """The nmf_kl rows as printed: maximum, mean, variance."""
    table_3 = {"nmf_kl": (0.9267, 0.8690, 0.0054), "nmf_vb": (0.8875, 0.8246, 0.0077)}
    table_5 = {"nmf_kl": (0.9267, 0.8690, 0.0054), "nmf_vb": (0.9295, 0.8597, 0.0063)}
    assert [name for name in table_3 if table_3[name] == table_5[name]] == ["nmf_kl"]


def partly_labelled(dirichlet=None):
    """Samples 4 to 8 without a label, under a prior U of every sample's own."""
    data, priors = problem(5, F=5, N=9)
    own = np.random.default_rng(0).uniform(0.5, 3, (9, 3))
    groups = [int(c) if n < 4 else None for n, c in enumerate(data.membership.argmax(axis=1))]
    prior = Dirichlet(own) if dirichlet is None else dirichlet(own)
    return as_data(data.X, groups, label_prior=prior, group_names=[0, 1, 2]), priors, own


APPENDIX = cavi.labelling("mean_field", warm_start=None, annealing=0)


def appendix_c(data, priors, own, start, sweeps):
    """The appendix, corrected, in its own letters; samples × groups Δ, Υ, Π."""
    X, (A_t, B_t), (A_l, B_l), U = data.X, priors.dictionary, priors.coefficients.rate, own[4:]
    (E_t, E_v, E_l), delta = start, np.array(data.membership)
    delta[4:] = U / U.sum(axis=1, keepdims=True)
    L_t, L_v, Pi = np.log(E_t + 1e-12), np.log(E_v + 1e-12), np.log(delta[4:])
    for _ in range(sweeps):
        xi = X / (np.exp(L_t) @ np.exp(L_v))
        a_t, b_t = A_t + np.exp(L_t) * (xi @ np.exp(L_v).T), 1 / (1 / B_t + E_v.sum(axis=1)[None, :])
        E_t = a_t * b_t
        a_v, b_v = 1 + np.exp(L_v) * (np.exp(L_t).T @ xi), 1 / (E_l @ delta.T + E_t.sum(axis=0)[:, None])
        E_v = a_v * b_v
        L_t, L_v = psi(a_t) + np.log(b_t), psi(a_v) + np.log(b_v)
        a_l, b_l = A_l + delta.sum(axis=0)[None, :], 1 / (1 / B_l + E_v @ delta)
        E_l, L_l = a_l * b_l, psi(a_l) + np.log(b_l)
        P = Pi - E_v[:, 4:].T @ E_l + L_l.sum(axis=0)[None, :]
        delta[4:] = scipy.special.softmax(P, axis=1)
        upsilon = U + delta[4:]
        Pi = psi(upsilon) - psi(upsilon.sum(axis=1, keepdims=True))
    return E_t, E_v, E_l, delta, upsilon


def test_appendix_c_as_it_was_meant():
    data, priors, own = partly_labelled()
    rng = np.random.default_rng(1)
    start = [rng.uniform(1, 2, shape) for shape in ((5, 4), (4, 9), (4, 3))]
    fit = cavi.run(data, priors, start=cavi.start(*start), max_steps=7, tol=None, accelerate=False, labels=APPENDIX)
    q = fit.posterior
    for ours, theirs in zip(
        (q.T.mean, q.V.mean, q.lam.mean, q.z, q.labels.pi), appendix_c(data, priors, own, start, 7), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def dirichlet_pieces():
    """U, Δ of one sample after counting it, and Υ."""
    delta = np.array([0.2, 0.5, 0.3])
    return U, delta, U + delta


def test_14_entropy_is_that_of_upsilon():
    prior, _, upsilon = dirichlet_pieces()
    log_pi = np.log(np.random.default_rng(0).dirichlet(upsilon, size=200_000))
    density = (log_pi @ (upsilon - 1)) - np.sum(gammaln(upsilon)) + gammaln(upsilon.sum())
    error = 5 * density.std() / np.sqrt(len(density))  # fails once in a million
    assert abs(scipy.stats.dirichlet(upsilon).entropy() + density.mean()) < error
    assert abs(scipy.stats.dirichlet(prior).entropy() + density.mean()) > 10 * error


def test_14_lacks_the_terms_of_z():
    """What q(z) adds to the bound, Σ Δ Π + H(Δ), is −KL(q(z) ‖ exp Π) and not constant in Δ."""
    _, delta, upsilon = dirichlet_pieces()
    Pi = psi(upsilon) - psi(upsilon.sum())
    terms = [np.sum(d * Pi) + scipy.stats.entropy(d) for d in (delta, delta[::-1])]
    assert abs(terms[0] - terms[1]) > 0.05


def test_appendix_b_expects_a_logarithm():
    """E[log p(π)] + H(q(π)) is 0 for q = p, as it must; with E[p(π)] in its place it is not."""
    logs = np.log(np.random.default_rng(0).dirichlet(U + 1, size=100_000))
    density = logs @ U - np.sum(gammaln(U + 1)) + gammaln((U + 1).sum())
    entropy = scipy.stats.dirichlet(U + 1).entropy()
    assert abs(density.mean() + entropy) < 5 * density.std() / np.sqrt(len(logs))
    assert abs(np.exp(density).mean() + entropy) > 1


def test_own_shares_are_redundant():
    """A label drawn from π_τ ~ Dirichlet(u_τ) is drawn from u_τ / Σ u: with π_τ integrated out the bound is higher."""
    with_pi, priors, _ = partly_labelled()
    without, _, _ = partly_labelled(lambda own: own)
    draws = np.random.default_rng(0).dirichlet(U, size=100_000)
    error = 5 * draws.std(axis=0) / np.sqrt(len(draws))
    assert (abs(draws.mean(axis=0) - U / U.sum()) < error).all()
    fit = cavi.run(with_pi, priors, key=jax.random.key(0), max_steps=300, tol=None, labels=APPENDIX)
    assert cavi.bound(fit.posterior, without, priors) > fit.elbo[-1]
