"""The model on plain arrays: parameters, energy, ln Z, prediction, sampling."""
