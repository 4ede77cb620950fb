"""The scaling model's arithmetic, against numbers worked out by hand and bounds from the papers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.scaling import (
    ALGORITHMS,
    AUTO,
    BANDWIDTH,
    COMPUTE,
    HIERARCHICAL,
    INPUT,
    LATENCY,
    RING,
    STORAGE,
    STRAGGLERS,
    TREE,
    Cluster,
    Work,
    model_exchange,
    model_terms,
    predict,
    wait_for_slowest,
)
from env.errors import UserError

# One byte each way takes 1 ns inside and 10 ns between nodes; 1e6 bytes 1 ms and 10 ms.
PLAIN = Cluster(gpus_per_node=4, latency_us=100, bandwidth_gb_s=0.1, intra_latency_us=10,
                intra_bandwidth_gb_s=1)  # fmt: skip
MILLION = 1e6 / 2**20  # bytes, in MiB


def exchange(ranks, algorithm, cluster=PLAIN):
    return model_exchange(ranks, gradient_mib=MILLION, cluster=cluster, algorithm=algorithm)


# (ranks, algorithm, latency in ms, transfer in ms), by hand:
# ring of 4 inside: 6 steps of 10 us; 2 x 3/4 of 1 ms. Ring of 8 on 2 nodes: 14 steps, of which 2
# cross (2 x 100 us + 12 x 10 us); 2 x 7/8 of the slower link's 10 ms. Tree of 8: 2 x 3 steps
# inside, 2 x 1 across. Hierarchical, 8: 2 x 3 inside and 2 x 1 across; 2 x 3/4 x 1 + 2 x 1/2 x 10.
@pytest.mark.parametrize(
    ("ranks", "algorithm", "latency", "transfer"),
    [
        (4, RING, 0.06, 1.5), (2, RING, 0.02, 1.0), (8, RING, 0.32, 17.5),
        (4, TREE, 0.06, 2.0), (8, TREE, 0.26, 20.0), (16, TREE, 0.46, 20.0),
        (4, HIERARCHICAL, 0.06, 1.5), (8, HIERARCHICAL, 0.26, 11.5),
        (16, HIERARCHICAL, 0.66, 16.5),
    ],
)  # fmt: skip
def test_an_exchange_costs_what_it_costs_by_hand(ranks, algorithm, latency, transfer):
    found = exchange(ranks, algorithm)
    assert found.latency_ms == pytest.approx(latency)
    assert found.transfer_ms == pytest.approx(transfer)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_rank_exchanges_nothing(algorithm):
    assert exchange(1, algorithm).total_ms == 0


@pytest.mark.parametrize("ranks", [2, 3, 4, 12, 100])
def test_on_one_node_and_on_nodes_of_one_gpu_the_hierarchy_is_the_ring(ranks):
    for cluster in (Cluster(gpus_per_node=ranks), Cluster(gpus_per_node=1)):
        ring, two = (exchange(ranks, one, cluster) for one in (RING, HIERARCHICAL))
        assert (ring.latency_ms, ring.transfer_ms) == pytest.approx(
            (two.latency_ms, two.transfer_ms)
        )


@given(ranks=st.integers(2, 4096), per_node=st.integers(1, 16))
def test_no_exchange_beats_the_bound_of_the_slowest_link(ranks, per_node):
    # Patarasuk and Yuan 2009: each process has to send 2 (N-1)/N of its data.
    cluster = Cluster(gpus_per_node=per_node, bandwidth_gb_s=0.1, intra_bandwidth_gb_s=1)
    nodes = math.ceil(ranks / per_node)
    least = max(2 * (nodes - 1) / nodes * 10, 2 * (min(ranks, per_node) - 1) / per_node * 1)
    for algorithm in ALGORITHMS:
        assert exchange(ranks, algorithm, cluster).transfer_ms >= least - 1e-9


def test_auto_is_the_ring_for_few_and_the_tree_for_many():
    slow = Cluster(gpus_per_node=1, latency_us=100, bandwidth_gb_s=1)
    assert exchange(4, AUTO, slow).algorithm == RING
    assert exchange(512, AUTO, slow).algorithm == TREE
    for ranks in (4, 512):
        both = [exchange(ranks, one, slow).total_ms for one in (RING, TREE)]
        assert exchange(ranks, AUTO, slow).total_ms == min(both)


# Expected largest of N standard normal numbers (Teichroew 1956): 0.5642, 1.0294, 1.4236, 1.7660.
@pytest.mark.parametrize(("ranks", "known"), [(2, 0.5642), (4, 1.0294), (8, 1.4236), (16, 1.766)])
def test_the_slowest_rank_is_as_late_as_tables_say(ranks, known):
    assert wait_for_slowest(ranks) == pytest.approx(known, abs=0.03)


def test_one_rank_waits_for_nobody():
    assert wait_for_slowest(1) == pytest.approx(0, abs=1e-12)


WORK = Work(step_ms=100, batch=50, gradient_mib=MILLION, cycle_ms=0, images=10_000, epochs=2)


def test_a_prediction_by_hand():
    found = predict(8, work=WORK, cluster=PLAIN)  # ring: 0.32 + 17.5 ms, tree 20.26
    assert found.step_ms == pytest.approx(117.82)
    assert found.images_per_s == pytest.approx(8 * 50 / 0.11782)
    assert found.efficiency == pytest.approx(100 / 117.82)
    assert (found.nodes, found.steps_per_epoch, found.bound_by) == (2, 25, BANDWIDTH)
    assert found.hours == pytest.approx(2 * 25 * 0.11782 / 3600)
    assert found.node_hours == pytest.approx(2 * found.hours)


def test_half_a_cycle_is_waited_where_there_are_others():
    work = Work(step_ms=100, batch=50, gradient_mib=MILLION, cycle_ms=4)
    assert model_terms(1, work=work, cluster=PLAIN)[LATENCY] == 0
    assert model_terms(2, work=work, cluster=PLAIN)[LATENCY] == pytest.approx(2.02)


@pytest.mark.parametrize(
    ("overlap", "step_ms", "seen"),
    # Of 17.82 ms: nothing hides; half hides; all would hide, but in two thirds of 15 ms.
    [(0.0, 100, 17.82), (0.5, 100, 8.91), (1.0, 100, 0.0), (1.0, 15, 7.82)],
)
def test_an_exchange_hides_behind_the_backward_pass_and_no_further(overlap, step_ms, seen):
    work = Work(step_ms=step_ms, batch=50, gradient_mib=MILLION, cycle_ms=0, overlap=overlap)
    terms = model_terms(8, work=work, cluster=PLAIN)
    assert terms[LATENCY] + terms[BANDWIDTH] == pytest.approx(seen)


def test_input_of_a_node_is_shared_by_its_gpus_and_runs_beside():
    # Four GPUs of 500 images/s and a node that prepares 1,000: half of the time they wait.
    cluster = Cluster(gpus_per_node=4, input_images_per_s=1000, bandwidth_gb_s=1e6)
    for ranks, rate in ((1, 500), (2, 1000 * 100 / 100), (4, 1000), (8, 2000)):
        found = predict(ranks, work=WORK, cluster=cluster)
        assert found.images_per_s == pytest.approx(rate, rel=0.01)
    assert found.bound_by == INPUT


def test_a_pipeline_that_decodes_everything_everywhere_gains_nothing_by_more_nodes():
    work = Work(step_ms=100, batch=50, decodes_all=True)
    cluster = Cluster(gpus_per_node=1, input_images_per_s=500, bandwidth_gb_s=1e6)
    rates = [predict(n, work=work, cluster=cluster).images_per_s for n in (1, 2, 8)]
    assert rates == pytest.approx([500, 500, 500])


def test_storage_is_shared_by_all():
    cluster = Cluster(gpus_per_node=4, storage_images_per_s=3000, bandwidth_gb_s=1e6)
    found = predict(64, work=WORK, cluster=cluster)
    assert found.images_per_s == pytest.approx(3000)
    assert found.bound_by == STORAGE


def test_what_binds_is_named():
    near = Cluster(gpus_per_node=8)
    assert predict(8, work=WORK, cluster=near).bound_by == COMPUTE
    far = Cluster(gpus_per_node=1, latency_us=5000)
    assert predict(8, work=WORK, cluster=far).bound_by == LATENCY
    varied = Work(step_ms=100, batch=50, gradient_mib=MILLION, jitter_ms=20)
    assert predict(8, work=varied, cluster=near).bound_by == STRAGGLERS


@given(
    ranks=st.integers(1, 2048), step_ms=st.floats(0.1, 1e4), jitter=st.floats(0, 100),
    fed=st.just(0.0) | st.floats(0.01, 1e5), overlap=st.floats(0, 1),
)  # fmt: skip
def test_no_prediction_is_better_than_ideal(ranks, step_ms, jitter, fed, overlap):
    work = Work(step_ms=step_ms, batch=64, jitter_ms=jitter, overlap=overlap)
    found = predict(ranks, work=work, cluster=Cluster(input_images_per_s=fed))
    assert 0 < found.efficiency <= 1 + 1e-9
    path = sum(found.terms_ms[name] for name in (COMPUTE, LATENCY, BANDWIDTH, STRAGGLERS))
    assert found.step_ms == max(path, found.terms_ms[INPUT])


@pytest.mark.parametrize(
    ("work", "cluster", "word"),
    [
        ({"step_ms": 0}, {}, "--step-ms"), ({"step_ms": math.nan}, {}, "--step-ms"),
        ({"batch": -1}, {}, "--batch"), ({"overlap": 1.5}, {}, "--overlap"),
        ({"jitter_ms": -1}, {}, "--jitter-ms"), ({"algorithm": "star"}, {}, "ring, tree"),
        ({}, {"bandwidth_gb_s": 0}, "--bandwidth-gbs"), ({}, {"latency_us": -1}, "--latency-us"),
        ({}, {"gpus_per_node": 0}, "--gpus-per-node"),
    ],
)  # fmt: skip
def test_numbers_that_make_no_sense_are_refused_by_name(work, cluster, word):
    with pytest.raises(UserError, match=word):
        predict(2, work=Work(**{"step_ms": 1, "batch": 1, **work}), cluster=Cluster(**cluster))


def test_less_than_one_gpu_is_refused():
    with pytest.raises(UserError, match="1 GPU or more"):
        predict(0, work=WORK, cluster=PLAIN)


def test_the_gradients_of_the_default_network():
    # DenseNet-121 below its head has 7,037,504 numbers, 83,648 of them statistics that are not
    # trained (Keras' model page and torchvision agree on the sum with a head of 1,000 outputs:
    # 7,978,856 trained); a head of 14 adds 14 x 1,025.
    trained = 7_978_856 - 1_025_000 + 14 * 1_025
    assert trained == 6_968_206
    assert Work(step_ms=1, batch=1).gradient_mib == pytest.approx(trained * 4 / 2**20, abs=0.005)
