"""A job's text: what sbatch reads, what bash makes of it, and that no value is taken apart."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invoke import Context

from commands.clusters import slurm_script
from containers.slurm_script import PROGRAM, JobRequest, job_name, read_program, render_script
from env.errors import UserError

DATA, RUN = Path("/d"), Path("/r")
# Prints how it was called; the code it returns is told by a file, by its verb.
STUB = """#!{python} -S
import json, os, pathlib, sys
here = pathlib.Path({here!r})
with (here / "calls").open("a") as file:
    file.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
verb = sys.argv[1] if len(sys.argv) > 1 else ""
if "--failed-hosts" in sys.argv and (here / "failed").exists():
    place = sys.argv[sys.argv.index("--failed-hosts") + 1]
    pathlib.Path(place).write_text((here / "failed").read_text())
if sys.argv[1:3] == ["show", "job"]:
    line = "JobId=7 ReqNodeList=(null) ExcNodeList=" + (here / "before").read_text() + " NumNodes=2"
    of_all = "SLURM_ARRAY_JOB_ID" in os.environ and "_" not in sys.argv[-1]
    print("\\n".join([line] * (2 if of_all else 1)))
code = here / ("code-" + verb)
sys.exit(int(code.read_text()) if code.exists() else 0)
"""


def options(text):
    """Return what sbatch is told, read by the rule of its manual: lines at the top alone."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            break
        if line.startswith("#SBATCH --"):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            found[name] = value
    return found


