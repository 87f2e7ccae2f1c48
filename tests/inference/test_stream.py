"""Streams: the formulas of a step against explicit loops, resuming, and batches of every kind."""

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from conftest import FAMILIES, paper_priors, problem
from scipy.special import digamma

from gsnmf.inference import cavi
from gsnmf.inference.observations import observe
from gsnmf.inference.stream.batches import Labelled, Order, open_batches, part, read_levels, rounded
from gsnmf.inference.stream.begin import first_factors
from gsnmf.inference.stream.run import StreamSchedule
from gsnmf.inference.stream.step import Globals, Weights, blend, iterate_V, rescale, step
from gsnmf.inference.sweep import moments, rate_sums, sweep, update_lam
from gsnmf.model import Gamma, Priors, as_data
from gsnmf.model.problem import Problem

KEY = jax.random.key(0)
PLAIN = {"accelerate": False, "average": False}


def starting_point(data, priors, seed=0):
    """Means of T and λ, for a start that does not depend on the batch."""
    rng = np.random.default_rng(seed)
    K, C = priors.coefficients.rate.a.shape
    return cavi.start(T=rng.gamma(2.0, 1.0, (data.num_features, K)), lam=rng.gamma(2.0, 1.0, (K, C)))


def explicit_step(X, membership, priors, T, lam, *, N, sizes, rho, updates):
    """The formulas of a step, one number at a time; T and lam are pairs (A, B) as on paper."""
    (a_t, b_t), (a_l, b_l) = (np.broadcast_arrays(*p) for p in (priors.dictionary, priors.coefficients.rate))
    (A_t, B_t), (A_l, B_l) = T, lam
    F, B = X.shape
    K = A_t.shape[1]
    g_T, rate = np.exp(digamma(A_t)) * B_t, (A_l * B_l) @ membership.T
    E_V = B_v = 1 / (rate + (A_t * B_t).sum(axis=0)[:, None])
    g_V = np.exp(digamma(1.0)) * B_v
    for n in range(updates + 1):
        s = np.array(
            [
                [[X[f, t] * g_T[f, i] * g_V[i, t] / (g_T[f] @ g_V[:, t]) for t in range(B)] for i in range(K)]
                for f in range(F)
            ]
        )
        if n < updates:
            A_v = 1 + s.sum(axis=0)
            E_V, g_V = A_v * B_v, np.exp(digamma(A_v)) * B_v
    more = N / B
    new_A, new_rate = a_t + more * s.sum(axis=2), 1 / b_t + more * E_V.sum(axis=1)[None, :]
    out_T = (1 - rho) * A_t + rho * new_A, 1 / ((1 - rho) / B_t + rho * new_rate)
    out_lam = A_l.copy(), B_l.copy()
    for c in range(membership.shape[1]):
        here = membership[:, c].sum()
        if here > 0:
            total = E_V @ membership[:, c]
            out_lam[0][:, c] = (1 - rho) * A_l[:, c] + rho * (a_l[:, c] + sizes[c])
            out_lam[1][:, c] = 1 / ((1 - rho) / B_l[:, c] + rho * (1 / b_l[:, c] + sizes[c] / here * total))
    return out_T, out_lam


def gammas(fit):
    """q(T) and q(λ) as a list of arrays."""
    return [np.asarray(x) for q in (fit.posterior.T, fit.posterior.lam) if q is not None for x in q]


def weights(**changes):
    numbers = {"rho": 1.0, "recent": 1.0, "num_samples": 40.0, "size": 10.0, "counted": np.ones(3), "seen": 3.0}
    numbers |= {"own": 0.0, "beta": 1.0, "tol": -1.0} | changes
    return Weights(**{name: np.asarray(x, float) for name, x in numbers.items()})


