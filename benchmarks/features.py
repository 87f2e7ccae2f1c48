"""What packages for NMF do when asked: the calls behind docs/which_tool.md, with what came of each.

    python benchmarks/features.py [scikit-learn hpfrec poismf nimfa gsnmf]

Whatever of these is installed is asked; nimfa 1.4 wants numpy<2 and an environment of its own. X is 30 samples × 12
features of counts, Z the same with one entry NaN, y three classes.
"""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import PackageNotFoundError, version

import numpy as np

DATA = """
import numpy as np
rng = np.random.default_rng(0)
X = rng.poisson(rng.gamma(1.0, 3.0, size=(30, 12))).astype(float)
Z = np.where(np.arange(360).reshape(30, 12) == 0, np.nan, X)
y = np.repeat([0, 1, 2], 10)
"""
FRAME = """
import pandas as pd, scipy.sparse as sp
coo = sp.coo_matrix(X)
df = pd.DataFrame({"UserId": coo.row, "ItemId": coo.col, "Count": coo.data})
hole = coo.copy(); hole.data[0] = np.nan
new = pd.DataFrame({"ItemId": [0, 1], "Count": [2.0, 1.0]})
"""
ASKED: dict[str, tuple[str, dict[str, str]]] = {
    "scikit-learn": (
        """
import scipy.sparse as sp
from sklearn.decomposition import NMF
def nmf(): return NMF(3, solver="mu", beta_loss="kullback-leibler", init="random", max_iter=50, tol=0, random_state=0)
""",
        {
            "what is learned": "[name for name in vars(nmf().fit(X)) if name.endswith('_')]",
            "labels": "'ignored' if (nmf().fit(X, y).components_ == nmf().fit(X).components_).all() else 'of use'",
            "missing entries": "nmf().fit(Z)",
            "new samples": "nmf().fit(X).transform(X[:2]).shape",
            "sparse X": "nmf().fit(sp.csr_matrix(X)).components_.shape",
        },
    ),
    "hpfrec": (
        FRAME
        + """
from hpfrec import HPF
def hpf(frame):
    options = dict(maxiter=50, stop_crit="maxiter", check_every=50, ncores=1, reindex=False, verbose=False)
    return HPF(k=3, random_seed=1, keep_all_objs=True, **options).fit(frame)
missing = df.assign(Count=np.where(np.arange(len(df)) == 0, np.nan, df["Count"]))
absent = np.argwhere(X == 0)[0]
zero = pd.concat([df, pd.DataFrame({"UserId": absent[:1], "ItemId": absent[1:], "Count": [0.0]})])
""",
        {
            "what is learned": "[name for name, value in vars(hpf(df)).items() if hasattr(value, 'shape')]",
            "labels": "__import__('inspect').signature(HPF.fit)",
            "missing entries": "f'NaN in {np.isnan(hpf(missing).Theta).mean():.0%} of Theta'",
            "an entry left out is 0": "np.allclose(hpf(df).Theta, hpf(zero).Theta)",
            "new samples": "hpf(df).predict_factors(new).shape",
            "sparse X": "hpf(coo).Theta.shape",
            "transform, get_params": "hasattr(HPF, 'transform'), hasattr(HPF, 'get_params')",
        },
    ),
    "poismf": (
        FRAME
        + """
from poismf import PoisMF
def mf(matrix):
    options = dict(method="tncg", niter=10, l2_reg=1e-2, nthreads=1, reindex=False, random_state=1)
    return PoisMF(k=3, **options).fit(matrix)
without = sp.coo_matrix((coo.data[1:], (coo.row[1:], coo.col[1:])), shape=coo.shape)
""",
        {
            "what is learned": "[name for name, value in vars(mf(coo)).items() if getattr(value, 'ndim', 0) == 2]",
            "labels": "__import__('inspect').signature(PoisMF.fit)",
            "missing entries": "np.isfinite(mf(hole).A).all(), np.allclose(mf(hole).A, mf(without).A)",
            "new samples": "mf(coo).predict_factors(new).shape, mf(coo).transform(coo).shape",
            "dense X": "mf(X)",
            "transform, get_params": "hasattr(PoisMF, 'transform'), hasattr(PoisMF, 'get_params')",
        },
    ),
    "nimfa": (
        """
import nimfa, scipy.sparse as sp
def nmf(matrix): return nimfa.Nmf(matrix, rank=3, update="divergence", objective="div", max_iter=20)()
""",
        {
            "what is learned": "nmf(X).basis().shape, nmf(X).coef().shape",
            "a sampler": "nimfa.Bd(X, rank=3, max_iter=20)().basis().shape",
            "labels": "nimfa.Pmfcc(X, rank=3, max_iter=10, theta=np.zeros((12, 12)))().basis().shape",
            "missing entries": "nmf(Z)",
            "new samples": "[hasattr(nmf(X).fit, name) for name in ('transform', 'project')]",
            "sparse X": "nmf(sp.csr_matrix(X)).basis().shape",
            "how many components": "list(nimfa.Nmf(X, rank=3, max_iter=5).estimate_rank(rank_range=[2, 3], n_run=2))",
        },
    ),
    "gsnmf": (
        """
import scipy.sparse as sp
from gsnmf import GroupSparseNMF
def nmf(): return GroupSparseNMF(per_class=1, random_state=0)
""",
        {
            "what is learned": "[type(q).__name__ for q in nmf().fit(X, y).posterior_.sites.values()]",
            "labels": "nmf().fit(X, y).components_.shape, nmf().fit(X, y).classes_.tolist()",
            "missing entries": "nmf().fit(Z, y).components_.shape",
            "new samples": "nmf().fit(X, y).transform(X[:2]).shape",
            "sparse X": "nmf().fit(sp.csr_matrix(X), y)",
        },
    ),
}


def ask(package: str) -> None:
    """Print every question, the call and what came."""
    try:
        print(f"{package} {version(package)}")
    except PackageNotFoundError:
        print(f"{package}: not installed")
        return
    setup, questions = ASKED[package]
    names: dict = {}
    exec(DATA + setup, names)
    for question, call in questions.items():
        try:
            answer = str(eval(call, names))
        except Exception as error:  # whatever it is, it is the answer
            answer = f"{type(error).__name__}: {error}"
        print(f"  {question}: {call}\n    {answer.splitlines()[0][:160]}")


def main() -> None:
    """Ask the packages named, or all."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for package in sys.argv[1:] or ASKED:
        ask(package)


if __name__ == "__main__":
    main()