class Bench:
    """A folder in which a script runs with programs that only note how they were called."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        text = STUB.format(python=sys.executable, here=str(folder))
        for name in ("tasks", "scontrol"):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        (folder / "before").write_text("(null)")

    @property
    def program(self):
        return (str(self.folder / "bin/tasks"),)

    def run(self, text, **environ):
        calls = self.folder / "calls"
        calls.unlink(missing_ok=True)
        script = self.folder / "job.sh"
        script.write_text(text)
        subprocess.run(["bash", "-n", script], check=True)
        job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", **environ}
        done = subprocess.run(
            ["bash", script], env={"PATH": f"{self.folder}/bin:{os.environ['PATH']}", **job},
            capture_output=True, text=True, cwd=self.folder,
        )  # fmt: skip
        lines = calls.read_text().splitlines() if calls.exists() else []
        return done.returncode, [json.loads(line) for line in lines], done.stderr


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_sbatch_is_told_resources_signal_and_requeue():
    text = render_script(JobRequest(
        DATA, Path("/x/run 1"), nodes=2, gpus_per_node=4, cpus_per_gpu=8, mem="64G",
        time="2-12:00:00", partition="gpu", account="proj_7",
    ))  # fmt: skip
    assert options(text) == {
        "job-name": "chexnet-run-1", "nodes": "2", "ntasks-per-node": "4", "cpus-per-task": "8",
        "gpus-per-node": "4", "mem": "64G", "time": "2-12:00:00", "signal": "B:USR1@120",
        "requeue": "", "open-mode": "append", "output": "chexnet-%j.out", "partition": "gpu",
        "account": "proj_7",
    }  # fmt: skip


def test_without_gpus_none_are_asked_for_and_training_is_told(bench):
    request = JobRequest(DATA, bench.folder / "run", ranks_per_node=3, program=bench.program)
    text = render_script(request)
    assert "gpus-per-node" not in options(text)
    assert options(text)["ntasks-per-node"] == "3"
    code, calls, _ = bench.run(text)
    run = str(bench.folder / "run")
    assert code == 0
    failed = calls[0][calls[0].index("--failed-hosts") + 1]
    assert calls == [
        ["tasks", "validate-env", "--hosts", "slurm", "--device", "cpu", "--see", "/d", "--see",
         run, "--failed-hosts", failed, "--json", f"{run}/environment.json"],
        ["tasks", "train", "--hosts", "slurm", "--no-validate", "--resume", "--data", "/d", "--run",
         run, "--set", "device=cpu"],
    ]  # fmt: skip
    assert not Path(failed).exists()
    assert [path.name for path in Path(run).iterdir()] == ["slurm-7-0.log"]


@pytest.mark.parametrize(
    ("codes", "failed", "restarts", "expected", "ends"),
    [
        # Training was stopped with a checkpoint: again.
        ({"train": 75}, "", 0, [["requeue", "7"]], 0),
        ({"train": 75}, "", 2, [], 75),  # the limit
        ({"train": 1}, "", 0, [], 1),
        ({"train": 2}, "", 0, [], 2),
        # Nodes that failed are left out.
        ({"validate-env": 1}, "n2", 1,
         [["requeue", "7"], ["update", "JobId=7", "ExcNodeList=n2"]], 0),
        ({"validate-env": 1}, "n2", 2, [], 1),
        # A check failed everywhere or could not tell: nobody to leave out.
        ({"validate-env": 1}, "\n", 0, [], 1),
        ({"validate-env": 3}, "", 0, [], 3),
    ],
)  # fmt: skip
def test_what_ends_a_job_and_what_queues_it_again(bench, codes, failed, restarts, expected, ends):
    for verb, code in codes.items():
        (bench.folder / f"code-{verb}").write_text(str(code))
    (bench.folder / "failed").write_text(failed)
    request = JobRequest(DATA, bench.folder / "run", max_restarts=2, program=bench.program)
    code, calls, _ = bench.run(render_script(request), SLURM_RESTART_COUNT=str(restarts))
    assert code == ends
    told = [words[1:] for words in calls if words[0] == "scontrol" and words[1] != "show"]
    assert told == expected
    trained = any(words[1] == "train" for words in calls)
    assert trained == ("train" in codes)


def test_nodes_are_asked_for_the_folder_of_the_weights(bench):
    weights = bench.folder / "w"
    weights.mkdir()
    (weights / "a.keras").touch()
    request = JobRequest(DATA, bench.folder / "run", settings=(f"weights={weights}/a.keras",),
                         program=bench.program)  # fmt: skip
    _, calls, _ = bench.run(render_script(request))
    assert calls[0][10:12] == ["--see", str(weights)]


def test_nodes_that_were_left_out_before_stay_so(bench):
    (bench.folder / "code-validate-env").write_text("1")
    (bench.folder / "failed").write_text("n2,n5\n")
    (bench.folder / "before").write_text("n[7-8]")
    request = JobRequest(DATA, bench.folder / "run", program=bench.program)
    _, calls, _ = bench.run(render_script(request))
    assert calls[-1] == ["scontrol", "update", "JobId=7", "ExcNodeList=n[7-8],n2,n5"]


def test_an_array_trains_with_so_many_ranks_in_folders_of_their_own(bench):
    request = JobRequest(DATA, bench.folder / "run", nodes=2, ranks_per_node=2, array="1,2,4",
                         program=bench.program)  # fmt: skip
    text = render_script(request)
    assert options(text)["array"] == "1,2,4%1"
    _, calls, _ = bench.run(text, SLURM_ARRAY_TASK_ID="2")
    train = calls[1]
    assert train[train.index("--hosts") + 1] == "slurm:2"
    assert train[train.index("--run") + 1] == str(bench.folder / "run/ranks-2")


def test_a_task_of_an_array_is_queued_again_by_itself(bench):
    """The last task's number is that of the whole array, by which Slurm acts on all of them."""
    (bench.folder / "code-validate-env").write_text("1")
    (bench.folder / "failed").write_text("n2")
    request = JobRequest(DATA, bench.folder / "run", ranks_per_node=4, array="1,4",
                         program=bench.program)  # fmt: skip
    array = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "4"}
    code, calls, _ = bench.run(render_script(request), **array)
    assert code == 0
    assert [words[1:] for words in calls if words[0] == "scontrol"] == [
        ["show", "job", "--oneliner", "7_4"], ["requeue", "7_4"],
        ["update", "JobId=7_4", "ExcNodeList=n2"],
    ]  # fmt: skip


