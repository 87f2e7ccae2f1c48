"""The cross-check: what is asked, what is said of the answers, and the command once from end to end."""

import functools
import json
import math

import jax
import numpy as np
import pandas as pd
import pytest
import results
import xarray
from numpyro.infer import MCMC
from scipy.stats import poisson

from gsnmf import cli
from gsnmf.commands.outputs import is_own
from gsnmf.crosscheck import algorithms, invariants
from gsnmf.crosscheck import plots as crosscheck_plots
from gsnmf.crosscheck import report as crosscheck_report
from gsnmf.crosscheck import run as crosscheck
from gsnmf.crosscheck.corrected import Corrected, corrected_draws
from gsnmf.crosscheck.invariants import choose, evaluate, own_groups
from gsnmf.crosscheck.report import agreement, cautions, narrowness, overall, plus_minus, sentences, size_warning, table
from gsnmf.crosscheck.run import HOW, Answer, Crosscheck, example, summarise
from gsnmf.inference import Fit, LinearResponse, Posterior, cavi, linear_response, mcmc
from gsnmf.model import Gamma, GroupSparse, Priors, as_data
from gsnmf.model.problem import Problem

FILES = {"crosscheck.csv", "crosscheck.json", "forest.png", "marginals.png"}
GROUPED = {"total", "largest", "log_likelihood", "peak", "own_share", "log_rate"}


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


def draws(data, K, C, chains=2, length=7, seed=0):
    """A posterior group of random positive numbers."""
    rng, F, N = np.random.default_rng(seed), data.num_features, data.num_samples
    dims = {"T": ("feature", "component"), "V": ("component", "sample"), "lam": ("component", "group")}
    shapes = {"T": (F, K), "V": (K, N), "lam": (K, C)}
    return xarray.Dataset(
        {site: (("chain", "draw", *dims[site]), rng.gamma(2.0, size=(chains, length, *shapes[site]))) for site in dims}
    )


def mean_field(posterior):
    """Factors whose means are the first draw's."""
    return Posterior(*(Gamma(posterior[site].values[0, 0], 1.0) for site in ("T", "V", "lam")))


def test_example_is_a_draw_from_its_own_priors():
    data, priors = example(3)
    assert data.X.shape == (12, 18)
    assert data.group_sizes.tolist() == [6, 6, 6]
    assert crosscheck.has_counts(data)
    assert own_groups(data, priors, 3).tolist() == np.eye(3, dtype=bool).tolist()
    np.testing.assert_array_equal(example(3)[0].X, data.X)
    assert not np.array_equal(example(4)[0].X, data.X)


def test_invariants_are_what_they_are_called():
    data, priors = example()
    posterior = draws(data, 3, 3)
    asked = choose(data, priors, mean_field(posterior))
    found = evaluate(posterior, asked)
    assert set(found) == GROUPED
    T, V, lam = (posterior[site].values for site in ("T", "V", "lam"))
    TV, X = T @ V, np.asarray(data.X)
    i = (T[0, 0].sum(axis=0) * V[0, 0].sum(axis=1)).argmax()
    own = np.repeat(np.eye(3), 6, axis=1)
    activation = V * T.sum(axis=-2)[..., None]
    f, s = np.unravel_index(X.argmax(), X.shape)
    by_hand = {
        "total": TV.sum((-1, -2)),
        "largest": TV[:, :, f, s],
        "log_likelihood": poisson.logpmf(X, TV).sum((-1, -2)),
        "peak": T[:, :, T[0, 0, :, i].argmax(), i] / T[..., i].sum(-1),
        "own_share": (activation * own).sum((-1, -2)) / activation.sum((-1, -2)),
        "log_rate": np.log(lam[..., i, i] / T[..., i].sum(-1)),
    }
    for name, values in by_hand.items():
        assert found[name].shape == (2, 7)
        np.testing.assert_allclose(found[name], values, rtol=1e-10, err_msg=name)


def test_invariants_do_not_see_scales_and_fit_in_memory(monkeypatch):
    data, priors = example()
    posterior = draws(data, 3, 3)
    asked = choose(data, priors, mean_field(posterior))
    before = evaluate(posterior, asked)
    gamma = xarray.DataArray([0.1, 3.0, 50.0], dims="component")
    moved = xarray.Dataset({"T": posterior["T"] * gamma, "V": posterior["V"] / gamma, "lam": posterior["lam"] * gamma})
    monkeypatch.setattr(invariants, "ENTRIES", 2 * 12 * 18 * 3)  # three draws of both chains at once
    for name, values in evaluate(moved, asked).items():
        np.testing.assert_allclose(values, before[name], rtol=1e-10, err_msg=name)


