"""Default options of a fit, the same for the estimator, the commands and `choose_rank`."""

from __future__ import annotations

INIT = "random"  # initialisation of T and V; also the warm start of fits with unlabelled samples
LAM_START = "prior"  # λ is initialised at its prior mean
MAX_STEPS = 300  # sweeps at most
TOL = 1e-6  # relative change of the bound at which a fit stops
ACCELERATE = True
