"""Public functions of Boltzmann machines: fitting, cross-validation, averages, class scores,
simulation.
"""