def test_steps_are_the_formulas():
    """Two batches, one of them without the last group: priors are not scaled up, N/|B| and N_c/|B_c| are in place."""
    data, priors = problem(1, N=18)
    first, second = np.arange(5), np.flatnonzero(np.asarray(data.membership)[:, 2] == 0)[-4:]
    parts = [part(data, rows) for rows in (first, second)]
    start = starting_point(data, priors)
    ours = [
        cavi.stream(iter(parts[:n]), priors, start=start, num_samples=18, local_steps=5, local_tol=0.0, **PLAIN)
        for n in (1, 2)
    ]
    a = 1 + 18 * parts[0].observed_mean / 4
    T, lam = (
        (np.full_like(start.T, a), (start.T + 1e-12) / a),
        (priors.coefficients.rate.a, start.lam / priors.coefficients.rate.a),
    )
    counted = np.zeros(3)
    for n, (some, fit) in enumerate(zip(parts, ours, strict=True)):
        membership = np.asarray(some.membership)
        counted += membership.sum(axis=0)
        sizes = 18 * counted / (5 if n == 0 else 9)
        T, lam = explicit_step(
            np.asarray(some.X), membership, priors, T, lam, N=18, sizes=sizes, rho=(1 + n) ** -0.51, updates=5
        )
        for got, wanted in zip(gammas(fit), (*T, *lam), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9)
    absent = [np.asarray(x)[:, 2] for fit in ours for x in fit.posterior.lam]
    assert np.array_equal(absent[0], absent[2])  # a group that is not in the batch does not move, to the last bit
    assert np.array_equal(absent[1], absent[3])


def test_a_full_batch_is_a_sweep_in_which_v_was_iterated():
    """T is the T of `sweep` from moments whose V was iterated; with hidden entries and a multi-label sample."""
    data, priors = problem(2, hidden=True)
    groups = np.asarray(data.membership).argmax(axis=1).tolist()
    data = as_data(data.matrix.with_nan(), [{0, 1}, *groups[1:]])
    start = starting_point(data, priors)
    fit = cavi.stream([data], priors, start=start, local_steps=4, local_tol=0.0, **PLAIN)
    ready = Problem(data, priors)
    seen = observe(ready.data)
    q = first_factors(ready, data, priors, start, 15, None, "random", "prior")

    @jax.jit
    def wanted(seen, q):
        local = iterate_V(seen, ready.priors, q, 4, 0.0)
        m = moments(seen, ready.priors, local.factors)
        sums = rate_sums(ready.priors.coefficients, local.factors.V.mean.T, seen.labels.groups, m.log_lam)
        return sweep(seen, ready.priors, m)[0].T, update_lam(ready.priors.coefficients, sums)

    T, lam = wanted(seen, q)
    np.testing.assert_allclose(fit.posterior.T.mean, np.asarray(T.mean).T, rtol=1e-12)
    np.testing.assert_allclose(fit.posterior.lam.mean, lam.mean, rtol=1e-12)


def test_full_batches_raise_the_bound_to_that_of_coordinate_ascent():
    data, priors = problem(3)
    ready = Problem(data, priors)
    seen = observe(ready.data)
    fit = cavi.run(data, priors, key=KEY, max_steps=2000, tol=1e-12)
    start = cavi.start(T=fit.posterior.T.mean * 1.1, lam=fit.posterior.lam.mean)
    q = cavi.stream([data], priors, start=start, **PLAIN).posterior
    now = Globals(Gamma(*(np.asarray(x).T for x in q.T)), q.lam)
    bounds = []
    numbers = weights(num_samples=15.0, size=15.0, counted=np.asarray(data.group_sizes), seen=15.0, tol=1e-10)
    for _ in range(60):
        now, _, outcome = step(seen, ready.priors, now, now, numbers, 200, False)
        bounds.append(float(outcome.bound))
    assert (np.diff(bounds) > -1e-7 * abs(bounds[0])).all()
    assert bounds[-1] == pytest.approx(fit.elbo[-1], rel=1e-5)