def test_without_own_groups_other_things_are_asked():
    X = np.random.default_rng(0).poisson(3.0, size=(4, 6))
    plain, same = Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0)), Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0)))
    data = as_data(X, list("aabbbb"))
    posterior = draws(data, 2, 2)
    assert own_groups(data, plain, 2) is None
    assert own_groups(data, same, 2) is None
    q = mean_field(posterior)
    assert [x.name for x in choose(data, same, q)] == [
        "total",
        "largest",
        "log_likelihood",
        "peak",
        "share",
        "log_rate",
    ]
    asked = choose(as_data(X), plain, q._replace(lam=None))
    found = evaluate(posterior.drop_vars("lam"), asked)
    assert list(found) == ["total", "largest", "log_likelihood", "peak", "share"]
    assert ((found["share"] > 0) & (found["share"] < 1)).all()


def test_narrowness_in_words():
    said = {ratio: narrowness("the total", ratio, 0.1, of="CAVI", to="Gibbs") for ratio in (0.55, 1.41, 0.95, math.nan)}
    assert said[0.55] == "CAVI's standard deviation of the total is 0.55 of Gibbs's: too narrow by 45 %."
    assert said[1.41].endswith("is 1.41 of Gibbs's: too wide by 41 %.")
    assert said[0.95].endswith("is 0.95 of Gibbs's: about right.")
    assert "cannot be compared" in said[math.nan]
    low = narrowness("the total", 0.55, -2.31, of="SVI", to="NUTS")
    assert low.endswith("is 0.55 of NUTS's: too narrow by 45 %; its mean is too low by 2.3 of NUTS's.")
    ratios = {"the total": 1.4, "the peak": 0.6, "the rate": 0.85, "the share": 1.0}
    assert overall(ratios, of="CAVI", to="Gibbs") == (
        "Compared with Gibbs, CAVI is too narrow on 2 of 4 invariants, too wide on 1; narrowest on the peak, by 40 %."
    )
    assert overall({"the total": 1.0}, of="CAVI", to="Gibbs").endswith("on 0 of 1 invariants, too wide on 0.")


def test_plus_minus():
    assert plus_minus(2911.34, 53.96) == "2,911 ± 54"
    assert plus_minus(0.81234, 0.0123) == "0.812 ± 0.012"
    assert plus_minus(-3.0, 0.0) == "-3.00 ± 0.00"
    assert plus_minus(math.nan, 1.0) == "nan ± 1"


def independent(seed=0, **shifts):
    """Normal draws, those of q in one chain and half as wide; 4 × 500 of NUTS and Gibbs."""
    rng, made = np.random.default_rng(seed), {}
    for algorithm in HOW:
        shape = (4, 500) if algorithm in ("NUTS", "Gibbs") else (1, 2000)
        width = 1.0 if algorithm in ("NUTS", "Gibbs") else 0.5
        made[algorithm] = {
            name: 10.0 + shifts.get(algorithm, 0.0) + width * rng.normal(size=shape) for name in ("one", "two")
        }
    return made


def found(made, fit=None, divergences=0):
    """A cross-check with these draws, and bounds that are made up."""
    summary = summarise(made, "Gibbs" if "Gibbs" in made else "NUTS")
    asked = [invariants.Invariant(name, f"{name}!", f"the {name}", None) for name in ("one", "two")]
    fits = {
        "CAVI": fit or Fit(None, np.array([-9.0]), 1, True, "Done."),
        "refined": Fit(None, [], 1, True, "", "collapsed"),
        "SVI": Fit(None, [], 1, True, "", "collapsed"),
    }
    kinds = {"CAVI": "mean field", "refined": "linear response", "SVI": "mean field"}
    answers = {
        name: Answer(x, 2.0, fits.get(name), divergences * (name == "NUTS"), kinds.get(name, "exact"))
        for name, x in made.items()
    }
    rows = {}
    for name in made:
        own = summary.loc[name]
        q = name in fits
        rows[name] = {
            "augmented": -1234.5 if name == "CAVI" else math.nan,
            "collapsed": -1200.0 if q else math.nan,
            "collapsed_error": 0.3 if q else math.nan,
            "log_evidence": -1190.0 if name == "refined" else math.nan,
            "k_hat": 0.9 if name == "CAVI" else 0.5 if q else math.nan,
            "r_hat": own["r_hat"].max(),
            "ess_bulk": own["ess_bulk"].min(),
            "ess_tail": own["ess_tail"].min(),
            "ess_per_second": own["ess_bulk"].min() / 2,
            "seconds": 2.0,
        }
    reference = "Gibbs" if "Gibbs" in made else "NUTS"
    return Crosscheck(asked, answers, summary, pd.DataFrame(rows).T, reference)


