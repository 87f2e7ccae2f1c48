"""Classification by coefficients: projection, nearest neighbours, restarts, calibration, transduction."""
