"""Settings that a training should not have unawares, wherever they come from.

Judges variables and lines of configuration files alike by ``env/settings.toml``, and
unknown names by what the installed tools themselves list. Leaves devices and interfaces
that a setting names to ``env.checks.network``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from env.checks.evidence import Evidence
from env.checks.mpi import version_of
from env.checks.registry import check
from env.facts import CannotTellError
from env.result import Finding, Status
from env.settings import Table, load_table, nearest_name

_MCA = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_")
_FROM_ENVIRONMENT = "environment"
# Components that answer to another name as well, by the name that they are listed under.
_ALIASES = {"sm": "vader", "vader": "sm"}


@check(
    "settings.harmful",
    title="no setting slows, breaks or debugs the training",
    covers=("PIN-18", "MPI-17", "MPI-19"),
    reads=("settings.assigned", "settings.launch", "mpi.banner", "packages.installed"),
    fix="take the setting out of the job script, the shell's start-up files or the file named",
    required=False,
)
def check_harmful(evidence: Evidence) -> Iterator[Finding]:
    """FAIL, WARN or INFO as env/settings.toml says of each setting that it lists.

    Variables and configuration files count alike; of a name that is set twice, the value
    that the tool takes.
    """
    table, versions = load_table(), _versions(evidence)
    for setting in _of_the_user(evidence):
        row = table.consequence(setting["name"], setting["value"], versions)
        if row:
            yield Finding(
                row.status, f"no {setting['name']}, or another value",
                f"{_shown(setting)}: {row.why}", where=setting["origin"],
                fix="" if row.status is Status.INFO else row.fix or _take_out(setting),
            )  # fmt: skip


@check(
    "settings.values",
    title="the value of each setting is one that its tool understands",
    reads=("settings.assigned",),
    fix="write the value as the tool wants it, or take the setting out",
    required=False,
)
def check_values(evidence: Evidence) -> Iterator[Finding]:
    """WARN if a value has not the form that its tool reads: 64MB is 64 bytes to Horovod."""
    table = load_table()
    for setting in effective(evidence):
        form = table.wrong_form(setting["name"], setting["value"])
        if form:
            yield Finding(Status.WARN, f"{setting['name']}: {form.says}", _shown(setting),
                          where=setting["origin"])  # fmt: skip


@check(
    "settings.parameters",
    title="Open MPI takes the values of its parameters",
    reads=("settings.assigned", "settings.launch", "mpi.forms"),
    fix="write one of the words that it takes, or a number, or take the setting out",
    required=False,
)
def check_parameters(evidence: Evidence) -> Iterator[Finding]:
    """WARN if a value is none of the words that a parameter takes, or no number where it is one.

    Open MPI itself tells its parameters' types and words. Wrong words stop some of its programs;
    a word in the place of a number is 0.
    """
    forms = evidence.facts.value("mpi.forms")
    for setting in _of_the_user(evidence):
        parameter = setting["name"].removeprefix("OMPI_MCA_")
        says = _wrong_word(forms.get(parameter), setting["value"])
        if says:
            yield Finding(Status.WARN, f"{parameter}: {says}", _shown(setting),
                          where=setting["origin"])  # fmt: skip


_SWITCH = ("true", "false", "t", "f", "yes", "no", "y", "n", "enabled", "disabled")


def _wrong_word(form: Mapping[str, Any] | None, value: str) -> str:
    """Return what a parameter of Open MPI takes if this value is none of that, else nothing."""
    if (
        form is None
        or not value
        or re.fullmatch(r"[+-]?(0x[0-9a-fA-F]+|\d+)[kKmMgGtT]?[bB]?", value)
    ):
        return ""
    words = [*form["words"], *(_SWITCH if form["type"] == "bool" else ())]
    if form["type"] == "string" or all(w.strip() in words for w in value.lower().split(",")):
        return ""
    return f"one of {', '.join(form['words'])}" if form["words"] else "a whole number"


@check(
    "settings.names",
    title="each setting is one that its tool knows",
    reads=("settings.assigned", "settings.launch", "known.names", "mpi.parameters", "mpi.banner"),
    fix="correct the name, or take it out: nothing reads it",
    required=False,
)
def check_names(evidence: Evidence) -> Iterator[Finding]:
    """WARN if the installed tool ignores a name, or a name looks like a misspelt one.

    Open MPI, Horovod and NCCL are asked for the names they know; those of other tools are
    compared with a list, and only a near miss counts.
    """
    table = load_table()
    for setting in _of_the_user(evidence):
        name = setting["name"]
        if table.is_of_others(name) or table.consequence(name, setting["value"] or "x", {}):
            continue
        known, asked = _known(evidence, table, name)
        if known is None or name in known:
            continue
        near = nearest_name(name, known)
        if near or asked:
            text = f"{name} is unknown to {asked or 'its tool'} and does nothing"
            text += f"; probably meant: {near}" if near else ""
            fix = f"write {near} for {name}" if near else ""
            yield Finding(Status.WARN, "names that their tools know", text,
                          where=setting["origin"], fix=fix)  # fmt: skip


@check(
    "settings.components",
    title="the components that settings leave Open MPI are built in and join the ranks",
    covers=("MPI-07",),
    reads=(
        "settings.assigned",
        "settings.launch",
        "mpi.components",
        "rdma.ports",
        "gpu.device_files",
    ),
    fix="name a component that this Open MPI has (ompi_info lists them), or take the setting out",
    required=False,
)
def check_components(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if a setting asks for a component that this Open MPI has not: MPI_Init refuses it.

    FAIL too if what settings leave cannot join two ranks here: no transport but self, no
    protocol but UCX or an MTL without a device for it. WARN if ranks of one host are left
    without shared memory.
    """
    settings = _of_the_user(evidence)
    for setting in settings:
        framework, value = setting["name"].removeprefix("OMPI_MCA_"), setting["value"].strip()
        if framework == setting["name"] or not re.fullmatch(r"[a-z]+", framework):
            continue  # not the choice of a framework's components
        components = evidence.facts.value("mpi.components")
        if framework not in components or value.startswith("^"):
            continue
        listed = components[framework]
        there = {*listed, *(_ALIASES[name] for name in listed if name in _ALIASES)}
        missing = [w.strip() for w in value.split(",") if w.strip() and w.strip() not in there]
        if missing:
            found = f"{_shown(setting)}: no {', no '.join(missing)} among them"
            yield Finding(Status.FAIL, f"{framework}: some of {', '.join(sorted(there))}", found,
                          where=setting["origin"])  # fmt: skip

    chosen = {s["name"].removeprefix("OMPI_MCA_"): s for s in settings if s["value"].strip()}
    if evidence.num_ranks > 1 and not chosen.keys().isdisjoint(("btl", "pml")):
        yield from _apart(evidence, chosen)


