"""Model comparison: a table of fits under different priors, and the choice of the number of components."""

from .models import compare
from .plots import plot_comparison, plot_rank_choice
from .ranks import Choice, choose_rank

__all__ = ["Choice", "choose_rank", "compare", "plot_comparison", "plot_rank_choice"]
