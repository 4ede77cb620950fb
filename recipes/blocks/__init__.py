"""Building blocks HPCCM lacks: system packages, TensorFlow, Horovod, the project.

Each is a class in HPCCM's own form: ``str(block)`` is what the first stage does,
``block.runtime()`` what the second stage takes from it.
"""
