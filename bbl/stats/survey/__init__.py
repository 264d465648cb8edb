"""Survey sampling designs as arrays: covariances of totals, replicates and Rao-Scott tests."""
