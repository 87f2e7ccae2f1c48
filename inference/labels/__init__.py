"""Labels in a run of sweeps."""
