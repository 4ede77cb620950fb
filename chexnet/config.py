"""The configuration of a training run: its keys, their types, its presets.

Knows how preset, file and ``--set`` become one `TrainConfig`, and refuses what it
does not know by name. Leaves the meaning of the values to the modules that use
them, and whether data and configuration fit each other to ``train``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chexnet.errors import UserError, unknown_name
from chexnet.input.fitting import PIPELINES
from chexnet.schedule import DECAYS, SCALINGS

SCHEMA_VERSION = 2
PRESETS_DIR = Path(__file__).parent / "presets"
DEFAULT_PRESET = "lab"

MODELS = ("densenet121", "densenet169", "densenet201", "resnet50", "tiny")
SWITCH = ("off", "on")
CHOICES: dict[str, tuple[str, ...]] = {
    "model": MODELS,
    "device": ("auto", "gpu", "cpu"),
    "loss": ("bce", "weighted_bce"),
    "scale_learning_rate": SCALINGS,
    "decay": DECAYS,
    "pipeline": ("auto", *PIPELINES),
    "precision": ("auto", "float32", "mixed_float16", "mixed_bfloat16", "float64"),
    "xla": ("auto", *SWITCH),
    "batch_statistics": ("local", "global"),
    "exchange": ("grouped", "flat", "each"),
    "compression": ("none", "fp16"),
    "hierarchical_allreduce": SWITCH,
    "autotune": SWITCH,
}
# Key: (smallest, largest) value that makes sense; None is no bound.
BOUNDS: dict[str, tuple[float, float | None]] = {
    "crop_size": (0, 4096),
    "image_size": (0, 4096),
    "batch_size": (1, None),
    "epochs": (1, None),
    "learning_rate": (0, None),
    "warmup_epochs": (0, None),
    "seed": (0, 2**31 - 1),
    "batch_norm_momentum": (0, 1),
    "label_smoothing": (0, 0.5),
    "accumulation_steps": (1, None),
    "steps_per_call": (0, None),
    "fusion_threshold_mib": (-1, 4096),
    "cycle_time_ms": (-1, 1000),
    "fusion_groups": (1, 1000),
    "stall_warning_s": (0, None),
    "stall_shutdown_s": (0, None),
    "checkpoint_steps": (0, None),
    "keep_every_epochs": (0, None),
}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that decides what a run computes, apart from data and ranks.

    Attributes:
        preset: the preset the values started from.
        model: ``densenet121``, ``densenet169``, ``densenet201``, ``resnet50``, or ``tiny`` for
            tests.
        weights: ``none``, ``imagenet`` (from the Keras cache or ``invoke fetch-weights``) or the
            path of a weights file for the network below the head.
        device: ``gpu``, ``cpu``, or ``auto``: GPUs where TensorFlow is built for them.
        crop_size: height and width of what is cut out of each film, px: anywhere in it while
            training, its middle otherwise; 0 takes the whole film.
        image_size: height and width that the network sees, px; 0 takes the crop's.
        batch_size: films in a batch of one rank.
        epochs: passes over the training films.
        learning_rate: of one rank, before scaling.
        loss: ``bce``, binary cross-entropy; ``weighted_bce`` weighs positives by the share of
            negatives of their finding among the training films and the other way round.
        label_smoothing: how far labels are moved from 0 and 1 towards 0.5, 0 .. 0.5.
        scale_learning_rate: ``linear`` multiplies it by the number of ranks, ``sqrt`` by its
            square root; ``none``.
        warmup_epochs: epochs until the scaled rate is reached; fractions are allowed.
        decay: after the warm-up: ``none``, ``cosine``, or ``plateau``: a tenth whenever the
            validation loss has not fallen for an epoch.
        pipeline: ``old``, ``new``, ``dali``, ``fast``, or ``auto``: the best for the data's format.
        seed: of the initial weights and of the films' order.
        precision: ``float32``, ``mixed_float16`` (with loss scaling), ``mixed_bfloat16``,
            ``float64`` for tests, or ``auto``: ``mixed_float16`` on GPUs, else ``float32``.
        xla: compile the step with XLA: ``on``, ``off``, or ``auto``: on GPUs, but where
            batch statistics cross between ranks.
        steps_per_call: optimizer steps in one call of the compiled loop; 0 chooses by device.
        accumulation_steps: batches whose gradients are added up on a rank before they cross to
            the others and change the weights.
        batch_statistics: batch normalisation over each rank's films (``local``) or over all
            ranks' films (``global``).
        batch_norm_momentum: weight of the past in the moving statistics, 0 .. 1.
        exchange: how gradients cross: in one ``grouped`` operation, as one ``flat`` tensor, or
            ``each`` for itself.
        fusion_groups: into how many groups ``grouped`` parts the gradients.
        fusion_threshold_mib: size of Horovod's fusion buffer; 0 turns fusion off, -1 leaves it
            to Horovod.
        cycle_time_ms: how often Horovod looks for gradients that are ready; -1 leaves it to it.
        compression: ``fp16`` halves what crosses between ranks; ``none``.
        hierarchical_allreduce: first within each host, then between hosts: ``on`` or ``off``.
        autotune: ``on`` lets Horovod try settings while it trains, and keeps its log with the run.
        stall_warning_s: seconds without a rank's gradients after which Horovod names it.
        stall_shutdown_s: seconds after which the training is ended; 0 waits without end.
        checkpoint_steps: also write a checkpoint every so many steps; 0: after epochs only.
        keep_every_epochs: keep the checkpoint of every n-th epoch for good; 0: of none.
    """

    preset: str
    model: str
    weights: str
    device: str
    crop_size: int
    image_size: int
    batch_size: int
    epochs: int
    loss: str = "bce"
    label_smoothing: float = 0.0
    learning_rate: float
    scale_learning_rate: str
    warmup_epochs: float
    decay: str
    pipeline: str
    seed: int
    precision: str = "auto"
    xla: str = "auto"
    steps_per_call: int = 0
    accumulation_steps: int = 1
    batch_statistics: str
    batch_norm_momentum: float
    exchange: str = "grouped"
    fusion_groups: int = 1
    fusion_threshold_mib: float = -1.0
    cycle_time_ms: float = -1.0
    compression: str = "none"
    hierarchical_allreduce: str = "off"
    autotune: str = "off"
    stall_warning_s: float = 30.0
    stall_shutdown_s: float = 300.0
    checkpoint_steps: int = 0
    keep_every_epochs: int = 0

    @property
    def sha256(self) -> str:
        """Return the hash of all values."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


_FIELDS = dataclasses.fields(TrainConfig)
KEYS: dict[str, str] = {field.name: str(field.type) for field in _FIELDS}
DEFAULTS = {f.name: f.default for f in _FIELDS if f.default is not dataclasses.MISSING}


def list_presets() -> list[str]:
    """Return the names of the presets."""
    return sorted(path.stem for path in PRESETS_DIR.glob("*.toml"))


def load_config(file: Path | None = None, *, settings: Sequence[str] = ()) -> TrainConfig:
    """Return the preset's values, overridden by the file's, overridden by the settings.

    The preset is the one that the settings name, else the file, else ``lab``.

    Args:
        file: a TOML or JSON file of keys and values.
        settings: ``key=value`` texts, in the order given.

    Raises:
        UserError: an unknown key, preset or name; a value of another type or out of
            bounds; a file that cannot be read.
    """
    given = _read_file(file) if file else {}
    source = dict.fromkeys(given, str(file))
    for setting in settings:
        key, value = _parse_setting(setting)
        given[key], source[key] = value, f"--set {setting}"
    preset = given.get("preset", DEFAULT_PRESET)
    if preset not in list_presets():
        raise unknown_name("preset", str(preset), known=list_presets())
    path = PRESETS_DIR / f"{preset}.toml"
    preset_values = tomllib.loads(path.read_text(encoding="utf-8"))
    values = preset_values | given | {"preset": preset}
    source = dict.fromkeys(preset_values, str(path)) | source
    return make_config(values, source=source)


def make_config(values: Mapping[str, Any], *, source: Mapping[str, str]) -> TrainConfig:
    """Return the configuration of these values, all checked.

    Args:
        values: a value for each key of `TrainConfig` that has no default.
        source: where each value comes from, for the message.

    Raises:
        UserError: an unknown or missing key, or a value that does not fit its key.
    """
    for key in values:
        if key not in KEYS:
            raise unknown_name("configuration key", key, known=KEYS)
    values = DEFAULTS | dict(values)
    missing = [key for key in KEYS if key not in values]
    if missing:
        places = ", ".join(sorted(set(source.values()))) or "the configuration"
        raise UserError(
            "a value for every configuration key",
            found=f"no {', '.join(missing)} in {places}",
            fix="add them",
        )
    checked = {
        key: _check_value(key, values[key], where=source.get(key, "the configuration"))
        for key in KEYS
    }
    return TrainConfig(**checked)


def render_config(config: TrainConfig) -> str:
    """Return the configuration as JSON text, with its schema_version."""
    values = {"schema_version": SCHEMA_VERSION} | dataclasses.asdict(config)
    return json.dumps(values, indent=1) + "\n"


def parse_config(text: str, *, where: str) -> TrainConfig:
    """Return the configuration that `render_config` wrote.

    Raises:
        UserError: the text is no configuration of this schema.
    """
    try:
        values = json.loads(text)
        if not isinstance(values, dict) or values.pop("schema_version") != SCHEMA_VERSION:
            raise ValueError("another schema_version")
    except (ValueError, KeyError) as error:
        raise UserError(
            f"a configuration of schema_version {SCHEMA_VERSION}",
            found=f"{where}: {error!r}",
            fix="use a run folder that this program wrote",
        ) from error
    return make_config(values, source=dict.fromkeys(values, where))


def find_differences(one: TrainConfig, other: TrainConfig) -> list[str]:
    """Return ``key: value here, value there`` for each key that differs."""
    pairs = [(key, getattr(one, key), getattr(other, key)) for key in KEYS]
    return [f"{key}: {a!r} and {b!r}" for key, a, b in pairs if a != b]


def _parse_setting(setting: str) -> tuple[str, Any]:
    key, separator, text = setting.partition("=")
    if not separator or not key:
        raise UserError("--set key=value", found=f"{setting!r}", fix="e.g. --set epochs=3")
    kind = KEYS.get(key)
    if kind is None:
        raise unknown_name("configuration key", key, known=KEYS)
    if kind == "str":
        return key, text
    try:
        return key, int(text) if kind == "int" else float(text)
    except ValueError:
        return key, text  # the check of types names it


def _read_file(file: Path) -> dict[str, Any]:
    fix = "give a TOML or JSON file of keys and values, such as those in chexnet/presets"
    try:
        text = file.read_text(encoding="utf-8")
        values = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UserError(
            "a configuration file", found=f"{file}: {error.strerror}", fix=fix
        ) from error
    except ValueError as error:
        raise UserError("a configuration file", found=f"{file}: {error}", fix=fix) from error
    if not isinstance(values, dict):
        raise UserError("keys and values", found=f"{file}: {type(values).__name__}", fix=fix)
    # So that a run's config.json can be given as a file.
    values.pop("schema_version", None)
    return values


def _check_value(key: str, value: object, *, where: str) -> str | int | float:
    kind = KEYS[key]
    types = {"str": (str,), "int": (int,), "float": (int, float)}[kind]
    if isinstance(value, bool) or not isinstance(value, types):
        raise UserError(
            f"{key}: a value of type {kind}",
            found=f"{value!r} in {where}",
            fix=f"give a {kind}",
        )
    if key in CHOICES and value not in CHOICES[key]:
        raise unknown_name(key, str(value), known=CHOICES[key])
    if key in BOUNDS:
        low, high = BOUNDS[key]
        # Written so that nan fails as well.
        if not (low <= value and value < float("inf") and (high is None or value <= high)):
            bound = f"from {low} to {high}" if high is not None else f"at least {low} and finite"
            raise UserError(f"{key} {bound}", found=f"{value!r} in {where}", fix=f"change {key}")
    return float(value) if kind == "float" else value