def _apart(evidence: Evidence, chosen: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Yield what keeps ranks apart: a choice of protocols or transports that leaves too little."""
    built, ports = evidence.facts.value("mpi.components"), evidence.facts["rdma.ports"].value
    # UCX takes cards, and where it is built for them GPUs. Unknown is as good as there.
    fast = ports is None or any(port["state"] == "ACTIVE" for port in ports)
    fast = fast or bool(evidence.facts["gpu.device_files"].value)
    if pml := chosen.get("pml"):
        left = _left(pml["value"], built.get("pml", ())) - {"v", "monitoring"}
        drivers = _left(chosen["mtl"]["value"] if "mtl" in chosen else "^", built.get("mtl", ()))
        # psm and psm2 have cards that the kernel lists; ofi may have one that it does not.
        alone = left == {"cm"} and not drivers - (set() if fast else {"psm", "psm2"})
        if alone or (pml["value"].strip().startswith("^") and left <= {"ucx", "cm"} and not fast):
            yield Finding(Status.FAIL, "a protocol that can run here", _only(pml, left),
                          where=pml["origin"], fix=_take_out(pml))  # fmt: skip
        elif left == {"cm"} and not fast and "FI_PROVIDER" not in chosen:
            yield Finding(Status.WARN, "a network that cm has a driver for", _only(pml, left),
                          where=pml["origin"], fix=_take_out(pml))  # fmt: skip
    protocols = _left(chosen["pml"]["value"], built.get("pml", ())) if "pml" in chosen else {"ob1"}
    # Transports are ob1's alone, which gives way by itself where there is a card for UCX.
    if "btl" not in chosen or "ob1" not in protocols or fast:
        return
    btl = chosen["btl"]
    left = _left(btl["value"], built.get("btl", ()))
    if not left - {"self", "openib", "usnic"} - ({"ofi"} if btl["value"][:1] == "^" else set()):
        yield Finding(Status.FAIL, "a transport between ranks", _only(btl, left),
                      where=btl["origin"], fix=_take_out(btl))  # fmt: skip
    elif evidence.ranks_a_host > 1 and not left & {"sm", "vader", "smcuda"}:
        yield Finding(Status.WARN, "shared memory (sm, vader) among the transports",
                      _only(btl, left), where=btl["origin"])  # fmt: skip


def _left(value: str, built: Iterable[str]) -> set[str]:
    """Return the components that a choice leaves, of those that are built in if it excludes."""
    words = {word.strip() for word in value.strip().lstrip("^").split(",") if word.strip()}
    if not value.strip().startswith("^"):
        return words
    return set(built) - words - {_ALIASES[word] for word in words if word in _ALIASES}


def _only(setting: Mapping[str, str], left: Iterable[str]) -> str:
    return f"{_shown(setting)} leaves only {', '.join(sorted(left)) or 'nothing'}"


@check(
    "settings.files",
    title="nothing is set where no job script shows it",
    reads=("settings.assigned", "settings.unread"),
    fix="move the lines that are meant into the job script, and delete the rest of the file",
    required=False,
)
def check_files(evidence: Evidence) -> Iterator[Finding]:
    """WARN if a file in the user's home or one that a variable names sets MPI, NCCL or UCX.

    Files of the system are the site's to write: they are judged line by line by the other
    checks. WARN as well if a configuration file cannot be read, or is not where a variable
    says.
    """
    for row in evidence.facts.value("settings.unread"):
        found, fix = f"{row['path']}: {row['problem']}", "mend the file, or delete it"
        if "variable" in row:
            found, fix = (
                f"{row['path']} {row['problem']}",
                f"correct {row['variable']}, or unset it",
            )
        yield Finding(Status.WARN, "files that can be read", found, where=row["path"], fix=fix)
    of_files: dict[str, list[str]] = {}
    for setting in evidence.facts.value("settings.assigned"):
        place = PurePath(setting["origin"])
        of_system = not place.is_absolute() or "etc" in place.parts
        if not of_system and place.name != "keras.json":  # Keras writes that one by itself
            of_files.setdefault(setting["origin"], []).append(_line(setting))
    for path, lines in of_files.items():
        yield Finding(Status.WARN, "settings in the job script", f"{path} sets {', '.join(lines)}",
                      where=path)  # fmt: skip


def effective(evidence: Evidence) -> list[dict[str, str]]:
    """Return the settings that count: of each name, the first.

    Raises:
        CannotTellError: nobody looked at the settings.
    """
    first: dict[str, dict[str, str]] = {}
    for setting in evidence.facts.value("settings.assigned"):
        first.setdefault(setting["name"], setting)
    return list(first.values())


def _of_the_user(evidence: Evidence) -> list[dict[str, str]]:
    """Return the settings that count and that no launcher made.

    mpirun hands its own options to its ranks as such variables: binding, networks. Those of
    the user's were judged where mpirun was started.
    """
    settings = effective(evidence)
    launch = evidence.facts.value("settings.launch")
    if not any(name in launch for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK")):
        return settings
    return [
        setting
        for setting in settings
        if setting["origin"] != _FROM_ENVIRONMENT or not setting["name"].startswith(_MCA)
    ]


def _versions(evidence: Evidence) -> dict[str, str | None]:
    """Return the versions that rows may ask for, None where they are not known."""
    installed: Mapping[str, Mapping[str, str]] = evidence.facts["packages.installed"].value or {}
    banner = evidence.facts["mpi.banner"].value
    found = {name: installed.get(name, {}).get("version") for name in ("horovod", "tensorflow")}
    found["tensorflow"] = found["tensorflow"] or installed.get("tensorflow-cpu", {}).get("version")
    return {**found, "openmpi": version_of(banner) if banner else None}


def _known(evidence: Evidence, table: Table, name: str) -> tuple[Iterable[str] | None, str]:
    """Return the names to hold one against, and the tool that named them, "" for our list."""
    if name.startswith("OMPI_MCA_"):
        return _parameters(evidence, name)
    prefix = table.prefix_of(name)
    if prefix is None:
        return None, ""
    told = evidence.facts["known.names"].value or {}
    if prefix in told:
        return {*told[prefix]}, f"the installed {prefix.rstrip('_').capitalize()}"
    return table.known[prefix], ""


def _parameters(evidence: Evidence, name: str) -> tuple[Iterable[str] | None, str]:
    """Return Open MPI's own parameters as variables."""
    try:
        parameters = evidence.facts.value("mpi.parameters")
    except CannotTellError:
        return None, ""
    banner = evidence.facts["mpi.banner"].value or "Open MPI"
    # From 5 on, the parameters of the starting half are PRRTE's, which lists them elsewhere.
    frameworks = {parameter.split("_")[0] for parameter in parameters}
    if not parameters or name.removeprefix("OMPI_MCA_").split("_")[0] not in frameworks:
        near = {f"OMPI_MCA_{parameter}" for parameter in parameters}
        return near, "" if _is_five(banner) or not parameters else banner
    return {f"OMPI_MCA_{parameter}" for parameter in parameters}, banner


def _is_five(banner: str) -> bool:
    return int((version_of(banner) or "0").split(".")[0]) >= 5


def _shown(setting: Mapping[str, str]) -> str:
    return f"{setting['name']}={setting['value']}"


def _line(setting: Mapping[str, str]) -> str:
    """Return a setting as its file has it."""
    name = setting["name"]
    for prefix in _MCA:
        name = name.removeprefix(prefix)
    return f"{name}={setting['value']}"


def _take_out(setting: Mapping[str, str]) -> str:
    if setting["origin"] == _FROM_ENVIRONMENT:
        return f"unset {setting['name']}"
    return f"take the line {_line(setting)} out of {setting['origin']}"