def test_summary_and_agreement():
    made = independent()
    summary = summarise(made, "Gibbs")
    # The deviation of 2000 normal draws is off by 1/√4000 = 1.6 %, a ratio of two by 2.2 %: 10 % is 4.5 of them.
    np.testing.assert_allclose(summary.loc["CAVI"]["sd_ratio"], [0.5, 0.5], rtol=0.1)
    np.testing.assert_allclose(summary.loc["NUTS"]["q95"] - summary.loc["NUTS"]["q50"], [1.645, 1.645], rtol=0.15)
    assert summary.loc["CAVI"]["r_hat"].isna().all()
    assert (summary.loc["NUTS"]["ess_bulk"] > 1000).all()
    titles = {"one": "the one", "two": "the two"}
    (line,) = agreement(summary, titles)
    assert line.startswith("NUTS and Gibbs agree: the largest |z| of 2 means is ")
    # A difference of a third is z = 10 for errors of 1/√2000 each.
    lines = agreement(summarise(independent(NUTS=0.33), "Gibbs"), titles)
    assert len(lines) == 2
    assert lines[0].startswith("WARNING: NUTS and Gibbs disagree on the one: z = ")
    del made["Gibbs"]
    assert "Gibbs cannot run" in agreement(summarise(made, "NUTS"), titles)[0]


def test_cautions():
    assert cautions(found(independent())) == ["k̂ of CAVI is 0.90, above 0.7: weights cannot correct draws of its q."]
    made = independent()
    made["NUTS"]["two"][0] += 1.0  # a chain of its own
    made["Gibbs"]["one"][:] = np.cumsum(made["Gibbs"]["one"] - 10, axis=1)  # a random walk
    late = Fit(None, np.array([-9.0]), 1, False, "The bound still rose.")
    said = "\n".join(cautions(found(made, late, divergences=3)))
    assert "WARNING: CAVI did not converge. The bound still rose." in said
    assert "WARNING: R-hat of NUTS is 1." in said
    assert "above 1.02, for the two: its chains have not mixed" in said
    assert "WARNING: R-hat of Gibbs is" in said
    assert "WARNING: Gibbs has an ESS of" in said
    assert "WARNING: 3 transitions of NUTS diverged" in said


def test_table_and_sentences():
    printed = table(found(independent()))
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 120
    assert [line.split()[0] for line in lines if line[:1].strip()] == [*HOW, *HOW]
    cavi_row = lines[-5]
    assert "-1,234.5" in cavi_row
    assert "-1,200.0 ± 0.3" in cavi_row
    assert "augmented bound" in printed
    assert "collapsed bound" in printed
    assert lines[-1].count("–") == 4  # no bounds, no evidence and no k̂ of chains
    assert "-1,190.0" in lines[-4]
    assert not any("-1,190.0" in line for line in lines[-3:])
    said = sentences(found(independent()))
    first = "Compared with Gibbs, CAVI is too narrow on 2 of 2 invariants, too wide on 0; narrowest on the "
    assert said[0].startswith("The widths of CAVI and SVI are the mean field's, ")
    assert "; the widths of refined are corrected by linear response, as are the means; " in said[0]
    assert said[0].endswith("the widths of NUTS and Gibbs are exact up to Monte Carlo error.")
    assert said[1].startswith(first)
    assert said[2].startswith("  CAVI's standard deviation of the one is 0.5")
    assert said[4].startswith(first.replace("CAVI", "refined"))
    assert said[5].startswith("  refined's standard deviation of the one is 0.5")


def test_what_is_not_corrected_is_said():
    check = found(independent())
    refined = check.answers["refined"]
    plain = check._replace(answers=check.answers | {"refined": refined._replace(widths="mean field", note="no room")})
    assert "refined has the draws of its mean field, not corrected ones: no room." in sentences(plain)
    assert sentences(plain)[0].startswith("The widths of CAVI and refined and SVI are the mean field's")
    late = check._replace(answers=check.answers | {"refined": refined._replace(note="The fit is not there.")})
    assert "WARNING: refined: The fit is not there." in sentences(late)


