"""The weights that Keras publishes: their files, their hashes, and the input they expect.

Knows for each network which file that is, what it was trained on (a film must be normalised the
same way), where it lies on this machine, and whether it is whole. Leaves fetching it to
``fetching`` and putting it into a network to ``backbones``. Imports without TensorFlow.

A training never downloads: the hosts of a cluster often cannot, and a rank that waits for a
server holds up all others. `invoke fetch-weights` fills the place that is looked into here.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chexnet.errors import EXIT_FAILED, UserError, unknown_name

NONE, IMAGENET = "none", "imagenet"
WEIGHTS_VARIABLE = "CHEXNET_WEIGHTS"
ADDRESS = "https://storage.googleapis.com/tensorflow/keras-applications"

# ImageNet's mean and standard deviation, of films between 0 and 1: what DenseNet's weights were
# trained with (keras.applications.imagenet_utils, mode "torch").
NORMALISATION: dict[str, Any] = {
    "scale": 1 / 255,
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}
# ResNet's came from Caffe, whose channels are blue, green, red, in bytes less their mean over
# ImageNet (mode "caffe"). A film is grey: the order of the means is all that is left of it.
NORMALISATION_CAFFE: dict[str, Any] = {
    "scale": 1.0,
    "mean": [103.939, 116.779, 123.68],
    "std": [1.0, 1.0, 1.0],
    "channels": "bgr",
}


@dataclass(frozen=True)
class Published:
    """The weights below the head that Keras publishes for one network.

    Attributes:
        file: its name, in the cache of Keras and on the server.
        folder: of the file on the server.
        md5: its hash as the keras package carries it (32 hex digits).
    """

    file: str
    folder: str
    md5: str

    @property
    def url(self) -> str:
        """Return where the file is published."""
        return f"{ADDRESS}/{self.folder}/{self.file}"


_SUFFIX = "_weights_tf_dim_ordering_tf_kernels_notop.h5"
PUBLISHED: dict[str, Published] = {
    "densenet121": Published(
        f"densenet121{_SUFFIX}", "densenet", "30ee3e1110167f948a6b9946edeeb738"
    ),
    "densenet169": Published(
        f"densenet169{_SUFFIX}", "densenet", "b8c4d4c20dd625c148057b9ff1c1176b"
    ),
    "densenet201": Published(
        f"densenet201{_SUFFIX}", "densenet", "c13680b51ded0fb44dff2d8f86ac8bb1"
    ),
    "resnet50": Published(f"resnet50{_SUFFIX}", "resnet", "4d473c1dd8becc155b73f8504c6f6626"),
}


def find_normalisation(model: str) -> dict[str, Any]:
    """Return how bytes become what a network sees, with or without published weights.

    Written into checkpoints, so that one of another normalisation is refused.
    """
    return NORMALISATION_CAFFE if model == "resnet50" else NORMALISATION


def get_published(model: str) -> Published:
    """Return what is published for a network.

    Raises:
        UserError: nothing is.
    """
    if model not in PUBLISHED:
        raise unknown_name("network with published weights", model, known=PUBLISHED)
    return PUBLISHED[model]


def weights_folder() -> Path:
    """Return where published weights are looked for: $CHEXNET_WEIGHTS, else Keras' own cache."""
    given = os.environ.get(WEIGHTS_VARIABLE)
    home = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
    return Path(given) if given else Path(home) / "models"


def find_weights(model: str, weights: str) -> Path | None:
    """Return the file of the weights below the head; None to begin from random ones.

    Args:
        model: name of the network.
        weights: ``none``, ``imagenet`` or the path of a file.

    Raises:
        UserError: the file is not there, is not the one that was published, or there are
            none for this network.
    """
    if weights == NONE:
        return None
    if model not in PUBLISHED:
        fix = f"--set weights={NONE}"
        raise UserError(f"weights={NONE} for model {model}", found=weights, fix=fix)
    if weights == IMAGENET:
        return _find_published(model)
    path = Path(weights)
    if not path.is_file():
        raise UserError(
            f"weights: {NONE}, {IMAGENET} or the path of a weights file",
            found=f"no file {weights}",
            fix="correct --set weights=PATH; in an image, PATH must be bound into it",
        )
    if not path.name.endswith((".h5", ".hdf5")):
        raise UserError(
            "a weights file of Keras: .h5 or .weights.h5",
            found=str(path),
            fix="save the network below the head with save_weights('NAME.weights.h5')",
        )
    return path


def _find_published(model: str) -> Path:
    published = get_published(model)
    path = weights_folder() / published.file
    if not path.is_file():
        raise UserError(
            f"the ImageNet weights of {model} at {path}",
            found="no file",
            fix=f"invoke fetch-weights --model {model}; where there is no network, bring "
            f"{published.url} and add --from FILE; or --set weights={NONE}",
            exit_code=EXIT_FAILED,
        )
    check_hash(path, published=published)
    return path


def check_hash(path: Path, *, published: Published) -> None:
    """Refuse a file that is not the published one.

    Raises:
        UserError: naming both hashes.
    """
    found = md5_of(path)
    if found != published.md5:
        raise UserError(
            f"{published.file} with md5 {published.md5}, as Keras publishes it",
            found=f"{path} with md5 {found}",
            fix="fetch it again: the copy is cut short or another file; weights of your own are "
            "given by path, --set weights=FILE",
            exit_code=EXIT_FAILED,
        )


def md5_of(path: Path) -> str:
    """Return the hash of a file (32 hex digits): Keras publishes no other."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
