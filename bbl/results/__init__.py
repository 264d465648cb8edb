"""Results: the frozen objects that public functions return; their methods arrange what other
packages compute.
"""
