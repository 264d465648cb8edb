"""Results that hold several fits: averages, cross-validations, fits side by side."""