@pytest.mark.parametrize("name", ["gamma", "exponential, learned"])
def test_families(name):
    data, _ = problem(4)
    priors = Priors(Gamma(0.6, 5.0), FAMILIES[name])
    fit = cavi.stream(data, priors, key=KEY, rank=3, batch_size=5, passes=2)
    assert (fit.is_finite, fit.num_steps) == (True, 6)
    assert fit.posterior.V.mean.shape == (3, 0)
    assert np.mean(fit.elbo[3:]) > np.mean(fit.elbo[:3])


def test_the_bound_of_a_stream_is_that_of_coordinate_ascent():
    data, priors = problem(5)
    fit = cavi.run(data, priors, key=KEY, max_steps=500, tol=1e-10)
    assert cavi.stream_bound(fit, data, batch_size=5, max_steps=2000, tol=1e-9) == pytest.approx(fit.elbo[-1], rel=1e-6)
    blended = cavi.stream(data, priors, key=KEY, batch_size=5, passes=2)
    whole, parts = (cavi.stream_bound(blended, data, batch_size=n) for n in (15, 5))
    assert whole == pytest.approx(parts, rel=1e-4)  # tolerances of local updates are of the batch


def test_the_scale_step_raises_the_bound():
    data, priors = problem(5)
    q = cavi.stream(data, priors, key=KEY, batch_size=5, **PLAIN).posterior
    ready = Problem(data, priors)
    scaled = rescale(ready.priors, Globals(q.T.transpose(), q.lam))
    bounds = [
        cavi.stream_bound(some, data, priors, batch_size=5, max_steps=2000, tol=1e-9)
        for some in (q, q._replace(T=scaled.T.transpose(), lam=scaled.lam))
    ]
    assert bounds[1] > bounds[0] + 1
    again = rescale(ready.priors, scaled)
    np.testing.assert_allclose(again.T.mean, scaled.T.mean, rtol=1e-10)


def test_resuming_gives_the_same_bits(monkeypatch):
    data, priors = problem(6, N=14)
    options = {"key": KEY, "batch_size": 5, "passes": 3}
    undisturbed = cavi.stream(data, priors, **options)
    saved = []

    def interrupt(fit):
        saved.append(fit)
        raise KeyboardInterrupt

    monkeypatch.setattr("gsnmf.inference.stream.run.CHUNK", 7)
    with pytest.raises(KeyboardInterrupt):
        cavi.stream(data, priors, callback=interrupt, **options)
    resumed = cavi.stream(data, priors, start=saved[0], **options)
    assert (saved[0].num_steps, resumed.num_steps) == (7, 9)
    for got, wanted in zip(jax.tree.leaves(resumed), jax.tree.leaves(undisturbed), strict=True):
        assert np.array_equal(got, wanted)
    assert cavi.stream(data, priors, start=resumed, **options) is resumed  # nothing is left to learn from


def test_a_stream_is_resumed_only_as_it_was_begun():
    """A finished stream is enough: what differs is refused before a batch is read."""
    data, priors = problem(6, N=14)
    X, groups = np.asarray(data.X), list(np.asarray(data.membership).argmax(axis=1))
    how = {"groups": groups, "key": KEY, "batch_size": 5}
    done = cavi.stream(X, priors, **how)
    assert cavi.stream(scipy.sparse.csr_array(X), priors, start=done, **how) is done
    for given, more, said in [
        (X + 1, {}, "expected the X of the stream that is resumed; got another one"),
        (
            X[:, :-1],
            {"groups": groups[:-1]},
            "expected the number of samples of the stream that is resumed, 14; got 13",
        ),
        (X, {"groups": groups[::-1]}, "expected the labels of samples of the stream"),
        (X, {"groups": [f"g{c}" for c in groups]}, "expected the groups of the stream"),
        (X, {"key": jax.random.key(1)}, "expected the key or seed of the stream"),
        (X, {"batch_size": 4}, "expected the batch size of the stream that is resumed, 5; got 4"),
        (X, {"block": 2}, "expected the block of the stream that is resumed, 1; got 2"),
    ]:
        with pytest.raises(ValueError, match=said):
            cavi.stream(given, priors, start=done, **how | more)
    with pytest.raises(ValueError, match="expected the priors of the stream"):
        cavi.stream(X, priors._replace(dictionary=Gamma(7.0, 1.0)), start=done, **how)
    hot = np.eye(3)[groups]
    of_matrix = cavi.stream(X, priors, **how | {"groups": hot, "group_names": data.names.group.tolist()})
    for same in (hot.astype(int), hot.astype(bool)):
        assert cavi.stream(X, priors, start=of_matrix, **how | {"groups": same}) is of_matrix
    with pytest.raises(ValueError, match="expected the labels of samples of the stream"):
        cavi.stream(X, priors, start=of_matrix, **how | {"groups": hot[:, [1, 2, 0]]})
    assert cavi.stream(as_data(X, groups), priors, start=done, key=KEY, batch_size=5) is done
    with pytest.raises(ValueError, match="expected Priors"):
        cavi.stream(X, None, **how)
    older = done._replace(stream=done.stream._replace(mark=None))
    assert cavi.stream(X, priors, start=older, **how | {"key": jax.random.key(1)}) is older


