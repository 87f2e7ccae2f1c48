"""Images made ready for factorisation."""
