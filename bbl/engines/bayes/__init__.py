"""The engine that draws parameters from their posterior."""
