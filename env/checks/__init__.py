"""Pure functions from facts, lock and plan to findings; no file, no process, no clock.

``env.checks.registry`` holds them by id; the other modules, one a theme, fill it.
"""
