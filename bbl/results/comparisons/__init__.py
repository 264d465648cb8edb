"""Results that combine or compare several fits."""
