"""AnnData in and out: what is written, that it survives subsets and files, projections, top genes, what is refused."""

import json
from importlib.metadata import version

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from gsnmf import GroupSparseNMF
from gsnmf.anndata import data_of, factorize, project, top_features
from gsnmf.inference import cavi, fold_in, linear_response
from gsnmf.model import as_data
from gsnmf.reading.annotated import read_obs, read_var

ad = pytest.importorskip("anndata")
if pd.__version__ >= "3" and version("anndata") < "0.13":
    pytest.skip("anndata below 0.13 needs pandas below 3: with others it writes no names", allow_module_level=True)
F, N = 12, 40
KIND = np.arange(N) % 2
COUNTS = np.random.default_rng(0).poisson(np.where(np.arange(F)[None, :] % 2 == KIND[:, None], 9.0, 0.4))
HIGH = np.arange(F) < 10
RUN = {"per_group": 1, "max_steps": 60}
SHORT = {"per_group": 1, "max_steps": 2}


def cells(X=COUNTS, **layers):
    """40 cells of two types, 12 genes, 10 of which vary."""
    kinds = pd.Categorical(np.where(KIND, "T cell", "B cell"))
    obs = pd.DataFrame({"cell_type": kinds}, index=[f"c{n}" for n in range(N)])
    var = pd.DataFrame({"highly_variable": HIGH}, index=[f"g{n}" for n in range(F)])
    return ad.AnnData(scipy.sparse.csr_matrix(X, dtype=np.float32), obs=obs, var=var, layers=layers or None)


@pytest.fixture(scope="module")
def fitted():
    adata = cells()
    with jax.enable_x64(True):
        return adata, factorize(adata, mask_var="highly_variable", **RUN)


def test_slots(fitted):
    adata, fit = fitted
    np.testing.assert_array_equal(adata.obsm["X_gsnmf"], np.asarray(fit.posterior.V.mean).T)
    np.testing.assert_array_equal(adata.varm["gsnmf"][HIGH], fit.posterior.T.mean)
    assert np.isnan(adata.varm["gsnmf"][~HIGH]).all()
    stored = adata.uns["gsnmf"]
    assert stored["components"].tolist() == stored["groups"].tolist() == ["B cell", "T cell"]
    assert stored["in_use"].all()
    assert stored["bound"] == fit.elbo[-1]
    assert stored["params"]["mask_var"] == "highly_variable"
    home = adata.obsm["X_gsnmf"].argmax(axis=1)
    np.testing.assert_array_equal(home, KIND)  # cells use the component of their own type


def test_the_fit_is_the_estimator_s(fitted):
    _, fit = fitted
    model = GroupSparseNMF(per_class=1, max_iter=60, n_restarts=1, predict_by="nearest", random_state=0)
    model.fit(scipy.sparse.csr_array(COUNTS[:, HIGH].astype(float)), np.where(KIND, "T cell", "B cell"))
    np.testing.assert_allclose(fit.posterior.T.mean, model.posterior_.T.mean, rtol=1e-6)


def test_the_data_of_a_fit_come_back(fitted):
    adata, fit = fitted
    data = data_of(adata)
    assert data.names.feature.tolist() == adata.var_names[HIGH].tolist()
    assert data.names.group.tolist() == ["B cell", "T cell"]
    go_on = {"priors": fit.priors, "start": fit, "max_steps": 1, "tol": None}
    assert data.X.nnz == np.count_nonzero(COUNTS[:, HIGH])
    np.testing.assert_allclose(cavi.run(data, **go_on).elbo[-1], fit.elbo[-1], rtol=1e-3)  # one sweep more, of 60
    with pytest.raises(ValueError, match="got none by the key 'other'"):
        data_of(adata, "other")


def test_subsets_and_files_keep_the_result(fitted, tmp_path):
    adata, _ = fitted
    adata.write_h5ad(tmp_path / "cells.h5ad")
    read = ad.read_h5ad(tmp_path / "cells.h5ad")
    pd.testing.assert_frame_equal(top_features(read, 3), top_features(adata, 3))
    part = read[5:9, ["g3", "g11", "g0"]].copy()
    np.testing.assert_array_equal(part.obsm["X_gsnmf"], adata.obsm["X_gsnmf"][5:9])
    np.testing.assert_array_equal(part.varm["gsnmf"], adata.varm["gsnmf"][[3, 11, 0]])
    part.write_h5ad(tmp_path / "part.h5ad")
    assert set(top_features(ad.read_h5ad(tmp_path / "part.h5ad"), 5)["feature"]) == {"g0", "g3"}


