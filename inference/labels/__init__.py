"""Labels in a run of sweeps: strategies for known labels, for unlabelled samples, and for samples on several devices.

All strategies have the same methods, so that sweep, bound and engine do not depend on the strategy:

    allocate(X, m)                      q(S), and q(z) where it is found with it
    exposure(X, m, S)                   Σ_τ w E[V], the factor of each t in its expected counts
    groups_in_sweep(m, S), groups_of(q) the membership for rates and sums
    update(family, m, V, lam, S)        q(z) and q(π)
    read(X, priors, q)                  the moments that the next sweep needs besides those of T, V and λ
    sample_terms(X, priors, q)          the terms of the bound that belong to samples, by component: −KL and totals
    terms(q)                            the terms of the bound that belong to labels
    moved(S, old, new)                  Σ x log(M/x) when q(S) is older than the factors
    settle(q, after)                    factors with q(z) at its optimum
    optimum(priors, q)                  factors with q(z) at its optimum where it does not depend on X
    weigh(X, priors, q, log_ratios)     the terms of samples when S is summed out, and factors with the best q(z)
    temper(beta)                        the strategy while it anneals
    weights_of(q)                       the weight of every row of V
    hold(posterior)                     factors in the layout of sweeps
    prior_factors()                     the factors of labels before there is any evidence
    first(V, exposure)                  the moments that a start from means begins with
    blank(shapes)                       factors before the first sweep
    off_devices(leaf), on_devices(...)  arrays of the state to the host and back
"""

from .known import Known
from .mean_field import MeanField
from .spread import Spread
from .structured import Structured

FORMS = ("structured", "mean_field")

__all__ = ["FORMS", "Known", "MeanField", "Spread", "Structured"]
