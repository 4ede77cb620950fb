"""What launchers say of known failures is understood; Open MPI's texts are the installed ones."""

import re
import subprocess
from pathlib import Path

import pytest

from env.checks.launch import explain_words

# Of Open MPI's help files: the file, the text's name, and words of the meaning.
TEXTS = [
    ("help-orterun.txt", "orterun:timeout", "MPIEXEC_TIMEOUT ends"),
    ("help-orterun.txt", "orterun:timeoutconflict", "MPIEXEC_TIMEOUT ends"),
    ("help-orterun.txt", "orterun:conflict-env-set", "variables in two ways"),
    ("help-plm-rsh.txt", "agent-not-found", "finds no ssh"),
    ("help-opal-util.txt", "mkdir-failed", "cannot make its session folder /tmp/x"),
]


def ask_ompi_info(*words):
    return subprocess.run(["ompi_info", *words], capture_output=True, text=True, check=True).stdout


def installed_texts():
    """Return the texts above as the installed Open MPI has them; other releases have fewer."""
    folder = Path(ask_ompi_info("--parsable", "--path", "pkgdatadir").strip().rpartition(":")[2])
    found = {}
    for file, name, _ in TEXTS:
        if (folder / file).exists():
            text = (folder / file).read_text().partition(f"[{name}]\n")[2]
            said = re.split(r"^(?:#|\[)", text, flags=re.MULTILINE)[0].replace("%s", "/tmp/x")
            found |= {name: said} if said.strip() else {}
    return found


def test_texts_of_the_installed_open_mpi():
    found = installed_texts()
    if "v4." in ask_ompi_info("--version"):
        assert set(found) == {name for _, name, _ in TEXTS}
    for _, name, meaning in TEXTS:
        if name in found:
            (told, *others) = explain_words(found[name])
            assert (meaning in told[0], others) == (True, []), told
            assert told[2]


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have "
         "been OOM Killed.", "killed, most likely for memory"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in step 7.0 cgroup.", "for memory"),
        ("srun: error: node1: task 1: Killed", "for memory"),
        ("=   KILLED BY SIGNAL: 9 (Killed)", "for memory"),
        ("srun: error: Couldn't find the specified plugin name for mpi/pmix_v9 looking at all "
         "files\nsrun: error: cannot find mpi plugin for mpi/pmix_v9", "called mpi/pmix_v9"),
        ("srun: error: Invalid MPI type 'pmi9', --mpi=list for acceptable types", "called pmi9"),
        ("orted: error while loading shared libraries: libopen-rte.so.40: cannot open shared "
         "object file: No such file or directory", "does not find libopen-rte.so.40"),
        ("kex_exchange_identification: read: Connection reset by peer", "ends logins"),
        ("Connection closed by 10.0.0.2 port 22", "ends logins"),
        ("mpirun noticed that process rank 0 exited on signal 4 (Illegal instruction).",
         "an instruction that the CPU"),
        ("bash: fork: retry: Resource temporarily unavailable", "processes and threads"),
        ("socket: Too many open files", "open files"),
        ('mpirun: Error: unknown option "-np"', "none of its own components"),
    ],
)  # fmt: skip
def test_words_of_launchers(words, meaning):
    assert any(meaning in found for found, _, _ in explain_words(words)), explain_words(words)
