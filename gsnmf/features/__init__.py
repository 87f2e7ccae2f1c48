"""Components by the names of their features, groups and samples: tables, and measures of distinctiveness."""

from .description import counts_by_group, describe_components
from .tables import top_features_table

__all__ = ["counts_by_group", "describe_components", "top_features_table"]
