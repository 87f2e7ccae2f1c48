"""Do probabilities come true? The expected calibration error and the Brier score of `predict_proba` on digits.

For every `predict_by`, the shares as they come (calibrate=None), a temperature on the training samples
(calibrate="training", the default) and, with --folds, one on samples that were left out of the fit.

    python benchmarks/calibration.py
    python benchmarks/calibration.py --folds 5 --splits 3
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from gsnmf import GroupSparseNMF
from gsnmf.classification.calibration import brier_score, calibration_error
from gsnmf.classification.parameters import CHOICES
from gsnmf.demo.digits import SIZES, splits


def measure(size: int, draws: int, ways: list[object], restarts: int, seed: int = 0) -> pd.DataFrame:
    """One row for each split, `predict_by` and way to calibrate."""
    rows = []
    for draw, split in enumerate(tqdm(splits(size, draws, seed), desc=f"{size} images", disable=None)):
        for predict_by in CHOICES["predict_by"]:
            for calibrate in ways:
                options = {
                    "predict_by": predict_by,
                    "n_restarts": 1 if predict_by in ("nearest", "model") else restarts,
                }
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    model = GroupSparseNMF(**options, calibrate=calibrate, random_state=seed + draw)
                    model.fit(split.X.T, split.labels)
                proba = model.predict_proba(split.test.T)
                judged = {
                    "accuracy": model.score(split.test.T, split.test_labels),
                    "ECE": calibration_error(proba, split.test_labels),
                    "Brier": brier_score(proba, split.test_labels),
                }
                names = {"images": size, "predict_by": predict_by, "calibrate": str(calibrate), "draw": draw}
                rows.append(names | judged)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=10, metavar="N", help="(default: 10)")
    parser.add_argument("--restarts", type=int, default=3, metavar="N", help="where they are combined (default: 3)")
    parser.add_argument("--folds", type=int, metavar="N", help="also calibrate on so many folds")
    arguments = parser.parse_args()
    ways = [None, "training"] + ([arguments.folds] if arguments.folds else [])
    runs = pd.concat([measure(size, arguments.splits, ways, arguments.restarts) for size in SIZES])
    table = runs.groupby(["images", "predict_by", "calibrate"], sort=False).agg(
        accuracy=("accuracy", "mean"), ECE=("ECE", "mean"), worst=("ECE", "max"), Brier=("Brier", "mean")
    )
    print(f"Digits, mean of {arguments.splits} splits; ECE in 10 bins, then that of the worst split\n")
    print(table.to_string(float_format="{:.3f}".format))
    if not np.isfinite(table.to_numpy()).all():
        raise SystemExit("not all figures are finite")


if __name__ == "__main__":
    main()
