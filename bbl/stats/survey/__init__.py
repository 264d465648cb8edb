"""Survey sampling designs on arrays: covariances of totals, replicate weights, Rao-Scott tests."""
