"""Sets of features in the estimator and in `gsnmf.anndata.factorize`: the priors are those of `seeded`, by name."""

from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from estimators import nearest_neighbour
from sklearn.base import clone

from gsnmf.inference import cavi
from gsnmf.model import as_data, default_priors, seeded, seeded_priors
from gsnmf.model.structures import common_and_individual

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
GENES = ["CD3D", "CD3E", "MS4A1", "LYZ", "MKI67", "ACTB"]
SETS = {"T": ["CD3D", "CD3E"], "cycle": ["MKI67"]}
X = pd.DataFrame(np.random.default_rng(0).poisson(5.0, (18, 6)).astype(float), columns=GENES)
Y = np.array(["B", "NK", "T"] * 6)
QUICK = {"per_class": 2, "common": 1, "max_iter": 2, "random_state": 0}
EXPECTED = seeded(SETS, GENES, structure=common_and_individual(1, 2, 3), group_names=["B", "NK", "T"])


class StoppedError(Exception):
    """Raised in place of a fit, with its priors: nothing is compiled."""


@pytest.fixture
def stated(monkeypatch):
    """A function that returns the priors of the first fit that a call would begin."""

    def stop(_, priors, **options):
        raise StoppedError(priors)

    monkeypatch.setattr(cavi, "run", stop)
    monkeypatch.setattr(cavi, "stream", stop)

    def priors_of(call, *given, **options):
        with pytest.raises(StoppedError) as caught:
            call(*given, **options)
        return caught.value.args[0]

    return priors_of


def test_sets_seed_components_of_their_class_or_common_ones():
    model = nearest_neighbour(**QUICK, seeds=SETS).fit(X, Y)
    np.testing.assert_array_equal(model.priors_.dictionary.b, EXPECTED.b)
    plain = nearest_neighbour(**QUICK).fit(X, Y)
    np.testing.assert_array_equal(model.priors_.coefficients.rate.a, plain.priors_.coefficients.rate.a)
    assert clone(model).get_params()["seeds"] == SETS


def test_strength_and_columns_by_number(stated):
    model = nearest_neighbour(n_components=3, max_iter=2, seeds={"any": [4]}, seed_strength=7.0, random_state=0)
    prior = stated(model.fit, X.to_numpy()).dictionary
    np.testing.assert_array_equal(prior.b, seeded({"any": [4]}, range(6), rank=3, strength=7.0).b)


def test_with_unlabelled_samples_several_labels_and_streams(stated):
    model = nearest_neighbour(**QUICK, seeds=SETS)
    expected = seeded(SETS, GENES, structure=common_and_individual(1, 2, 2), group_names=["B", "T"])
    some = np.array(["B", None, "T"] * 6, object)
    np.testing.assert_array_equal(stated(model.fit, X, some).dictionary.b, expected.b)
    several = [{"B", "T"} if n % 2 else {"NK"} for n in range(18)]
    np.testing.assert_array_equal(stated(model.fit, X, several).dictionary.b, EXPECTED.b)
    first = stated(clone(model).partial_fit, X[:9], Y[:9], classes=["B", "NK", "T"])
    np.testing.assert_array_equal(first.dictionary.b, EXPECTED.b)


@pytest.mark.slow
def test_fits_to_unlabelled_samples_several_labels_and_streams_are_seeded():
    several = [{"B", "T"} if n % 2 else {"NK"} for n in range(18)]
    for y in (np.array(["B", None, "T"] * 6, object), several):
        model = nearest_neighbour(**QUICK, seeds=SETS).fit(X, y)
        assert np.isfinite(model.elbo_).all()
    stream = nearest_neighbour(**QUICK, seeds=SETS)
    for part in (slice(0, 9), slice(9, 18)):
        stream.partial_fit(X[part], Y[part], classes=["B", "NK", "T"])
    np.testing.assert_array_equal(stream.priors_.dictionary.b, EXPECTED.b)


