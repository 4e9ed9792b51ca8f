"""Many jobs together: failures, offenders, slow parts, checkpoints."""
