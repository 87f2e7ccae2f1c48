"""Properties of saving and of the estimator, for random values and names (hypothesis)."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import scipy.sparse
from estimators import nearest_neighbour
from hypothesis import given, settings
from hypothesis import strategies as st

from gsnmf.inference import Fit, Posterior
from gsnmf.model import Exponential, Gamma, GroupSparse, HeldOut, Names, Priors, Relevance, as_data
from gsnmf.model.compressed import Places
from gsnmf.saving import load_fit, save_fit

F, N, K, C = 3, 5, 2, 2
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=8)
MASKS = hnp.arrays(bool, (F, N)).filter(np.any)
LABELS = st.sampled_from(["a", "b", None, ["a", "b"]])


def arrays(shape, kind):
    """Positive numbers of a precision, down to the smallest that it has."""
    width = np.dtype(kind).itemsize * 8
    return hnp.arrays(kind, shape, elements=st.floats(0, None, exclude_min=True, allow_infinity=False, width=width))


@st.composite
def saved(draw):
    """A fit, its priors, and data."""
    kind = draw(st.sampled_from(["f4", "f8"]))

    def gamma(*shape):
        return Gamma(draw(arrays(shape, kind)), draw(arrays(shape, kind)))

    family = draw(st.sampled_from([GroupSparse, Relevance, Exponential]))
    rows = {GroupSparse: (K, C), Relevance: (K, 1), Exponential: (1, 1)}[family]
    priors = Priors(gamma(F, K), family(gamma(*rows)))
    posterior = Posterior(gamma(F, K), gamma(K, N), gamma(*rows))
    X = draw(hnp.arrays(float, (F, N), elements=st.one_of(st.integers(0, 300).map(float), st.floats(0, 1e12))))
    labels = ["a", "b", *draw(st.lists(LABELS, min_size=N - 2, max_size=N - 2))]
    numbers = [np.linspace(0, 1, n).astype(draw(st.sampled_from(["f4", "f8", "i2"]))) for n in (F, N)]
    texts = [draw(st.lists(TEXT, min_size=n, max_size=n)) for n in (F, N)]
    names = draw(st.sampled_from([texts, numbers]))
    form = draw(st.sampled_from([np.asarray, scipy.sparse.csr_array, scipy.sparse.csc_array]))
    data = as_data(form(X), labels, mask=draw(MASKS), feature_names=names[0], sample_names=names[1])
    elbo = draw(hnp.arrays(float, 4, elements=st.floats(allow_nan=False)))
    return Fit(posterior, elbo, 4, draw(st.booleans()), draw(TEXT), priors=priors), data


def leaves(tree, path=""):
    """All arrays in nested tuples, by their place; sparse matrices by their parts."""
    if tree is None or isinstance(tree, (str, bool, int, float)):
        return {path: tree}
    others = {
        Names: ("feature", "sample", "group"),
        HeldOut: ("feature", "sample", "value"),
        Places: ("feature", "sample"),
    }
    fields = others.get(type(tree), getattr(tree, "_fields", None))
    if fields:
        return {k: v for f in fields for k, v in leaves(getattr(tree, f), f"{path}.{f}").items()}
    if hasattr(tree, "indptr"):
        return {f"{path}.{part}": np.asarray(getattr(tree, part)) for part in ("indptr", "indices", "values")}
    return {path: np.asarray(tree)}


@settings(max_examples=20)
@given(saved(), st.booleans())
def test_what_is_saved_is_loaded_bit_for_bit(tmp_path_factory, example, with_data):
    fit, data = example
    path = tmp_path_factory.mktemp("saved") / "fit"
    save_fit(path, fit, None, data if with_data else data.names, seconds=1.5)
    loaded = load_fit(path)
    pairs = [(fit, loaded.fit), (fit.priors, loaded.priors), (data.names, loaded.names)]
    for ours, theirs in [*pairs, (data, loaded.data)] if with_data else pairs:
        ours, theirs = leaves(ours), leaves(theirs)
        assert ours.keys() == theirs.keys()
        for place, value in ours.items():
            if not isinstance(value, np.ndarray):
                assert value == theirs[place], place
                continue
            same = place in (".mask", ".labels.unlabelled", ".labels.several")  # 0 and 1, in any type
            assert same or value.dtype == theirs[place].dtype, place
            np.testing.assert_array_equal(theirs[place], value, err_msg=place)


@settings(max_examples=4)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
@given(
    hnp.arrays(float, (12, 4), elements=st.integers(0, 20).map(float)),
    st.sampled_from([("a", "b"), (0, 7), (-1.0, 2.0), (False, True)]),
)
def test_names_of_classes_do_not_matter_to_the_estimator(noise, names):
    """Only their order; probabilities sum to 1, features are not negative, and the best class is predicted."""
    y = np.arange(12) % 2
    X = noise + 30 * np.eye(4)[y * 2]
    plain, named = (nearest_neighbour(random_state=0).fit(X, labels) for labels in (y, np.array(names)[y]))
    proba = named.predict_proba(X)
    np.testing.assert_array_equal(proba, plain.predict_proba(X))
    np.testing.assert_array_equal(named.predict(X), named.classes_[plain.predict(X)])
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-6)
    features = named.transform(X)
    assert (features >= 0).all()
    assert features.shape == (12, named.n_components_)
