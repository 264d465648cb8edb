"""The engine `Posterior`, which draws parameters from their posterior."""
