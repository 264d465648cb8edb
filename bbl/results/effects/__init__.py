"""Effects on the scale of probabilities: contrasts, rows, values, standard errors, and the table of
answers.
"""
