"""Predicts how training scales: what a step costs on N GPUs, and which term binds.

Knows an α-β model of the exchange of gradients (ring, tree, Horovod's hierarchical way), what of
it hides behind the computation, ranks that wait for the slowest, and input that is shared.
Pure arithmetic: it measures nothing. Leaves published tables and fitting to
``containers.published``, printing to ``containers.scaling_plan``.

Sources: ring and its bound: Thakur, Rabenseifner, Gropp 2005 (IJHPCA 19(1)); Patarasuk, Yuan 2009
(JPDC 69(2)). Steps inside and between nodes, the tree, and the latencies that are the defaults:
NCCL's own model, src/graph/tuning.cc (protocol Simple). Hierarchical: Horovod's
``NCCLHierarchicalAllreduce``. The slowest of N: Blom 1958.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from env.errors import UserError, unknown_name

RING, TREE, HIERARCHICAL, AUTO = "ring", "tree", "hierarchical", "auto"
ALGORITHMS = (AUTO, RING, TREE, HIERARCHICAL)
COMPUTE, LATENCY, BANDWIDTH = "compute", "exchange latency", "exchange bandwidth"
STRAGGLERS, INPUT, STORAGE = "stragglers", "input", "storage"
TERMS = (COMPUTE, LATENCY, BANDWIDTH, STRAGGLERS, INPUT, STORAGE)
# The backward pass makes two products where the forward pass makes one: so much of a step is
# there to hide an exchange in.
BACKWARD = 2 / 3
# DenseNet-121 with 14 outputs has 6,968,206 trainable numbers of 4 bytes.
GRADIENT_MIB = 26.58
NEAR_IDEAL = 0.95  # efficiency above which nothing but computing is called binding


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What connects and feeds GPUs.

    Attributes:
        gpus_per_node: ranks that share a node.
        latency_us: of one message between nodes.
        bandwidth_gb_s: of one node's network, each way, GB/s; 100 Gb/s are 12.5.
        intra_latency_us: of one message between GPUs of a node.
        intra_bandwidth_gb_s: between neighbouring GPUs of a node, each way, GB/s.
        input_images_per_s: that one node can prepare; 0 for no bound.
        storage_images_per_s: that the file system gives all nodes together; 0 for no bound.
    """

    gpus_per_node: int = 4
    latency_us: float = 9.6
    bandwidth_gb_s: float = 12.5
    intra_latency_us: float = 3.4
    intra_bandwidth_gb_s: float = 50.0
    input_images_per_s: float = 0.0
    storage_images_per_s: float = 0.0

    def nodes(self, ranks: int) -> int:
        """Return how many nodes so many ranks take."""
        return -(-ranks // self.gpus_per_node)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is trained.

    Attributes:
        step_ms: of one GPU alone with its input at hand, ms.
        batch: films a GPU and step.
        gradient_mib: what crosses between ranks in each step, MiB.
        overlap: share of the exchange that may run while gradients are still computed, 0 .. 1;
            0 where all gradients cross in one operation at the end.
        cycle_ms: how often Horovod looks for gradients; half of it is waited on average.
        jitter_ms: standard deviation of a rank's step.
        algorithm: one of `ALGORITHMS`; ``auto`` is the faster of ring and tree, as NCCL chooses.
        decodes_all: every rank prepares the films of all ranks, as the pipeline ``old`` does.
        images: films in an epoch.
        epochs: to train.
    """

    step_ms: float
    batch: int
    gradient_mib: float = GRADIENT_MIB
    overlap: float = 0.0
    cycle_ms: float = 1.0
    jitter_ms: float = 0.0
    algorithm: str = AUTO
    decodes_all: bool = False
    images: int = 77871
    epochs: int = 10


@dataclass(frozen=True)
class Exchange:
    """One sum of all gradients over all ranks.

    Attributes:
        algorithm: how.
        latency_ms: what it costs however little crosses, ms.
        transfer_ms: what the bytes cost, ms.
    """

    algorithm: str
    latency_ms: float
    transfer_ms: float

    @property
    def total_ms(self) -> float:
        """Return the time of both, ms."""
        return self.latency_ms + self.transfer_ms


@dataclass(frozen=True)
class Prediction:
    """What so many GPUs are predicted to do.

    Attributes:
        ranks: GPUs.
        nodes: that hold them.
        images_per_s: of all of them.
        efficiency: against so many times one GPU.
        step_ms: of one step of all.
        terms_ms: what each of `TERMS` asks for, ms. The first four add up; input and storage run
            beside them, and the longest of the three is the step.
        bound_by: the term that keeps it from more; ``compute`` where little is lost.
        steps_per_epoch: of all ranks together.
        hours: for all epochs.
        node_hours: hours times nodes.
    """

    ranks: int
    nodes: int
    images_per_s: float
    efficiency: float
    step_ms: float
    terms_ms: dict[str, float]
    bound_by: str
    steps_per_epoch: int
    hours: float
    node_hours: float


def model_exchange(
    ranks: int, *, gradient_mib: float, cluster: Cluster, algorithm: str
) -> Exchange:
    """Return what one allreduce costs.

    Args:
        ranks: that take part, filling one node after the other.
        gradient_mib: of each rank, MiB.
        cluster: the links.
        algorithm: one of `ALGORITHMS`.

    Raises:
        UserError: an unknown algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise unknown_name("algorithm", algorithm, known=ALGORITHMS)
    if ranks == 1:
        return Exchange(algorithm, 0.0, 0.0)
    if algorithm == AUTO:
        both = [
            model_exchange(ranks, gradient_mib=gradient_mib, cluster=cluster, algorithm=one)
            for one in (RING, TREE)
        ]
        return min(both, key=lambda one: one.total_ms)
    local, nodes = min(ranks, cluster.gpus_per_node), cluster.nodes(ranks)
    inside = gradient_mib * 2**20 / (cluster.intra_bandwidth_gb_s * 1e6)  # ms for all bytes once
    between = gradient_mib * 2**20 / (cluster.bandwidth_gb_s * 1e6)
    slowest = max(inside, between) if nodes > 1 else inside
    if algorithm == RING:
        # Every byte but each rank's own share crosses every link twice.
        far = 2 * (nodes - 1)
        near = 2 * (ranks - 1) - far
        transfer = 2 * (ranks - 1) / ranks * slowest
    elif algorithm == TREE:
        # Up and down: a chain inside each node, a tree of nodes.
        near, far = 2 * (local - 1), 2 * math.ceil(math.log2(nodes))
        transfer = 2 * slowest
    else:
        # Reduce-scatter inside, allreduce of the shares between nodes, allgather inside. The
        # shares of a node's ranks cross its network together.
        near, far = 2 * (local - 1), 2 * (nodes - 1)
        transfer = 2 * (local - 1) / local * inside + 2 * (nodes - 1) / nodes * between
    latency = (near * cluster.intra_latency_us + far * cluster.latency_us) / 1000
    return Exchange(algorithm, latency, transfer)


def wait_for_slowest(ranks: int) -> float:
    """Return how many standard deviations the slowest of so many equal ranks is late.

    Blom's approximation of the largest of N normal numbers: 0 for one rank.
    """
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def model_terms(ranks: int, *, work: Work, cluster: Cluster) -> dict[str, float]:
    """Return what each of `TERMS` asks of a step, ms.

    What hides behind the backward pass is taken off latency and bandwidth alike.
    """
    exchange = model_exchange(
        ranks, gradient_mib=work.gradient_mib, cluster=cluster, algorithm=work.algorithm
    )
    latency = exchange.latency_ms + (work.cycle_ms / 2 if ranks > 1 else 0.0)
    total = latency + exchange.transfer_ms
    hidden = min(work.overlap * total, BACKWARD * work.step_ms)
    seen = 1 - hidden / total if total else 0.0
    # Ranks spread as evenly as they go: the fullest node is the slowest to prepare.
    films = work.batch * min(ranks, cluster.gpus_per_node) * (ranks if work.decodes_all else 1)
    read = work.batch * ranks * (ranks if work.decodes_all else 1)
    return {
        COMPUTE: work.step_ms,
        LATENCY: latency * seen,
        BANDWIDTH: exchange.transfer_ms * seen,
        STRAGGLERS: work.jitter_ms * wait_for_slowest(ranks),
        INPUT: _ms(films, cluster.input_images_per_s),
        STORAGE: _ms(read, cluster.storage_images_per_s),
    }


def _ms(images: int, images_per_s: float) -> float:
    return 1000 * images / images_per_s if images_per_s else 0.0


def predict(ranks: int, *, work: Work, cluster: Cluster) -> Prediction:
    """Return what so many GPUs do.

    Raises:
        UserError: a number that makes no sense.
    """
    _refuse_nonsense(work, cluster)
    if ranks < 1:
        raise UserError("1 GPU or more", found=str(ranks), fix="correct --gpus")
    terms = model_terms(ranks, work=work, cluster=cluster)
    step_ms = _step(terms)
    alone_ms = _step(model_terms(1, work=work, cluster=cluster))
    efficiency = alone_ms / step_ms
    steps = max(1, work.images // (work.batch * ranks))  # as the training program counts them
    hours = work.epochs * steps * step_ms / 3.6e6
    nodes = cluster.nodes(ranks)
    return Prediction(
        ranks=ranks, nodes=nodes, images_per_s=1000 * work.batch * ranks / step_ms,
        efficiency=efficiency, step_ms=step_ms, terms_ms=terms, bound_by=_bound(terms, efficiency),
        steps_per_epoch=steps, hours=hours, node_hours=hours * nodes,
    )  # fmt: skip


def predict_all(numbers: Sequence[int], *, work: Work, cluster: Cluster) -> list[Prediction]:
    """Return a prediction for each number of GPUs.

    Raises:
        UserError: a number that makes no sense.
    """
    return [predict(number, work=work, cluster=cluster) for number in numbers]


def _step(terms: dict[str, float]) -> float:
    path = sum(terms[name] for name in (COMPUTE, LATENCY, BANDWIDTH, STRAGGLERS))
    return max(path, terms[INPUT], terms[STORAGE])


def _bound(terms: dict[str, float], efficiency: float) -> str:
    step_ms = _step(terms)
    for name in (INPUT, STORAGE):
        if terms[name] == step_ms:
            return name
    if efficiency >= NEAR_IDEAL:
        return COMPUTE
    return max((LATENCY, BANDWIDTH, STRAGGLERS), key=lambda name: terms[name])


def _refuse_nonsense(work: Work, cluster: Cluster) -> None:
    positive = {
        "--step-ms": work.step_ms, "--batch": work.batch, "--gradient-mib": work.gradient_mib,
        "--images": work.images, "--epochs": work.epochs, "--gpus-per-node": cluster.gpus_per_node,
        "--bandwidth-gbs": cluster.bandwidth_gb_s,
        "--intra-bandwidth-gbs": cluster.intra_bandwidth_gb_s,
    }  # fmt: skip
    at_least_0 = {
        "--latency-us": cluster.latency_us, "--intra-latency-us": cluster.intra_latency_us,
        "--jitter-ms": work.jitter_ms, "--cycle-ms": work.cycle_ms,
        "--input-images-per-s": cluster.input_images_per_s,
        "--storage-images-per-s": cluster.storage_images_per_s,
    }  # fmt: skip
    for name, value in positive.items():
        if not 0 < value < math.inf:  # so that nan fails as well
            raise UserError(f"{name} above 0", found=str(value), fix="see --help")
    for name, value in at_least_0.items():
        if not 0 <= value < math.inf:
            raise UserError(f"{name} of 0 or more", found=str(value), fix="see --help")
    if not 0 <= work.overlap <= 1:
        raise UserError("--overlap from 0 to 1", found=str(work.overlap), fix="see --help")
