"""Model comparison: a table of fits under different priors, the number of components, and their stability."""

from .models import compare
from .plots import plot_comparison, plot_rank_choice
from .ranks import Choice, choose_rank
from .stability import Consensus, consensus

__all__ = ["Choice", "Consensus", "choose_rank", "compare", "consensus", "plot_comparison", "plot_rank_choice"]
