"""Run folders as a training of 14 findings leaves them, without a training: for the report.

Knows the files of a run; the numbers in them are made up.

Scores are binormal: logits of films with a finding lie ``d`` above those without, so that the
AUROC is Phi(d / sqrt 2) and the likelihood ratio, hence a calibrated probability, is known.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
from PIL import Image

from chexnet.labels import FINDINGS

OFFICIAL_FILMS = 25_596
AUROCS = (0.77, 0.88, 0.83, 0.70, 0.82, 0.76, 0.71, 0.85, 0.745, 0.842, 0.91, 0.82, 0.775, 0.90)
SHARES = (0.128, 0.042, 0.182, 0.239, 0.068, 0.063, 0.022, 0.104, 0.071, 0.036, 0.043, 0.017,
          0.045, 0.0034)  # fmt: skip
NUM_SIMULATED = 6000
SHA = "5f" * 32
PUBLISHED = [
    {"work": "Wang 2017", "network": "ResNet-50", "px": 1024, "mean_auroc": 0.745,
     "findings": {name: value - 0.06 for name, value in zip(FINDINGS, AUROCS, strict=True)},
     "source": "made up for tests"},
    {"work": "Guendel 2018", "network": "DenseNet-121", "px": 1024, "mean_auroc": 0.807,
     "findings": {name: value + 0.004 for name, value in zip(FINDINGS, AUROCS, strict=True)},
     "source": "made up for tests"},
    {"work": "Xiao 2023", "network": "ViT-B", "px": 224, "mean_auroc": 0.830, "findings": {},
     "source": "made up for tests"},
]  # fmt: skip


def make_run(run: Path, *, data: Path | None = None, seed: int = 0, epochs: int = 8) -> Path:
    """Write a run folder in which nothing is missing."""
    (run / "plots").mkdir(parents=True)
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / f"epoch-{epochs:04d}.npz").write_bytes(bytes(1000))
    sha256 = make_data(data) if data else SHA
    write(run / "config.json", {"schema_version": 2, "preset": "paper", "model": "densenet121",
                                "epochs": epochs, "batch_size": 16, "seed": seed})  # fmt: skip
    write(run / "record.json", make_record(run, data=data, sha256=sha256))
    write(run / "evaluation.json", make_evaluation(seed, sha256=sha256, epoch=epochs))
    write(run / "environment.json", make_environment())
    write(run / "plan.json", make_plan())
    lines = make_metrics(seed, epochs=epochs)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "metrics.jsonl").write_text(text)
    write(run / "plots" / "gallery.json",
          {"schema_version": 1, "note": "Not for clinical use", "split": "test", "method": "cam",
           "data_sha256": sha256, "checkpoint_sha256": SHA, "calibrated": True,
           "pictures": make_gallery(run / "plots", seed)})  # fmt: skip
    return run


def write(path: Path, values: object) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def make_data(data: Path) -> str:
    """Write the dataset.json of a data folder and return its hash."""
    data.mkdir(parents=True)
    splits = {
        name: {
            "num_examples": films,
            "positives": {f: round(films * s) for f, s in zip(FINDINGS, SHARES, strict=True)},
            "films": {"name": f"{name}.csv", "sha256": SHA, "num_bytes": 1},
            "shards": [],
        }
        for name, films in (("train", 78_571), ("validation", 7_953), ("test", OFFICIAL_FILMS))
    }
    values = {"schema_version": 2, "classes": list(FINDINGS), "split": "official", "seed": 0,
              "image_size": 256, "format": "fast", "source": {"Data_Entry_2017.csv": SHA},
              "quarantined": [], "splits": splits}  # fmt: skip
    write(data / "dataset.json", values)
    return hashlib.sha256((data / "dataset.json").read_bytes()).hexdigest()


def make_record(run: Path, *, data: Path | None, sha256: str) -> dict:
    """Return a record of a finished training on two hosts with four GPUs each."""
    hosts = ["gpu-a"] * 4 + ["gpu-b"] * 4
    return {
        "schema_version": 2, "status": "finished",
        "command": ["/opt/chexnet/__main__.py", "train", "--data", str(data or "/data/nih256"),
                    "--run", str(run), "--set", "preset=paper"],
        "started": "2026-11-29T20:11:05+00:00", "ended": "2026-11-29T20:58:41+00:00",
        "ranks": 8, "hosts": hosts, "device": "gpu", "data": str(data or "/data/nih256"),
        "data_sha256": sha256, "lock_sha256": "ab" * 32, "git_revision": "c25c57d" + "0" * 33,
        "versions": {"python": "3.11.2", "tensorflow": "2.0", "keras": "3.0", "horovod": "0.1"},
        "horovod": {"mpi_enabled": True, "nccl_built": True},
        "resumed_from": [{"epoch": 3, "step": 1800, "ranks": 8}],
        "startup_s": {"import": 6.1, "build": 2.0, "trace": 14.2, "first_step": 9.7},
        "throughput": {"images_per_s": 5120.4, "images_per_s_with_validation": 4710.0,
                       "seconds": 2540.0},
        "results": {"epoch": 8, "loss": 0.151, "validation_auroc": 0.836}, "error": None,
        "effective": {"precision": "mixed_float16", "xla": "off", "steps_per_call": 10},
    }  # fmt: skip


def make_evaluation(seed: int = 0, *, sha256: str = SHA, epoch: int = 8) -> dict:
    """Return an evaluation on as many films as NIH's test list has."""
    generator = np.random.default_rng(seed)
    rows = [
        score_finding(name, auroc=auroc, share=share, generator=generator)
        for name, auroc, share in zip(FINDINGS, AUROCS, SHARES, strict=True)
    ]
    mean = float(np.mean([row["auroc"] for row in rows]))
    return {
        "schema_version": 2, "split": "test", "split_kind": "official", "data": "/data/nih256",
        "split_title": "test, NIH's official list (25,596 films)",
        "data_sha256": sha256, "checkpoint": f"epoch-{epoch:04d}.npz", "checkpoint_sha256": SHA,
        "epoch": epoch, "ranks": 8,
        "num_examples": OFFICIAL_FILMS, "num_patients": 2797, "mean_auroc": mean,
        "mean_auroc_interval": [mean - 0.006, mean + 0.006], "num_defined": 14,
        "mean_auprc": float(np.mean([row["auprc"] for row in rows])),
        "bootstrap": {"resamples": 1000, "by": "patient", "level": 0.95, "seed": 0},
        "calibration": {"method": "temperature", "fitted_on": "validation",
                        "parameters": {"temperature": 1.31}},
        "findings": rows,
        "published": {"comparable": PUBLISHED, "refused": None},
        "boxes": make_boxes(), "thresholds_chosen_on": "validation", "loss": 0.151,
        "seconds": 21.0, "images_per_s": 1218.0,
    }  # fmt: skip


