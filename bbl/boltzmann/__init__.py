"""The room of Boltzmann machines: one engine run per group, tuning, covariance of what was fitted."""
