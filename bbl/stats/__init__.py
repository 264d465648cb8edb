"""Statistics for plain arrays: class scores, metrics, calibration, diagnostics and tests."""