def test_a_signal_before_there_is_a_training_to_tell_reaches_it(bench):
    tasks = bench.folder / "bin/tasks"
    tasks.write_text("#!/bin/bash\n[ $1 = train ] || exit 0\nexec sleep 20\n")
    # Slurm's signal comes just before the script notes what it has started the second time.
    (bench.folder / "env").write_text(
        "set -T; n=0; trap '[[ $BASH_COMMAND != child=\\$! ]] || [ $((++n)) != 2 ] || "
        "kill -USR1 $$' DEBUG"
    )
    request = JobRequest(DATA, bench.folder / "run", program=bench.program)
    code, calls, _ = bench.run(render_script(request), BASH_ENV=str(bench.folder / "env"))
    assert code == 0
    assert [call for call in calls if "show" not in call] == [["scontrol", "requeue", "7"]]


ODD = st.text(
    st.characters(exclude_characters="\n\r\0", exclude_categories=("Cs",)), min_size=1, max_size=30
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=ODD, run=ODD, image=ODD, config=ODD, values=st.lists(ODD, max_size=3))
def test_no_value_is_taken_apart(tmp_path_factory, data, run, image, config, values):
    bench = Bench(tmp_path_factory.mktemp("job"))
    try:
        folder = bench.folder / ("r" + run.replace("/", "_"))
        request = JobRequest(
            Path("/") / data, folder, image=image, config=Path("/") / config,
            settings=tuple(values), gpus_per_node=1, program=bench.program,
        )  # fmt: skip
        code, calls, told = bench.run(render_script(request, command=f"invoke {data} {image}"))
        assert (code, told) == (0, "")
        proof, train = calls
        seen = [place for word, place in pairwise(proof) if word == "--see"]
        assert seen == [str(request.data), str(folder), str(request.config)]
        assert train[:6] == ["tasks", "train", "--hosts", "slurm", "--no-validate", "--resume"]
        assert train[6:] == [
            "--data", str(request.data), "--run", str(folder), "--image", image,
            "--config", str(request.config), *(w for v in values for w in ("--set", v)),
        ]  # fmt: skip
        assert sorted(path.name for path in bench.folder.iterdir()) == sorted(
            ["before", "bin", "calls", "job.sh", folder.name]
        )
    finally:
        shutil.rmtree(bench.folder)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"settings": ("a=b\nrm -rf /",)}, "--set 1"),
        ({"data": Path("/a\0b")}, "--data"),
        ({"run": Path("/a\rb")}, "--run"),
        ({"image": "a\n#SBATCH --exclusive"}, "--image"),
        ({"run": Path(os.fsdecode(b"/a\xff"))}, "--run"),
        ({"partition": "gpu --exclusive"}, "--partition"),
        ({"account": "-x"}, "--account"),
        ({"account": "a\n"}, "--account"),
        ({"time": "soon"}, "--time"),
        ({"time": ""}, "--time"),
        ({"mem": ""}, "--mem"),
        ({"gpus_per_node": 4, "ranks_per_node": 8}, "--ranks-per-node"),
        ({"mem": "lots"}, "--mem"),
        ({"array": "1-4"}, "--array"),
        ({"array": "1,9"}, "--array of numbers up to 1"),
    ],
)
def test_what_cannot_stand_in_a_script_is_refused(change, word):
    with pytest.raises(UserError, match=re.escape(word)):
        render_script(JobRequest(**{"data": DATA, "run": RUN} | change))


def test_a_runs_job_has_a_plain_name():
    assert job_name(Path("/x/a b$(c)ü")) == "chexnet-a-b-c-"
    assert len(job_name(Path("x" * 300))) == 48


def test_a_program_of_a_sites_own_is_words_that_stay_whole(bench):
    assert read_program("") == PROGRAM
    words = read_program(f"'{bench.folder}/bin/tasks' --search-root '/x y/$(touch z)'")
    code, calls, _ = bench.run(render_script(JobRequest(DATA, bench.folder / "r", program=words)))
    assert code == 0
    assert [call[:4] for call in calls] == [
        ["tasks", "--search-root", "/x y/$(touch z)", verb] for verb in ("validate-env", "train")
    ]
    with pytest.raises(UserError, match="--program"):
        read_program("invoke 'x")