def test_projection_is_folding_in_with_genes_matched_by_name(fitted, tmp_path):
    adata, fit = fitted
    adata.write_h5ad(tmp_path / "cells.h5ad")
    new = cells()[:7, ::-1].copy()
    project(new, ad.read_h5ad(tmp_path / "cells.h5ad"))
    folded = fold_in(fit, scipy.sparse.csr_array(COUNTS[:7, HIGH].T.astype(np.float32)))
    np.testing.assert_allclose(new.obsm["X_gsnmf"], np.asarray(folded.mean()).T, rtol=1e-6)
    assert new.obs["gsnmf_group"].tolist() == new.obs["cell_type"].tolist()
    fewer = cells()[:, ["g1", "g2", "g4"]].copy()
    project(fewer, adata, key_added="other")
    np.testing.assert_array_equal(fewer.obsm["X_other"].argmax(axis=1), KIND)
    stranger = cells()
    stranger.var_names = [f"h{n}" for n in range(F)]
    with pytest.raises(ValueError, match=r"expected genes of the dictionary, such as g0, g1, g2; got h0, h1, h2, …"):
        project(stranger, adata)


def test_top_features_with_intervals(fitted):
    adata, _ = fitted
    table = top_features(adata, 2)
    assert table.groupby("groups")["feature"].agg(set).map(lambda some: {int(g[1:]) % 2 for g in some}).to_dict() == {
        "B cell": {0},
        "T cell": {1},
    }
    assert ((table["lower"] < table["probability"]) & (table["probability"] < table["upper"])).all()
    assert set(table["width"]) == {"mean field"}


def test_top_features_say_which_genes_came(fitted):
    adata, fit = fitted
    with pytest.raises(ValueError, match=rf"in varm\['gsnmf'\]; got {(~HIGH).sum()} genes outside it"):
        top_features(adata[:, ~HIGH].copy())
    response = linear_response(fit, data_of(adata))
    with pytest.raises(ValueError, match=rf"of these 2 genes and 2 components; got one of {HIGH.sum()} genes and 2"):
        top_features(adata[:, ["g0", "g3"]].copy(), response=response)


@pytest.mark.slow
def test_widths_by_linear_response(fitted):
    adata, fit = fitted
    data = as_data(adata[:, HIGH].copy(), "cell_type")
    response = linear_response(cavi.refine(fit, data, max_steps=500, tol=1e-12), data)
    better = top_features(adata, 2, response=response)
    assert set(better["width"]) == {"linear response"}
    # The same quantity by its own formula, the delta method; they differ as the fit was refined in between.
    own = response.mean_field_sd(lambda q: q.T.mean[0, 0] / q.T.mean[:, 0].sum())
    first = top_features(adata, F).query("component == 0 and feature == 'g0'")["sd"].item()
    assert first == pytest.approx(float(own), rel=1e-2)


