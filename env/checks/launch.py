"""How the launch itself went: what the launcher said, and what it means.

Knows the words by which launchers tell the common failures. Leaves which ranks reported to
``env.checks.ranks``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from env.checks.evidence import Evidence
from env.checks.registry import LAUNCHED, check
from env.result import Finding, Status

_MAX_WORDS = 400


@dataclass(frozen=True)
class Phrase:
    """Words of a launcher, and what they mean.

    Attributes:
        pattern: the words, a regular expression.
        meaning: in plain words; ``{0}`` is the pattern's first group that matched.
        fix: what to do.
        vague: whether the words follow from others, which say more where they are there.
    """

    pattern: str
    meaning: str
    fix: str
    vague: bool = False


PHRASES = (
    Phrase(r"(orted|prted|hydra_pmi_proxy): (?:command )?not found|(orted|prted): No such file",
           "a login by ssh on the other host does not find Open MPI's daemon {0}",
           "call mpirun by its absolute path, or put Open MPI's bin folder on the PATH of "
           "non-interactive logins there; its prefix must be the same on all hosts"),
    Phrase(r"Could not resolve hostname (\S+?):|getaddrinfo.*failed|"
           r"(\S+): (?:Name or service not known|Temporary failure in name resolution)",
           "the name {0} leads to no address",
           "correct --hosts, or /etc/hosts and DNS on every host"),
    Phrase(r"connect to host (\S+) port \d+: (?:No route to host|Network is unreachable|"
           r"Connection (?:timed out|refused))|(\S+): No route to host",
           "host {0} does not answer to ssh",
           "start the host and its sshd, or take it out of --hosts"),
    Phrase(r"Permission denied \(|Host key verification failed",
           "ssh lets nobody in without a question",
           "set a key up that needs no password, and accept the host's key: ssh HOST true"),
    Phrase(r"kex_exchange_identification|Connection (?:closed|reset) by (?:\S+ )?(\S+) port \d+",
           "sshd on the other host ends logins before they begin",
           "look at its own log; many at once need MaxStartups in sshd_config, and a host that is "
           "closed to users lets nobody in"),
    Phrase(r"plm_(?:rsh|ssh)_agent[\s\S]{0,80}?could not be found",
           "Open MPI finds no ssh, or not the agent that a setting names",
           "install an ssh client, or unset OMPI_MCA_plm_rsh_agent (PRTE_MCA_plm_ssh_agent)"),
    Phrase(r"error while loading shared libraries: (\S+?):",
           "a program of the other host does not find {0}, which it needs",
           "put the folder of that library into /etc/ld.so.conf.d there, or call mpirun by its "
           "absolute path: a non-interactive login does not read the shell's start-up files"),
    Phrase(r"both the \"-x\" method",
           "the ranks are given variables in two ways, which Open MPI does not take together",
           "unset OMPI_MCA_mca_base_env_list, which a module or a file of MPI's may set, and "
           "export the variables themselves"),
    Phrase(r"time limit for job execution has been reached|Conflicting requests for timeout",
           "MPIEXEC_TIMEOUT ends whatever mpirun starts", "unset MPIEXEC_TIMEOUT"),
    Phrase(r"unknown option \"-{1,2}np?\"", "mpirun finds none of its own components",
           "unset the OPAL_ variables, or install Open MPI anew"),
    Phrase(r"cannot find mpi plugin for (\S+)|Invalid MPI type '?([^\s',]+)",
           "Slurm has no interface to MPI called {0}",
           "give srun --mpi=pmix (srun --mpi=list shows the kinds), and unset SLURM_MPI_TYPE"),
    Phrase(r"not enough slots available|no allocated resources",
           "the launcher counts fewer places than ranks",
           "give each host its number: --hosts NAME:RANKS; inside Slurm ask for --ntasks"),
    Phrase(r"overload-allowed|more processes than cpus",
           "the launcher would have to bind several ranks to one core",
           "use fewer ranks on that host, or --oversubscribe"),
    Phrase(r"direct(?:ly)? launched using \"?srun|not built with SLURM's PMI",
           "srun started the ranks without a PMI that Open MPI was built for",
           "give srun --mpi=pmix (srun --mpi=list shows the kinds), or use mpirun inside the job"),
    Phrase(r"Unable to (?:create|confirm) (?:step|allocation)|Requested nodes are busy|"
           r"step creation (?:still|temporarily) disabled",
           "Slurm gives this step no resources: an outer step holds them all",
           "launch from the job itself (sbatch, salloc) rather than under srun, or set "
           "SLURM_OVERLAP=1"),
    Phrase(r"hnp-topo-sig|Data unpack would read past",
           "the hosts run different releases of Open MPI", "install one release on all hosts"),
    Phrase(r"(?:could not (?:be found|access)|unable to (?:find|launch)|cannot execute|"
           r"No such file or directory)[\s\S]{0,300}?(?:Executable|execve\(\)): ?(\S+)|"
           r"execve\(\): (\S+): No such file",
           "{0} is not there on every host",
           "put the environment, the checkout or the image at the same path on every host"),
    Phrase(r"attempt to run as root|allow-run-as-root",
           "Open MPI refuses root", "give --allow-run-as-root, or be another user"),
    Phrase(r"couldn't open the help file|opal_init:startup|ompi_rte_init failed|orte_init failed|"
           r"prte_init failed", "Open MPI cannot start itself",
           "unset OPAL_PREFIX, PMIX_PREFIX and PRTE_PREFIX; use mpirun of the same installation"),
    Phrase(r"PMIX ERROR|PMIX TEMPORARILY UNAVAILABLE|PMIx server.*(?:unreachable|failed)",
           "ranks and launcher do not talk to each other through PMIx",
           "use a PMIx of one series on both sides; TMPDIR must be writable, local and not full"),
    Phrase(r"signal 9 \(Killed\)|oom[-_]kill|Out [Oo]f [Mm]emory|task \d+: Killed|"
           r"KILLED BY SIGNAL: 9|Exceeded (?:job|step) memory limit",
           "a rank was killed, most likely for memory",
           "ask for more memory, or use fewer ranks"),
    Phrase(r"signal 4 \(Illegal|Illegal instruction",
           "a rank met an instruction that the CPU of its host does not have",
           "use another node type, or a TensorFlow compiled without AVX"),
    Phrase(r"Bus error|posix_fallocate|No space left on device|Disk quota exceeded",
           "shared memory or the session folder is full",
           "enlarge /dev/shm and the file system of TMPDIR"),
    Phrase(r"mkdir was unable to create the desired directory:[\s\S]{0,20}?Directory: (\S+)",
           "Open MPI cannot make its session folder {0}",
           "point TMPDIR at a folder of this node that you may write to"),
    Phrase(r"Too many open files", "a limit of open files is too low",
           "ulimit -n $(ulimit -Hn) in the job script"),
    Phrase(r"fork: retry|Resource temporarily unavailable|pthread_create failed",
           "a limit of processes and threads is too low",
           "ulimit -u $(ulimit -Hu) in the job script; docker: --pids-limit=-1"),
    Phrase(r"lost communication with a remote\s+daemon(?:[\s\S]*?Remote daemon:.*? on node (\S+))?",
           "Open MPI's daemon on {0} could not be started, or ended",
           "try ssh HOST prted --version: it must be on the PATH of non-interactive logins, of the "
           "same release, and no firewall may stand between the hosts", vague=True),
)  # fmt: skip


@check(
    "launch.ended",
    title="the launcher started the ranks and ended well",
    phase=LAUNCHED,
    covers=("MPI-11", "MPI-09", "MPI-10", "MPI-01", "MPI-03", "MPI-06", "NET-07", "BIND-04",
            "BIND-07", "VER-24", "CON-20"),
    reads=("launcher.end", "launcher.words", "launcher.timed_out"),
    required=False,
    fix="read the launcher's words; run the line of --dry-run by hand to see them all",
)  # fmt: skip
def check_ended(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if the launcher ran out of time, ended badly, or said words of a known failure.

    WARN if it ended badly though every rank reported. SKIP where nobody wrote down how
    the launch went, e.g. after a launch by hand.
    """
    expected = "a launcher that starts all ranks and returns 0"
    if "launcher.end" not in evidence.facts:
        yield Finding(Status.SKIP, expected, "nobody wrote down how the launch went")
        return
    end, words = evidence.facts.value("launcher.end"), evidence.facts.value("launcher.words")
    timed_out = evidence.facts.value("launcher.timed_out")
    if end == "exit code 0" and not timed_out:
        yield Finding(Status.PASS, expected, end)
        return
    complete = not timed_out and len(evidence.reported) == evidence.num_ranks
    status = Status.WARN if complete else Status.FAIL
    where = evidence.facts["launcher.end"].origin
    meanings = explain_words(words)
    for meaning, line, fix in meanings:
        yield Finding(status, expected, f"{meaning}: {line}", where=where, fix=fix)
    if not meanings:
        said = quote(words) or "it said nothing"
        yield Finding(status, expected, f"{end}: {said}", where=where)


def explain_words(words: str) -> list[tuple[str, str, str]]:
    """Return what a launcher's words mean, the words themselves, and what to do.

    None for words that nobody has met yet.
    """
    found = []
    for phrase in PHRASES:
        match = re.search(phrase.pattern, words)
        if match and not (phrase.vague and found):
            names = [group for group in match.groups() if group]
            begin = words.rfind("\n", 0, match.start()) + 1
            end = words.find("\n", match.end())
            line = quote(words[begin : end if end >= 0 else len(words)])
            found.append((phrase.meaning.format(*(names or ["another host"])), line, phrase.fix))
    return found


def quote(words: str) -> str:
    """Return the last words, without rulers and empty lines."""
    lines = [line.strip() for line in words.splitlines()]
    text = " | ".join(line for line in lines if line.strip("-= "))
    return text if len(text) <= _MAX_WORDS else f"… {text[-_MAX_WORDS:]}"
