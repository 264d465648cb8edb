"""Survey sampling designs on arrays: covariances of totals, replicates, Rao-Scott tests."""