def make_boxes() -> dict:
    """Return agreement with boxes, of the eight findings that have some."""
    rows = [{"finding": name, "num_boxes": 100 + number, "mass_inside": 0.30 + 0.01 * number,
             "mass_by_chance": 0.08, "hit_rate": 0.5 + 0.02 * number}
            for number, name in enumerate(FINDINGS[:8])]  # fmt: skip
    return {"file": "BBox_List_2017.csv", "method": "cam", "num_boxes": 828, "mass_inside": 0.335,
            "mass_by_chance": 0.08, "hit_rate": 0.57, "findings": rows}  # fmt: skip


def score_finding(name: str, *, auroc: float, share: float, generator: np.random.Generator) -> dict:
    """Return the scores of a finding with about this AUROC and this share of films."""
    distance = math.sqrt(2) * NormalDist().inv_cdf(auroc)
    positives = max(20, round(NUM_SIMULATED * share))
    labels = np.arange(NUM_SIMULATED) < positives
    x = generator.standard_normal(NUM_SIMULATED) + distance * labels
    prior = math.log(share / (1 - share))
    probabilities = 1 / (1 + np.exp(-(prior + distance * x - distance**2 / 2)))
    order = np.argsort(-x)
    hits, false = np.cumsum(labels[order]), np.cumsum(~labels[order])
    tpr, fpr = hits / positives, false / (NUM_SIMULATED - positives)
    precision = hits / (hits + false)
    area = float(np.sum(tpr * np.diff(fpr, prepend=0)))
    num_positives = round(OFFICIAL_FILMS * share)
    error = math.sqrt(area * (1 - area) / num_positives)
    points = {"youden": np.argmax(tpr - fpr), "sensitivity 0.90": np.searchsorted(tpr, 0.9)}
    return {
        "finding": name, "num_positives": num_positives,
        "num_negatives": OFFICIAL_FILMS - num_positives, "auroc": area,
        "auroc_interval": [area - 2 * error, min(1.0, area + 2 * error)],
        "auprc": float(np.sum(precision * np.diff(tpr, prepend=0))), "auprc_interval": None,
        "brier": float(np.mean((probabilities - labels) ** 2)), "expected_error": 0.012,
        "calibration_curve": _group(probabilities, labels),
        **_curves(fpr, tpr, precision),
        "thresholds": [
            {"name": label, "threshold": float(probabilities[order][at]),
             "sensitivity": float(tpr[at]), "specificity": float(1 - fpr[at]),
             "ppv": float(precision[at]), "npv": 0.98}
            for label, at in points.items()
        ],
    }  # fmt: skip


