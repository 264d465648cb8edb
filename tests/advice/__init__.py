"""Cases of advice: for every hint of the package a call that provokes it, and calls that follow it.

`sites.py` finds the hints in the source; the other modules hold the cases of the folders of
`bbl`, by file. A hint without a case fails `test_advice.py`.
"""
