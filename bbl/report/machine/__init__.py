"""Text, tables and figures of Boltzmann machines."""