def test_corrected_draws_where_they_can_be_had(monkeypatch):
    """Mean and width of 4000 draws are those of linear response: here the correction is 12 Monte Carlo errors."""
    data, priors = (
        as_data(np.array([[9, 2, 5], [1, 7, 4]])),
        Priors(Gamma(1.0, 1.0), Gamma(np.array([[1.0], [2.0]]), 3.0)),
    )
    problem = Problem(data, priors)
    fit = cavi.run(data, priors, key=jax.random.key(0), max_steps=2000, tol=1e-13)
    found = corrected_draws(fit, problem, 4000, jax.random.key(1))
    counts = found.draws["V"][:, :, 0, 0] * found.draws["T"][..., 0].sum(-1)
    response = linear_response(fit, problem)

    def f(q):
        return q.V.mean[0, 0] * q.T.mean[:, 0].sum()

    mean, error = response.mean(f, corrected=True), counts.std() / 4000**0.5
    assert counts.shape == (1, 4000)
    assert abs(counts.mean() - mean) < 4 * error
    assert abs(response.mean(f) - mean) > 8 * error
    assert counts.std() == pytest.approx(response.sd(f), rel=0.06)  # 1/√8000 = 1.1 %, more for a skewed distribution
    assert found.log_evidence == pytest.approx(response.log_evidence())
    assert found.note == ""
    monkeypatch.setattr(LinearResponse, "is_dense", False)
    large = corrected_draws(fit, problem, 4, jax.random.key(1))
    assert large.draws is None
    assert large.note == "the Hessian of 20 coordinates does not fit in memory"
    unknown = Problem(as_data(data.X, ["a", "b", None]), Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0))), 1)
    assert corrected_draws(fit, unknown, 4, jax.random.key(1)).note == "draws need all labels, and 1 are unknown"


def test_size_warning():
    data, _ = example()
    assert size_warning(data, 3, 1000, 4) is None
    large = as_data(np.ones((600, 200)), [0, 1] * 100)
    said = size_warning(large, 10, 1000, 4)
    assert said.startswith("warning: 8,020 unknowns;")
    assert "1,852 times" in said


def test_pictures_draw_on_the_axes_given():
    check = found(independent())
    for draw in (
        lambda ax: crosscheck_plots.marginal({n: a.draws["one"] for n, a in check.answers.items()}, ax, title="one"),
        lambda ax: crosscheck_plots.forest(check.summary, ax, titles={"one": "the one"}),
    ):
        ax = crosscheck_plots.new_axes()
        assert draw(ax) is ax
        assert list(HOW) == ax.get_legend_handles_labels()[1]
    means = dict(zip(HOW, [line for line in ax.lines if line.get_marker() == "o"], strict=True))
    np.testing.assert_allclose(means["Gibbs"].get_xdata(), 0, atol=1e-12)
    np.testing.assert_allclose(means["NUTS"].get_xdata(), check.summary.loc["NUTS"]["shift"])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["the one", "two"]
    assert (
        len(crosscheck_plots.marginal({"CAVI": np.ones(9), "NUTS": np.arange(9.0)}).lines) == 1
    )  # a constant has none