def test_every_kind_of_batches_gives_the_same_fit(tmp_path):
    """Data, an array, a memory map, a sparse matrix, a function, a list and an iterator, in the same order."""
    data, priors = problem(7, N=14)
    X, groups = np.asarray(data.X), np.asarray(data.membership).argmax(axis=1)
    file = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", shape=X.shape, fortran_order=True)
    file[:] = X
    options = {"key": KEY, "start": starting_point(data, priors)}
    wanted = cavi.stream(data, priors, batch_size=5, **options)
    rows = list(Order(KEY, 5, 1).rows(14, 0))
    assert [len(some) for some in rows] == [5, 5, 4]
    pairs = [(X[:, some], groups[some]) for some in rows]
    drawn = {"groups": groups, "batch_size": 5}
    names = {"group_names": [0, 1, 2]}
    cases = [(X, drawn), (file, drawn), (scipy.sparse.coo_array(X), drawn), (X, drawn | {"groups": list(groups)})]
    cases += [
        ([part(data, some) for some in rows], {}),
        (lambda: iter(pairs), names),
        (iter(pairs), names),
        (list(map(list, pairs)), names),
    ]
    for batches, more in cases:
        sized = {} if "batch_size" in more else {"num_samples": 14}
        fit = cavi.stream(batches, priors, **options, **more, **sized)
        rtol = 1e-9 if sized == {} else 0.2  # these do not know the sizes of groups before they have seen all batches
        np.testing.assert_allclose(fit.posterior.T.mean, wanted.posterior.T.mean, rtol=rtol)


def test_orders_of_samples():
    rows = list(Order(KEY, 6, 3).rows(21, 1))
    assert sorted(np.concatenate(rows).tolist()) == list(range(21))
    assert all((np.diff(some.reshape(-1, 3), axis=1) == 1).all() for some in rows)
    other = list(Order(KEY, 6, 3).rows(21, 2))
    assert [x.tolist() for x in rows] != [x.tolist() for x in other]
    assert next(Order(None, 8, 1).rows(20, None)).tolist() == list(range(8))


