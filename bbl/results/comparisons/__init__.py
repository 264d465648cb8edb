"""Results that combine several fits: averages, cross-validations, fits side by side."""
