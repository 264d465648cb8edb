"""Effects on the scale of probabilities: questions, rows, values, standard errors, and the table of
answers.
"""