def test_backed_counts_are_read_in_chunks(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("gsnmf.reading.annotated.CHUNK", 7)
    cells().write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    fit = factorize(backed, mask_var="highly_variable", **RUN)
    np.testing.assert_array_equal(fit.posterior.T.mean, fitted[1].posterior.T.mean)
    assert "X_gsnmf" in backed.obsm


def test_layers_and_log_values(fitted):
    adata = cells(np.log1p(COUNTS), counts=scipy.sparse.csr_matrix(COUNTS))
    fit = factorize(adata, layer="counts", mask_var=HIGH, **RUN)
    np.testing.assert_allclose(fit.posterior.T.mean, fitted[1].posterior.T.mean, rtol=1e-6)
    with pytest.warns(UserWarning, match=r"as after log1p: look in layers\['counts'\], or undo log1p by"):
        as_data(adata)
    with pytest.raises(ValueError, match=r"expected counts; got negative values, as after scaling: look in layers"):
        factorize(cells(COUNTS - 1.0, counts=COUNTS), **RUN)


@pytest.mark.slow
def test_unlabelled_cells(tmp_path):
    adata = cells()
    adata.obs["cell_type"] = adata.obs["cell_type"].cat.add_categories("Unknown")
    adata.obs.iloc[::4, 0] = "Unknown"
    factorize(adata, unlabelled="Unknown", **RUN)
    assert adata.obs["gsnmf_group"].tolist() == np.where(KIND, "T cell", "B cell").tolist()
    adata.write_h5ad(tmp_path / "cells.h5ad")


def test_batches_have_components_of_their_own(tmp_path):
    plate = np.arange(N) // 20
    ambient = np.where(np.arange(F)[None, :] // 6 == plate[:, None], 6.0, 0.0)
    adata = cells(COUNTS + np.random.default_rng(1).poisson(ambient))
    adata.obs["plate"] = [f"plate {n}" for n in plate]
    factorize(adata, batch="plate", **RUN)
    assert adata.uns["gsnmf"]["components"].tolist() == ["B cell", "T cell", "plate 0", "plate 1"]
    V = adata.obsm["X_gsnmf"]
    assert [V[plate == n, 2 + n].mean() > 10 * V[plate != n, 2 + n].mean() for n in (0, 1)] == [True, True]
    adata.write_h5ad(tmp_path / "cells.h5ad")
    new = cells()[:7].copy()
    project(new, ad.read_h5ad(tmp_path / "cells.h5ad"))
    assert new.obs["gsnmf_group"].tolist() == new.obs["cell_type"].tolist()


def test_groups_without_a_component_are_said():
    with pytest.warns(UserWarning, match=r"1 component for|small=") as caught:
        factorize(cells(), rank=1, max_steps=2, tol=None, large=1e-4)
    plain = [warning for warning in caught if warning.category is UserWarning]
    assert [str(warning.message).partition(":")[0] for warning in plain] == [
        "1 component for 2 groups",
        "small=0.001 (the default) is above large=0.0001",
    ]
    assert {warning.filename for warning in plain} == {__file__}
    with pytest.raises(ValueError, match="expected rank to be a whole number ≥ 1; got '1'"):
        factorize(cells(), rank="1")


def test_groups_by_index(monkeypatch):
    """Memberships that are too large to be dense are written as the dense ones are, with and without batches."""
    plates = [f"plate {n % 3}" for n in range(N)]
    dense, indexed = (cells() for _ in range(2))
    for adata, entries in ((dense, N * 6), (indexed, 0)):
        monkeypatch.setattr("gsnmf.model.indexed.MOST_ENTRIES", entries)
        adata.obs["plate"] = plates
        for key, batch in (("alone", None), ("both", "plate")):
            factorize(adata, batch=batch, key_added=key, **SHORT)
    for key in ("alone", "both"):
        assert indexed.obs[f"{key}_group"].tolist() == indexed.obs["cell_type"].tolist()
        assert indexed.obs[f"{key}_group"].tolist() == dense.obs[f"{key}_group"].tolist()


def test_without_groups():
    adata = cells()
    factorize(adata, None, rank=2, max_steps=60)
    assert set(top_features(adata, 1)["groups"]) == {"all"}
    new = cells()[:7].copy()
    project(new, adata)
    assert new.obsm["X_gsnmf"].shape == (7, 2)
    assert "gsnmf_group" not in new.obs


def test_seeds_may_be_iterators_and_are_stored():
    adata, other = cells(), cells()
    fit = factorize(adata, seeds={"T cell": iter(["g1", "g3"])}, **RUN)
    factorize(other, seeds={"T cell": ["g1", "g3"]}, **RUN)
    assert json.loads(adata.uns["gsnmf"]["params"]["seeds"]) == {"T cell": ["g1", "g3"]}
    np.testing.assert_array_equal(adata.varm["gsnmf"], other.varm["gsnmf"])
    assert np.shape(fit.priors.dictionary.b) == (F, 2)
    assert adata.uns["gsnmf"]["prior"].keys() == {"coefficients_shape", "coefficients_scale"}  # nothing of genes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": "type"}, "expected groups to be a column of obs; got 'type', and obs has cell_type"),
        ({"layer": "raw"}, r"expected layer to be 'X' or the name of a layer \(none\); got 'raw'"),
        ({"mask_var": "hv"}, "expected mask_var to be a column of var; got 'hv', and var has highly_variable"),
        ({"mask_var": [True]}, r"expected mask_var to be 12 booleans, some of them true; got bool of shape \(1,\)"),
        (
            {"mask_var": np.ones(F)},
            r"expected mask_var to be 12 booleans, some of them true; got float64 of shape .12,.$",
        ),
        ({"key_added": "a/b"}, "expected key_added to be a name without '/', which h5ad files do not keep; got 'a/b'"),
        ({"unlabelled": "?"}, r"expected unlabelled to be a label in obs\['cell_type'\] \('.*'\); got '\?'"),
        ({"groups": None, "unlabelled": "?"}, r"expected groups with unlabelled='\?'; got groups=None"),
        ({"batch": "plate"}, "expected batch to be a column of obs; got 'plate', and obs has cell_type"),
        (
            {"batch": "plate", "rank": 3},
            "expected groups and no rank with batch='plate'; got groups='cell_type', rank=3",
        ),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        factorize(cells(), **arguments)


def test_what_a_projection_refuses(fitted):
    adata, _ = fitted
    with pytest.raises(ValueError, match="expected one cell or more in adata_new; got none"):
        project(cells()[:0].copy(), adata)
    twice = adata.copy()
    twice.var_names = ["g0", "g0", *adata.var_names[2:]]
    for new, old, where in ((twice, adata, "adata_new"), (cells(), twice, "the dictionary of adata")):
        with pytest.raises(ValueError, match=f"expected distinct names of genes in {where}; got g0 twice"):
            project(new, old)
    with pytest.raises(ValueError, match="expected key_added to be a name without '/'"):
        project(cells(), adata, key_added="a/b")


def test_views_of_backed_cells_are_refused_before_work_begins(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(cavi, "run", lambda *given, **options: pytest.fail("work began"))
    cells().write_h5ad(tmp_path / "cells.h5ad")
    part = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")[:7]
    for call in (lambda: factorize(part), lambda: project(part, fitted[0])):
        with pytest.raises(ValueError, match=r"got a view of a backed one: its method .to_memory\(\) makes a copy"):
            call()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_groups_are_those_of_the_last_fit():
    adata = cells()
    adata.obs["gsnmf_group"] = "of an earlier fit"
    factorize(adata, **SHORT)
    assert adata.obs["gsnmf_group"].tolist() == adata.obs["cell_type"].tolist()
    factorize(adata, None, rank=2, max_steps=2)
    assert "gsnmf_group" not in adata.obs


@pytest.mark.parametrize("dtype", ["string", "Int64"])
def test_missing_labels_next_to_a_word_for_them(dtype):
    adata = cells()
    adata.obs["kind"] = pd.array([KIND[n] if n > 2 else 7 for n in range(N)], "Int64").astype(dtype)
    adata.obs.loc["c0", "kind"] = pd.NA
    labels = read_obs(adata, "kind", "7" if dtype == "string" else 7)
    assert labels[:3].tolist() == [None] * 3
    assert [int(label) for label in labels[3:]] == KIND[3:].tolist()
    assert adata.obs["kind"].isna().sum() == 1  # the cells are as they were


def test_new_counts_in_x_after_a_fit_to_a_layer(fitted):
    adata, other = fitted[0].copy(), cells()
    adata.uns["gsnmf"] = adata.uns["gsnmf"] | {"params": {"layer": "counts"}}
    with pytest.raises(ValueError, match=r"expected layer to be 'X' or the name of a layer \(none\); got 'counts'"):
        project(other, adata)
    project(other, adata, layer="X")
    assert other.obs["gsnmf_group"].tolist() == other.obs["cell_type"].tolist()


def test_masks_of_python_s_booleans():
    adata = cells()
    adata.var["mask"] = HIGH.astype(object)
    assert read_var(adata, "mask").tolist() == np.flatnonzero(HIGH).tolist()


def test_what_is_not_an_anndata():
    with pytest.raises(ValueError, match=r"expected an AnnData; got str: anndata.read_h5ad reads one \(pip install"):
        factorize("cells.h5ad")
    with pytest.raises(ValueError, match="in uns and varm; got none by the key 'gsnmf'"):
        top_features(cells())


@pytest.mark.filterwarnings("ignore:Writing zarr v2 data")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_zarr_folders_keep_the_result(fitted, tmp_path):
    """Their strings are of another kind than those of h5ad files."""
    pytest.importorskip("zarr")
    adata, _ = fitted
    adata.write_zarr(tmp_path / "cells.zarr")
    again, new = ad.read_zarr(tmp_path / "cells.zarr"), cells()
    pd.testing.assert_frame_equal(top_features(again, 2), top_features(adata, 2))
    project(new, again)
    assert new.obs["gsnmf_group"].astype(str).tolist() == np.where(KIND, "T cell", "B cell").tolist()


def test_a_batch_that_tells_nothing(monkeypatch):
    monkeypatch.setattr(cavi, "run", lambda *given, **options: pytest.fail("work began"))
    adata = cells()
    with pytest.raises(ValueError, match="expected batch to be another column than groups; got 'cell_type' for both"):
        factorize(adata, batch="cell_type")
    adata.obs["plate"] = "p"
    with (
        pytest.warns(UserWarning, match="has one value only"),
        pytest.raises(pytest.fail.Exception, match="work began"),
    ):
        factorize(adata, batch="plate")
