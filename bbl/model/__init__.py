"""The model on plain arrays: parameters, energies, ln Z, prediction and sampling."""
