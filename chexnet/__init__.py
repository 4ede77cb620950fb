"""CheXNet training: DenseNet-121 on chest films, on any number of Horovod ranks.

Knows only how to keep TensorFlow's start-up noise out of the output: that has to
be said before TensorFlow is imported, and every module of this package is
imported after this one. Leaves everything else to the modules.
"""

import os

__version__ = "0.1.0"

# setdefault: whoever debugs TensorFlow sets these and is obeyed.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
