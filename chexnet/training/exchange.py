"""How gradients cross between the ranks.

Knows the ways: one grouped operation (Horovod's Tensor Fusion over all of them), one flat
tensor, or each for itself; and their compression. Leaves Horovod's own settings to
``horovod_settings`` and what else crosses to ``distributed``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import horovod.tensorflow as hvd
import tensorflow as tf

from chexnet.config import TrainConfig

Exchange = Callable[[Sequence[tf.Tensor]], list[tf.Tensor]]


def make_exchange(config: TrainConfig) -> Exchange:
    """Return the function that adds up gradients over the ranks.

    It adds and does not average: the loss is divided by the number of ranks before it is
    differentiated, which gives the same and spares Horovod a pass over all gradients.

    Args:
        config: of which ``exchange``, ``fusion_groups`` and ``compression`` are read.

    Returns:
        A function from gradients, of the same shapes and types on every rank, to their sums.
    """
    groups = config.fusion_groups
    squeeze = hvd.Compression.fp16 if config.compression == "fp16" else hvd.Compression.none

    def exchange(gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        gradients = list(gradients)
        if hvd.size() == 1:
            return gradients
        if config.exchange == "each":
            return [
                hvd.allreduce(g, op=hvd.Sum, compression=squeeze, name=f"gradient.{number}")
                for number, g in enumerate(gradients)
            ]
        if config.exchange == "flat":
            return _exchange_flat(gradients, squeeze)
        parts = part_by_size([g.shape.num_elements() for g in gradients], parts=groups)
        return [
            summed
            for number, part in enumerate(parts)
            for summed in hvd.grouped_allreduce(
                [gradients[i] for i in part],
                op=hvd.Sum,
                compression=squeeze,
                name=f"gradients.{number}",
            )
        ]

    return exchange


def part_by_size(sizes: Sequence[int], *, parts: int) -> list[list[int]]:
    """Return the indices in at most so many runs of about equal total size, none empty."""
    total, before = sum(sizes), 0
    runs: list[list[int]] = [[] for _ in range(parts)]
    for index, size in enumerate(sizes):
        runs[min(parts - 1, before * parts // max(total, 1))].append(index)
        before += size
    return [run for run in runs if run]


def _exchange_flat(
    gradients: Sequence[tf.Tensor], squeeze: type[hvd.compression.Compressor]
) -> list[tf.Tensor]:
    """Add up one long vector: TensorFlow copies into and out of it, on all its threads."""
    flat = tf.concat([tf.reshape(g, [-1]) for g in gradients], 0)
    summed = hvd.allreduce(flat, op=hvd.Sum, compression=squeeze, name="gradients.flat")
    parts = tf.split(summed, [g.shape.num_elements() for g in gradients])
    return [tf.reshape(part, g.shape) for part, g in zip(parts, gradients, strict=True)]
