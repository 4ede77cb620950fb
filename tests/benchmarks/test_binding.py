"""The comparison of mappings: exact command lines, real masks, and what is made of the rates."""

import json
import os
import sys
from pathlib import Path

import jsonschema
import pytest

import benchmarks
from benchmarks import binding
from env.binding import HostShare, plan_job
from env.errors import UserError
from env.topology import Core, HostTopology

FOLDER = Path(benchmarks.__file__).parent
FOUR = HostTopology("h", tuple(Core((n,)) for n in range(4)), (0, 1, 2, 3), (0, 1, 2, 3))


def tail(line):
    return line[line.index("-np") :]


def test_every_mapping_is_told_in_open_mpi_s_own_words(tmp_path):
    plan = plan_job([HostShare(FOUR, 2)])
    lines = {
        name: tail(binding.render_mapping(name, plan=plan, command=["prog"], folder=tmp_path))
        for name in binding.MAPPINGS
    }
    assert lines == {
        "--map-by socket": ["-np", "2", "--map-by", "socket", "prog"],
        "--map-by core": ["-np", "2", "--map-by", "core", "prog"],
        "--map-by slot": ["-np", "2", "--map-by", "slot", "prog"],
        "--bind-to none": ["-np", "2", "--bind-to", "none", "prog"],
        "plan": ["-np", "2", "--map-by", "slot:PE=2", "--bind-to", "core", "prog"],
    }


def test_a_plan_that_needs_a_file_gets_it(tmp_path):
    topology = HostTopology("h", tuple(Core((n,)) for n in range(4)), (2, 3), (0, 1, 2, 3))
    plan = plan_job([HostShare(topology, 2)])
    binding.render_mapping("plan", plan=plan, command=["prog"], folder=tmp_path)
    assert (tmp_path / "rankfile").read_text() == "rank 0=h slot=2\nrank 1=h slot=3\n"


@pytest.mark.mpi
def test_the_masks_are_those_that_the_ranks_see(tmp_path):
    topology = HostTopology(os.uname().nodename, (Core((0,)),), (0,), (0,))
    plan = plan_job([HostShare(topology, 1)])
    (free,) = binding.measure_masks("--bind-to none", plan=plan, folder=tmp_path / "none")
    (bound,) = binding.measure_masks("plan", plan=plan, folder=tmp_path / "plan")
    cpus = sorted(os.sched_getaffinity(0))
    assert free == binding.render_cpu_list(cpus)
    assert bound == str(cpus[0])


def test_a_result_is_the_median_with_its_range_and_the_masks():
    rates = {"--map-by socket": [10.0, 30.0, 20.0], "plan": [50.0]}
    masks = {"--map-by socket": ["0-1", "0-1"], "plan": ["0", "1"]}
    first, second = binding.describe(rates, masks=masks)
    assert (first["value"], first["slowest"], first["fastest"]) == (20.0, 10.0, 30.0)
    assert (first["cpus"], second["cpus"]) == (["0-1", "0-1"], ["0", "1"])
    assert binding.compare({"--map-by socket": 20.0, "plan": 50.0}) == {
        "plan / --map-by socket": 2.5
    }


def test_a_run_that_fails_is_told_with_its_last_words():
    with pytest.raises(UserError, match=r"exit code 3 of .*\nout of luck"):
        binding._run([sys.executable, "-c", "import sys; print('out of luck', file=sys.stderr); "
                      "sys.exit(3)"])  # fmt: skip


def test_the_committed_record():
    data = json.loads((FOLDER / "results" / "binding.json").read_text())
    jsonschema.validate(data, json.loads((FOLDER / "record.schema.json").read_text()))
    results = {result["name"]: result for result in data["results"]}
    assert list(results) == list(binding.MAPPINGS)
    rates = {name: result["value"] for name, result in results.items()}
    assert data["ratios"] == binding.compare(rates)
