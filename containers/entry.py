"""What a container engine is told to let in: folders of the host, and the variables of a rank.

Knows which paths the short options take apart, and whose variables a rank needs. Leaves the
engines' other flags to ``containers.runtime``.
"""

from __future__ import annotations

from pathlib import Path

from env.errors import UserError

# By these a launcher and Slurm tell a rank who it is, and libraries how to behave. Where Python and
# its packages lie (PYTHONPATH, CHEXNET_VENV and their like) is the image's own matter.
RANK_PREFIXES = (
    "OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_", "HOROVOD_", "NCCL_", "UCX_", "TF_", "XLA_",
    "KERAS_", "OMP_", "KMP_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CHEXNET_TERMINAL",
)  # fmt: skip
# $1 is the engine, the rest what follows "run".
WITH_VARIABLES = (
    "engine=$1; shift; for name in $(awk 'BEGIN { for (n in ENVIRON) if (n ~ "
    f"/^({'|'.join(RANK_PREFIXES)})[A-Za-z0-9_]*$/) print n }}'); "
    'do set -- --env "$name" "$@"; done; exec "$engine" run "$@"'
)


def bind_words(option: str, source: Path, target: Path) -> list[str]:
    """Return the words that let an image see a folder of the host.

    Raises:
        UserError: a path of several lines, which no engine reads.
    """
    if any(sign in f"{source}{target}" for sign in "\n\r\0"):
        raise UserError("the path of a folder in one line", found=repr(str(source)),
                        fix="rename it: engines read such options line by line")  # fmt: skip
    if any(sign in f"{source}{target}" for sign in ',:"\\'):
        # The short form takes paths apart at these; the long one is a line of CSV.
        fields = ("type=bind", f"source={source}", f"target={target}")
        return ["--mount", ",".join('"' + field.replace('"', '""') + '"' for field in fields)]
    return [option, f"{source}:{target}"]