@pytest.mark.usefixtures("little_compilation")
@pytest.mark.slow
def test_command(tmp_path, monkeypatch, capsys):
    """The default problem with too few draws, which it has to say; cheaper in what other tests look at."""
    monkeypatch.setattr(algorithms, "GRADIENT_STEPS", 200)
    monkeypatch.setattr(crosscheck, "psis", lambda *_, **__: 1.5)
    monkeypatch.setattr(mcmc, "run_nuts", functools.partial(mcmc.run_nuts, max_tree_depth=4, chain_method="sequential"))
    out = ["--out", str(tmp_path / "new"), "--seed", "1"]
    assert cli.main(["crosscheck", "--draws", "50", "--chains", "2", *out]) == 0
    captured = capsys.readouterr()
    for number, name in enumerate(HOW, 1):
        assert f"gsnmf: {number} of 5: {name}, " in captured.err
    assert "12 features × 18 samples, 3 groups, 3 components, drawn from the model (seed 1)" in captured.out
    assert "CAVI's standard deviation of the total Σ TV is " in captured.out
    assert "WARNING: NUTS has an ESS of" in captured.out
    assert max(len(line) for line in captured.out.splitlines() if str(tmp_path) not in line) <= 120
    assert {path.name for path in (tmp_path / "new").iterdir()} == FILES
    assert all(str(tmp_path / "new" / name) in captured.out for name in FILES)
    rows = pd.read_csv(tmp_path / "new" / "crosscheck.csv")
    assert set(rows["algorithm"]) == set(HOW)
    assert set(rows["invariant"]) == GROUPED
    assert np.isfinite(rows[["mean", "sd", "mcse", "sd_ratio"]]).all(axis=None)
    # The data settle the total, with a deviation of 1/√ΣX = 1.6 %: means of even ten effective draws are within 5 %.
    # SVI is not there after so few steps.
    totals = rows[(rows["invariant"] == "total") & (rows["algorithm"] != "SVI")]["mean"]
    np.testing.assert_allclose(totals, np.asarray(example(1)[0].X).sum(), rtol=0.05)
    content = json.loads((tmp_path / "new" / "crosscheck.json").read_text())
    assert content["about"]["seed"] == 1
    diagnostics = content["diagnostics"]
    assert diagnostics["CAVI"]["augmented"] < diagnostics["CAVI"]["collapsed"]
    assert diagnostics["SVI"]["augmented"] is None
    # The bound is at most log p(X), and so is the approximation here, by far more than its error of less than a nat.
    assert diagnostics["refined"]["collapsed"] < diagnostics["refined"]["log_evidence"]
    assert diagnostics["CAVI"]["collapsed"] < diagnostics["refined"]["collapsed"]
    assert diagnostics["Gibbs"]["ess_bulk"] > 0
    assert all(row["seconds"] > 0 for row in diagnostics.values())