# Validation answers 0 first, then with what lies in "then"; training with its own code.
LATER = """\
#!/bin/bash
cd {here}; echo $1 >> verbs
if [ $1 = train ]; then exit {code}; fi
[ "$(grep -c validate verbs)" = 1 ] && exit 0
while [ $1 != --failed-hosts ]; do shift; done
cat then > "$2"; [ ! -s then ]
"""


@pytest.mark.parametrize(
    ("code", "then", "expected", "ends", "proofs"),
    [
        (1, "n2\n", [["requeue", "7"], ["update", "JobId=7", "ExcNodeList=n2"]], 0, 2),
        (1, "n1,n2\n", [], 1, 2),  # all fail alike
        (1, "", [], 1, 2),  # training's own fault
        (2, "n2\n", [], 2, 1),
    ],
)
def test_a_node_lost_in_training_is_left_out(bench, code, then, expected, ends, proofs):
    (bench.folder / "bin/tasks").write_text(LATER.format(here=bench.folder, code=code))
    (bench.folder / "then").write_text(then)
    request = JobRequest(DATA, bench.folder / "run", nodes=2, program=bench.program)
    ended, calls, _ = bench.run(render_script(request), SLURM_JOB_NUM_NODES="2")
    assert ended == ends
    assert [words[1:] for words in calls if words[1] != "show"] == expected
    assert (bench.folder / "verbs").read_text().split().count("validate-env") == proofs


def test_nodes_that_all_fail_end_the_job_with_a_reason(bench):
    (bench.folder / "code-validate-env").write_text("1")
    (bench.folder / "failed").write_text("n1,n2\n")
    request = JobRequest(DATA, bench.folder / "run", nodes=2, program=bench.program)
    code, calls, _ = bench.run(render_script(request), SLURM_JOB_NUM_NODES="2")
    assert code == 1
    assert [call[0] for call in calls] == ["tasks"]
    said = (bench.folder / "run/slurm-7-0.log").read_text()
    assert "all 2 nodes failed: n1,n2; not queued again" in said


@pytest.mark.parametrize(
    ("verb", "numbers", "calls", "ends"),
    [
        ("train", [signal.SIGUSR1], [["scontrol", "requeue", "7"]], 0),
        # A preemption whose grace ends; a plain scancel; the same while the nodes are proved.
        ("train", [signal.SIGUSR1, signal.SIGTERM], [["scontrol", "requeue", "7"]], 0),
        ("train", [signal.SIGTERM], [], 75),
        ("validate-env", [signal.SIGTERM], [], 75),
        ("validate-env", [signal.SIGUSR1], [["scontrol", "requeue", "7"]], 0),
    ],
)
def test_what_slurm_announces_queues_the_job_again_and_a_cancellation_ends_it(
    bench, verb, numbers, calls, ends
):
    """The script is told as Slurm tells it: bash alone, not what it runs."""
    tasks = bench.folder / "bin/tasks"
    tasks.write_text(
        "#!/bin/bash\n"
        f"[ $1 = {verb} ] || exit 0\n"
        f"trap 'touch {bench.folder}/asked; sleep 0.5; exit 75' TERM\n"
        f"touch {bench.folder}/running; for n in {{1..1200}}; do sleep 0.05; done\n"
    )
    request = JobRequest(DATA, bench.folder / "run", program=bench.program)
    script = bench.folder / "job.sh"
    script.write_text(render_script(request))
    environ = {"PATH": f"{bench.folder}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "7",
               "SLURM_JOB_NODELIST": "n1"}  # fmt: skip
    job = subprocess.Popen(["bash", script], env=environ, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while not (bench.folder / "running").exists():
            assert job.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for number in numbers:
            job.send_signal(number)
            time.sleep(0.1)
        assert job.wait(timeout=20) == ends
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    assert (bench.folder / "asked").exists()
    notes = bench.folder / "calls"
    told = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    assert [call for call in told if "show" not in call] == calls


def test_that_no_gpu_was_asked_for_is_said(capsys):
    slurm_script(Context(), data="/d", run="/r")
    assert "--gpus-per-node" in capsys.readouterr().err
    slurm_script(Context(), data="/d", run="/r", gpus_per_node=1)
    assert capsys.readouterr().err == ""