@pytest.mark.parametrize(("size", "last"), [(16, 10), (64, 26), (70, 20), (100, 90)])
def test_batches_have_the_size_asked_for_whatever_the_block(size, last):
    rows = list(Order(KEY, size, 64).rows(90, 0))
    assert [len(some) for some in rows] == [size] * (90 // size) + [last]
    assert sorted(np.concatenate(rows).tolist()) == list(range(90))
    assert sum((np.diff(some) != 1).sum() for some in rows[:1]) <= size // 64 + 1  # it is read from few places


def test_matrices_of_groups_are_read_as_by_as_data():
    """Rows of one 1 are the labels with the same sizes of groups; lists of a batch are never mistaken for rows."""
    labels = np.array(["a", "b", "c"] * 2)
    matrix = (labels[:, None] == np.array(["a", "b", "c"])).astype(int)
    _, levels, sizes = read_levels(labels, None)
    for rows in (matrix, matrix.tolist(), pd.DataFrame(matrix, columns=levels)):
        found, names, counted = read_levels(rows, None)
        np.testing.assert_array_equal(found, matrix)
        assert names == as_data(np.ones((1, 6)), rows).names.group.tolist()
        np.testing.assert_array_equal(counted, sizes)
    for rows in (np.vstack([matrix, [1, 1, 0]]), np.vstack([matrix, [0, 0, 0]])):
        assert read_levels(rows, None)[2] is None
    several, names, _ = read_levels([[0, 1], [0, 1], [1]], None)
    assert as_data(np.ones((1, 2)), several[:2], group_names=names).membership.tolist() == [[0.5, 0.5]] * 2
    with pytest.raises(ValueError, match="expected a label, or a set of labels, per sample"):
        read_levels([[[0], [1]], [0]], None)


@pytest.mark.parametrize(("samples", "size"), [(100, 64), (3200, 100), (10**6, 512)])
def test_default_sizes_of_batches(samples, size):
    X = np.broadcast_to(1.0, (2, samples))
    source = open_batches(X, None, KEY, Labelled(None, None), None)
    assert next(source.read(0))().num_samples == size


def test_step_sizes_depend_on_the_number_of_batches_alone():
    """Not on the size of the first one, as in scikit-learn's MiniBatchNMF.partial_fit."""
    how = StreamSchedule(1, 3.0, 0.7, 20, 1e-3, True, True, cavi.labelling(annealing=4))
    assert [how.rho(n) for n in (0, 7)] == [3**-0.7, 10**-0.7]
    assert [how.beta(n) for n in (0, 1, 9)] == [0.0, 0.25, 1.0]
    kept = np.ones(1)
    for n in range(6):
        kept = np.append(kept * (1 - how.recent(n)), how.recent(n)) if n else np.ones(1)
    np.testing.assert_allclose(kept.sum(), 1)
    assert (np.diff(kept) > 0).all()  # late batches count more


def test_numbers_of_samples_that_are_not_known_are_counted():
    """N is the number of samples so far; then it is that of the first pass."""
    data, priors = problem(8)
    parts = [part(data, rows) for rows in np.split(np.arange(15), 3)]
    start, more = starting_point(data, priors), {"local_steps": 3, **PLAIN}
    counted = cavi.stream(parts, priors, start=start, passes=2, **more)
    sizes, fit = [5, 10, 15, 15, 15, 15], start
    for n, N in enumerate(sizes):
        fit = cavi.stream(iter([parts[n % 3]]), priors, start=fit, num_samples=N, **more)
    np.testing.assert_allclose(counted.posterior.T.mean, fit.posterior.T.mean, rtol=1e-12)
    assert counted.stream.samples == fit.stream.samples == 30
    np.testing.assert_allclose(counted.stream.groups, 2 * np.asarray(data.group_sizes))


@pytest.mark.parametrize("form", ["structured", "mean_field"])
def test_unlabelled_samples_learn_with_the_others(form):
    """Labels that come with a prior probability of 1 are known labels; others are found by q(z)."""
    rng = np.random.default_rng(0)
    groups = np.arange(60) % 2
    X = rng.poisson(np.array([[20.0, 1.0], [1.0, 20.0], [5.0, 5.0]])[:, groups])
    priors = paper_priors(2)
    some = [None if n % 3 == 0 else int(c) for n, c in enumerate(groups)]
    labels = cavi.labelling(form, annealing=2)
    fit = cavi.stream(X, priors, groups=some, key=KEY, batch_size=20, passes=3, init="groups", labels=labels)
    np.testing.assert_allclose(fit.stream.groups, [90, 90], rtol=0.1)
    known = cavi.stream(X, priors, groups=groups, key=KEY, batch_size=20, passes=3, init="groups")
    ours, wanted = (cavi.stream_bound(f, X, groups=groups, batch_size=20) for f in (fit, known))
    assert ours == pytest.approx(wanted, rel=0.02 if form == "structured" else 0.1)  # one q(v) for both groups: worse


def test_a_batch_with_few_numbers_of_unlabelled_samples():
    data = as_data(np.ones((2, 20)), [None] * 3 + ["a", "b"] * 8 + [{"a", "b"}])
    more = rounded(data)
    assert (data.num_unlabelled, more.num_unlabelled) == (3, 5)
    np.testing.assert_array_equal(np.asarray(more.labels.weights)[3:], [[1, 0], [0, 1]])
    np.testing.assert_array_equal(more.membership, data.membership)
    assert rounded(part(data, np.arange(5, 12))).num_unlabelled == 0
    few = part(data, np.array([2, 4, 19]))
    assert few.num_unlabelled == 1
    assert np.asarray(few.several).tolist() == [False, False, True]


def test_absent_groups_by_q_of_z_move_less():
    old, new = Gamma(np.ones((2, 3)), np.ones((2, 3))), Gamma(np.full((2, 3), 5.0), np.full((2, 3), 0.5))
    rho = np.array([[0.0, 0.5, 1.0]])
    mixed = blend(old, new, rho)
    np.testing.assert_allclose(mixed.a[0], [1, 3, 5])
    np.testing.assert_allclose(1 / mixed.b[0], [1, 1.5, 2])


def test_errors():
    data, priors = problem(0)
    X, groups = np.asarray(data.X), np.asarray(data.membership).argmax(axis=1)
    options = {"key": KEY}
    cases = [
        ((X[0], priors), {}, "2 dimensions"),
        ((X[0], priors), {"batch_size": 3}, r"2 dimensions, features × samples; got 1 \(shape \(15,\)\)"),
        ((3, priors), {}, "matrix features"),
        (("text", priors), {}, "got str"),
        (([], priors), {}, "at least one batch"),
        ((X, priors), {"groups": groups[:4]}, "15 samples; got 4"),
        ((X.T, priors), {"groups": groups}, "transpose X"),
        ((iter([data]), priors), {"passes": 2}, "used up by one pass"),
        (([(X, groups)], priors), {}, "expected group_names"),
        (([data, as_data(X[:5], groups)], priors), {}, "12 features and the groups"),
        (([data], priors), {"batch_size": 3}, "batch_size only with a matrix"),
        ((data, priors), {"groups": groups}, "no groups with Data"),
        ((data, priors), {"num_samples": 3}, "the 15 of the matrix"),
        ((data, priors), {"decay": 0.5}, "above 0.5"),
        ((data, priors), {"delay": 0.5}, "number ≥ 1"),
        ((data, priors), {"local_tol": -1}, "number ≥ 0"),
        ((data, priors), {"passes": 0}, "passes"),
        ((data, priors), {"average": 1}, "average to be True or False"),
        ((data, priors), {"labels": "structured"}, "made by cavi.labelling"),
        ((data, priors), {"callback": 3}, "callback"),
        ((data, priors), {"key": None}, "key"),
        ((data, priors), {"init": "zeros"}, "init"),
        ((data, priors), {"start": cavi.start(V=np.ones((4, 15)))}, "without V"),
        ((data, Priors(Gamma(1.0, 1.0), Gamma(np.ones((4, 15)), 1.0))), {}, "same for all samples"),
        ((data, Priors(Gamma(1.0, 1.0), Gamma(np.ones((4, 15)), 1.0))), {"batch_size": 5}, "same for all samples"),
        ((data, Priors(Gamma(1.0, 1.0), FAMILIES["from outside"])), {"rank": 2}, "same for all samples"),
    ]
    for arguments, more, said in cases:
        with pytest.raises(ValueError, match=said):
            cavi.stream(*arguments, **(options | more))
    with pytest.raises(ValueError, match="at least one batch"):
        cavi.stream_bound(cavi.run(data, priors, key=KEY, max_steps=1, tol=None), [])