def test_dictionaries_that_leave_samples_out_are_seeded_by_name_too():
    """A class may be missing from a part: its number must not be taken for another's name."""
    from gsnmf.classification.restarts import Recipe, data_with_index
    from gsnmf.sets import named_sets

    with pytest.warns(UserWarning, match="CD9"):  # and never again: warnings are errors here
        sets = named_sets(SETS | {"T": ["CD9", *SETS["T"]]}, GENES, ["B", "NK", "T"], 1000.0)
    given = nearest_neighbour(**QUICK).get_params() | {"seeds": sets}
    recipe = Recipe(*(given[name] for name in Recipe._fields))
    data = data_with_index(X.to_numpy()[Y != "NK"].T, np.array([0, 2] * 6))
    expected = seeded(SETS, GENES, structure=common_and_individual(1, 2, 2), group_names=["B", "T"])
    np.testing.assert_array_equal(recipe.make_priors(data).dictionary.b, expected.b)


def test_names_that_do_not_occur_are_listed_once(stated, recwarn):
    stated(nearest_neighbour(**QUICK, seeds={"T": ["CD3D", "CD9"], "cycle": ["MKI67", "TOP2A"]}).fit, X, Y)
    [said] = [str(one.message) for one in recwarn if "names in sets" in str(one.message)]
    assert said == "2 names in sets are not features of X: CD9 (T), TOP2A (cycle)."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": {"T": ["CD4"]}}, "expected the set 'T' to name features of X, such as 'CD3D', 'CD3E', 'MS4A1'; got"),
        ({"seeds": ["CD3D"]}, r"expected sets of features by name, as in .*; got \['CD3D'\]"),
        ({"seeds": SETS, "seed_strength": 0}, "expected seed_strength to be a positive number; got 0"),
        ({"seeds": {"x": ["LYZ"], "y": ["LYZ"]}}, "that serve all groups, .* got 0 for the set 'y' of 2"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbour(**QUICK, **options).fit(X, Y)


def cells(batch=None):
    ad = pytest.importorskip("anndata")
    if pd.__version__ >= "3" and version("anndata") < "0.13":
        pytest.skip("anndata below 0.13 needs pandas below 3")
    obs = pd.DataFrame({"type": pd.Categorical(Y)}, index=[f"c{n}" for n in range(18)])
    if batch is not None:
        obs["batch"] = pd.Categorical(batch)
    return ad.AnnData(scipy.sparse.csr_matrix(X.to_numpy()), obs=obs, var=pd.DataFrame(index=GENES))


def test_gene_sets_of_an_anndata_survive_a_file_and_project_a_subset(tmp_path):
    import anndata

    from gsnmf.anndata import factorize, project

    adata = cells()
    sets = {"T": ["CD3D", "CD3E"], "cell cycle G2/M": ["MKI67"]}
    fit = factorize(adata, "type", per_group=2, common=1, seeds=sets, max_steps=2)
    np.testing.assert_array_equal(fit.priors.dictionary.b, EXPECTED.b)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    again, new = anndata.read_h5ad(tmp_path / "cells.h5ad")[:, GENES[:4]], cells()
    project(new, again)
    assert np.isfinite(new.obsm["X_gsnmf"]).all()


def test_gene_sets_of_classes_and_batches(stated):
    from gsnmf.anndata import factorize

    priors = stated(
        factorize,
        cells(["p", "q", "q"] * 3 + ["q", "p", "p"] * 3),
        "type",
        batch="batch",
        per_group=1,
        common=1,
        seeds=SETS | {"q": ["LYZ"]},
    )
    raised = np.asarray(priors.dictionary.b) > 20.0  # common, B, NK, T, p, q
    assert np.argwhere(raised).tolist() == [[0, 3], [1, 3], [3, 5], [4, 0]]
    unions = {"T": [False, True]}
    data = as_data(X.to_numpy().T[:, :6], ["B", "T"] * 3, feature_names=GENES)
    priors = default_priors(data, per_group=1)
    same = seeded_priors(priors, data, {"T": ["LYZ"]}, unions=unions)
    np.testing.assert_array_equal(same.dictionary.b, seeded_priors(priors, data, {"T": ["LYZ"]}).dictionary.b)