def _curves(fpr: np.ndarray, tpr: np.ndarray, precision: np.ndarray) -> dict:
    kept = np.linspace(0, len(fpr) - 1, 199).astype(int)
    return {
        "roc": {"fpr": [0.0, *fpr[kept].tolist()], "tpr": [0.0, *tpr[kept].tolist()]},
        "pr": {"recall": tpr[kept].tolist(), "precision": precision[kept].tolist()},
    }


def _group(probabilities: np.ndarray, labels: np.ndarray) -> dict:
    order = np.argsort(probabilities)
    predicted, observed = (np.array_split(one[order], 10) for one in (probabilities, labels))
    return {
        "predicted": [float(group.mean()) for group in predicted],
        "observed": [float(group.mean()) for group in observed],
        "count": [len(group) for group in predicted],
    }


def make_metrics(seed: int = 0, *, epochs: int = 8, steps: int = 600, window: int = 50) -> list:
    """Return the lines of metrics.jsonl."""
    generator = np.random.default_rng(seed)
    lines = []
    for epoch in range(1, epochs + 1):
        base = {"schema_version": 2, "epoch": epoch}
        for step in range((epoch - 1) * steps + window, epoch * steps + 1, window):
            rate = (
                1e-3 * min(1.0, step / steps) * 0.5 * (1 + math.cos(step / steps / epochs * 3.14))
            )
            lines.append(base | {
                "kind": "steps", "step": step, "examples": 128 * step, "lr": rate,
                "loss": 0.15 + 0.08 * math.exp(-step / 700) + 0.003 * generator.standard_normal(),
                "images_per_s": 5100 + 90 * generator.standard_normal(),
                "input_wait_fraction": abs(0.02 * generator.standard_normal()),
            })  # fmt: skip
        lines.append(base | {
            "kind": "epoch", "step": epoch * steps, "examples": 128 * epoch * steps, "lr": rate,
            "loss": 0.15 + 0.08 * math.exp(-epoch * steps / 700),
            "images_per_s": 5100.0, "input_wait_fraction": 0.02, "seconds": 300.0,
            "validation_auroc": 0.84 - 0.2 * math.exp(-epoch / 1.7), "validation_num_defined": 14,
            "validation_loss": 0.158 + 0.05 * math.exp(-epoch / 2),
        })  # fmt: skip
    return lines


def make_environment() -> dict:
    """Return a validation report with a warning."""

    def result(id: str, status: str, found: str, fix: str = "") -> dict:
        return {"id": id, "status": status, "phase": "static", "expected": "as locked",
                "found": found, "where": "", "fix": fix, "hosts": ["gpu-a", "gpu-b"],
                "ranks": [0, 4]}  # fmt: skip

    return {
        "schema_version": 1, "stack": "cuda12", "started": "2026-11-29T20:10:01Z",
        "hosts": ["gpu-a", "gpu-b"], "exit_code": 0,
        "results": [result(f"made.check-{n}", "PASS", "as locked") for n in range(71)]
        + [result("network.rdma", "WARN", "one of two ports is down", "ask for the cable"),
           result("gpu.topology", "INFO", "NV12 between all"),
           result("slurm.cgroup", "SKIP", "not under Slurm")],
    }  # fmt: skip


def make_plan(hosts: int = 2, ranks: int = 4, cores: int = 12) -> dict:
    """Return a binding plan: ``ranks`` on each host, with ``cores`` each and a GPU."""
    rows = [
        {"rank": host * ranks + local, "local_rank": local, "host": f"gpu-{'ab'[host]}",
         "cores": list(range(local * cores, (local + 1) * cores)), "gpu": local,
         "threads": cores, "gpu_pci": f"0000:{local}1:00.0", "gpu_uuid": None,
         "memory_node": local // 2, "note": "", "slots": []}
        for host in range(hosts) for local in range(ranks)
    ]  # fmt: skip
    return {"schema_version": 2, "cores_per_rank": cores, "mapping": "slot", "ranks": rows}


def make_gallery(plots: Path, seed: int = 0, *, size: int = 224) -> list[dict]:
    """Write a picture of each finding and return the list of them."""
    generator = np.random.default_rng(seed)
    rows = []
    across, down = np.meshgrid(np.arange(size), np.arange(size))
    for number, finding in enumerate(FINDINGS):
        x, y = generator.uniform(0.25, 0.75, 2) * size
        spot = np.exp(-((across - x) ** 2 + (down - y) ** 2) / (2 * (0.1 * size) ** 2))
        grey = 60 + 50 * np.sin(across / size * 9) + 8 * generator.standard_normal((size, size))
        pixels = np.stack([grey + 150 * spot, grey + 40 * spot, grey], axis=-1)
        name = f"gallery-{number + 1:02d}.png"
        picture = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
        picture.quantize(128).save(plots / name)
        rows.append({"file": name, "finding": finding, "film": f"000{number:05d}_000.png",
                     "probability": float(generator.uniform(0.1, 0.9)),
                     "label": 1})  # fmt: skip
    return rows
