"""X as inference sees it."""
