"""What the environment must be, and whether it is.

Imports with nothing but Python's standard library: this is the package one runs
when everything else is broken. Start at ``python -m env --help``.
"""
