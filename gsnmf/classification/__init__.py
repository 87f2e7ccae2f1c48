"""From coefficients to classes: projection, neighbours, restarts, calibration, transduction."""