@pytest.fixture
def little_compilation():
    """Most of the time here is XLA's: little work is not worth its best code."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


class Ran(MCMC):
    """Chains that were drawn from a mean field, as if they had run."""

    def __init__(self, q, chains, length):
        rng = np.random.default_rng(0)
        self.draws = {site: rng.gamma(*f, size=(chains, length, *np.shape(f.a))) for site, f in q.sites.items()}

    def get_samples(self, group_by_chain=False):
        return self.draws

    def get_extra_fields(self, group_by_chain=False):
        return {"diverging": np.zeros(self.draws["T"].shape[:2], bool)}


@pytest.mark.usefixtures("little_compilation")
def test_fractions_leave_four(tmp_path, monkeypatch, capsys):
    """Nothing runs but CAVI. Two components that are exchangeable, so they are aligned draw by draw."""
    fit = results.cavi_fit()
    refined = fit._replace(bound="collapsed")
    ready = {"CAVI": fit, "refined": refined, "SVI": fit._replace(bound="collapsed"), "NUTS": Ran(fit.posterior, 2, 50)}
    monkeypatch.setattr(crosscheck, "psis", lambda *_, **__: 0.6)
    monkeypatch.setattr(algorithms, "_run", lambda name, *_: ready[name])
    monkeypatch.setattr(algorithms, "corrected_draws", lambda *_: Corrected(None, note="no room"))
    crosscheck.run_crosscheck(tmp_path, (results.DATA, results.PRIORS, results.K), draws=50, chains=2)
    captured = capsys.readouterr()
    assert "X has fractions, which Gibbs cannot allocate" in captured.err
    assert "1 of 4: CAVI" in captured.err
    assert "CAVI's standard deviation of the total Σ TV is " in captured.out
    assert " of NUTS's: " in captured.out
    assert "NUTS is the only sampler" in captured.out
    assert "refined has the draws of its mean field, not corrected ones: no room." in captured.out
    assert "k̂ of" not in captured.out
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert all(map(is_own, tmp_path.iterdir()))


@pytest.mark.usefixtures("little_compilation")
def test_an_interrupted_crosscheck_goes_on_to_the_same_tables(tmp_path, monkeypatch, capsys):
    """The third algorithm is interrupted; nothing runs again but that one and the last."""
    fit = results.cavi_fit()
    ready = {"CAVI": fit, "refined": fit._replace(bound="collapsed"), "SVI": fit._replace(bound="collapsed")}
    ready["NUTS"] = Ran(fit.posterior, 2, 50)
    calls = []

    def once(name, *_):
        calls.append(name)
        if calls == ["CAVI", "refined", "SVI"]:
            raise KeyboardInterrupt
        return ready[name]

    problem, sizes = (results.DATA, results.PRIORS, results.K), {"draws": 50, "chains": 2}
    monkeypatch.setattr(crosscheck, "psis", lambda *_, **__: 0.6)
    monkeypatch.setattr(algorithms, "_run", once)
    monkeypatch.setattr(algorithms, "corrected_draws", lambda *_: Corrected(None, note="no room"))
    kept = tmp_path / "kept.jsonl"
    with pytest.raises(KeyboardInterrupt):
        crosscheck.run_crosscheck(tmp_path / "a", problem, checkpoint=kept, **sizes)
    assert not (tmp_path / "a").exists()
    first = crosscheck.run_crosscheck(tmp_path / "a", problem, checkpoint=kept, **sizes)
    assert calls == ["CAVI", "refined", "SVI", "SVI", "NUTS"]
    assert capsys.readouterr().err.count("read from the checkpoint") == 2
    second = crosscheck.run_crosscheck(tmp_path / "b", problem, **sizes)
    pd.testing.assert_frame_equal(first.summary, second.summary, check_exact=True)
    assert (tmp_path / "a" / "crosscheck.csv").read_bytes() == (tmp_path / "b" / "crosscheck.csv").read_bytes()
    assert first.answers["CAVI"].fit.priors == second.answers["CAVI"].fit.priors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--draws", "10"], "expected draws to be a whole number ≥ 50; got 10"),
        (["--chains", "1"], "expected chains to be a whole number ≥ 2; got 1"),
        (["--seed", "-1"], "expected a whole number from 0"),
        (["--rank", "2"], "expected FILE with --rank; got none"),
        (["--labels", "labels.txt"], "expected FILE with --labels; got none"),
        (["--a-t", "1"], "expected FILE with --a-t; got none"),
        (["--small", "1"], "expected FILE with --small; got none"),
        (["no.csv", "--rank", "2"], "no.csv, which does not exist"),
        (["{folder}/negative.csv", "--rank", "1"], "expected X to be nonnegative; got a minimum of -1"),
        (["{folder}/negative.csv"], "expected --labels FILE, or --rank K"),
    ],
)
def test_errors_come_before_any_work(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(crosscheck, "crosscheck", None)
    (tmp_path / "negative.csv").write_text("1,-1\n2,3\n")
    filled = [argument.format(folder=tmp_path) for argument in arguments]
    assert cli.main(["crosscheck", *filled, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gsnmf: error: ")
    assert error.count("\n") == 1
    assert message in error


def test_unwritable_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["crosscheck", "--out", str(tmp_path / "file" / "out")]) == 2
    assert "expected a folder to write into; got" in capsys.readouterr().err


def test_interrupt(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cavi, "run", interrupted)
    assert cli.main(["crosscheck", "--out", str(tmp_path)]) == 130
    assert "gsnmf: interrupted; nothing was saved" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_file_is_read_as_fit_reads_it(tmp_path, monkeypatch):
    """Options reach the priors; the work itself is done above."""
    (tmp_path / "X.csv").write_text("1,3,2,4\n4,3,2,1\n")
    (tmp_path / "labels.txt").write_text("a\nb\na\nb\n")
    seen = []
    monkeypatch.setattr(crosscheck, "run_crosscheck", lambda *args, **options: seen.append((args, options)))
    labels = ["--labels", str(tmp_path / "labels.txt"), "--per-group", "1", "--small", "2", "--init", "groups"]
    labels += ["--prior", "paper"]
    out = ["--out", str(tmp_path / "out"), "--draws", "60"]
    assert cli.main(["crosscheck", str(tmp_path / "X.csv"), *labels, *out]) == 0
    assert cli.main(["crosscheck", *out]) == 0
    (folder, (data, priors, rank)), options = seen[0]
    assert folder == tmp_path / "out"
    assert (data.X.shape, rank) == ((2, 4), 2)
    assert priors.coefficients.rate.a.tolist() == [[2.0, 256.0], [256.0, 2.0]]
    assert options.pop("checkpoint").path == tmp_path / "out" / "crosscheck.checkpoint.jsonl"
    assert options == {"seed": 0, "draws": 60, "chains": 4, "init": "groups", "lam_start": "prior"}
    assert seen[1][0][1] is None
    assert seen[1][1]["init"] is None  # to be chosen by what the priors say


def test_crosscheck_refuses_what_cannot_work():
    with pytest.raises(ValueError, match="expected draws to be a whole number ≥ 50; got 5"):
        crosscheck.crosscheck(*example(), key=jax.random.key(0), draws=5)


def test_reading_explains_every_column():
    assert all(
        word in crosscheck_report.HOW_TO_READ for word in ("augmented", "collapsed", "R-hat", "ESS/s", "Seconds")
    )
