"""Laws of inference: tests, intervals and criteria."""
