"""What an image holds against its lock: facts made up by hand, one thing wrong at a time."""

import json
from dataclasses import asdict, replace

import pytest

from containers.differences import ORIGIN_LABELS, Judge, named_libraries
from env.checks.registry import find_check
from env.facts import Fact, Facts
from env.lock import load_lock, lock_path, render_lock
from env.result import Result, Status
from recipes.blocks.project import IMAGE_CHECKS
from recipes.layout import PROJECT

LOCK = load_lock(lock_path("cpu"))
A, B = "a" * 64, "b" * 64
LIBRARY = "/opt/chexnet/venv/lib/python3.11/site-packages/horovod/tensorflow/mpi_lib.so"


def in_image():
    """Return the locked packages that the image holds, as the probe tells them."""
    packages = [p for p in LOCK.system_packages if {"base", "run"} & set(p.groups)]
    return [
        {"name": p.name, "version": p.version, "architecture": p.architecture} for p in packages
    ]


def python():
    """Return the locked distributions as the probe tells them."""
    names = {p.name: p.version for p in LOCK.python if "run" in p.groups}
    names["horovod"] = LOCK.components["horovod"]
    return [
        {"name": n, "version": v, "location": "/venv", "recorded": True} for n, v in names.items()
    ]


def bill(files):
    """Return the bill of materials of the healthy image."""
    components = [
        {"name": p["name"], "version": p["version"], "purl": f"pkg:deb/debian/{p['name']}@x"}
        for p in in_image()
    ]
    components += [
        {"name": p["name"], "version": p["version"], "purl": f"pkg:pypi/{p['name']}@x"}
        for p in python()
    ]
    listed = [{"name": path, "hashes": [{"content": digest}]} for path, digest in files.items()]
    components.append({"name": "chexnet", "components": listed})
    told = [{"name": "chexnet:lock:sha256", "value": LOCK.sha256}]
    return {"metadata": {"component": {"properties": told}}, "components": components}


def libmpi():
    package = next(p for p in LOCK.system_packages if p.name == "libopenmpi3")
    return {"path": "/usr/lib/x86_64-linux-gnu/libmpi.so.40", "owner": f"{package.name} "
            f"{package.version}"}  # fmt: skip


def healthy():
    """Return the facts of an image that is as its lock wants it."""
    labels = {
        "chexnet.stack": "cpu", "chexnet.lock.sha256": LOCK.sha256,
        "org.opencontainers.image.title": "chexnet-cpu",
    }  # fmt: skip
    files = {f"{PROJECT}/env/x.py": A, f"{PROJECT}/chexnet/REVISION": B}
    values = {
        "lock": render_lock(LOCK), "sbom": json.dumps(bill(files)),
        "labels": labels | dict.fromkeys(ORIGIN_LABELS, "told"),
        "system": in_image(), "system_files": {"checked": 9, "wrong": []},
        "python": python(), "python_files": {"checked": 8, "wrong": []}, "unowned": [],
        "programs": [],
        "project": {
            "env/x.py": {"sha256": A, "git": "1" * 40},
            "chexnet/REVISION": {"sha256": B, "git": "2" * 40},
        },
        "environment": {"PATH": "/usr/bin"}, "preloaded": None, "loaded": [libmpi()],
        "invoke": "tasks:\n  search_root: /opt/chexnet/project\n",
        "venv": "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n",
        "scripts": ["01-base.sh", "90-environment.sh", "99-base.sh"], "linker": {},
    }  # fmt: skip
    return Facts({f"inventory.{key}": Fact(value, f"of {key}") for key, value in values.items()})


REVISION = {"env/x.py": "1" * 40}


def judge(facts, *, lock=LOCK, files=REVISION, results=()):
    parts = Judge(facts, lock=lock).parts(revision_files=files, results=results)
    return {part.id.removeprefix("image."): part for part in parts}


def laid(**changes):
    return healthy() | {f"inventory.{key}": Fact(v, f"of {key}") for key, v in changes.items()}


def differing(parts):
    return {name for name, part in parts.items() if part.status is Status.FAIL}


def test_an_image_as_its_lock_wants_it_has_no_difference():
    parts = judge(healthy())
    assert {part.status for part in parts.values()} == {Status.PASS}
    assert parts["system"].compared == len(in_image()) > 100
    assert parts["python"].compared == len(python()) > 40
    assert parts["python-files"].compared == 8
    assert not any(part.differences for part in parts.values())


@pytest.mark.parametrize(
    "name", ["lock", "labels", "system", "system-files", "python", "python-files", "loaded",
             "programs", "sbom", "project"],
)  # fmt: skip
def test_what_could_not_be_read_is_unknown(name):
    key = "inventory." + name.replace("-", "_")
    facts = healthy() | {key: Fact(None, "there", problem="it is on fire")}
    files = None if name == "project" else REVISION
    part = judge(facts, files=files)[name]
    assert part.status is Status.UNKNOWN
    assert "it is on fire" in part.note


def change(items, name, **values):
    return [item | values if item["name"] == name else item for item in items]


def without(items, name):
    return [item for item in items if item["name"] != name]


NEW = {"name": "evil", "version": "6.6.6", "architecture": "amd64", "location": "/v",
       "recorded": True}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "key", "facts", "words"),
    [
        ("system", "system", change(in_image(), "libc6", version="2.36-9+deb12u99"),
         ["libc6:amd64 2.36", "2.36-9+deb12u99"]),
        ("system", "system", without(in_image(), "libopenmpi3"), ["libopenmpi3", "not installed"]),
        ("system", "system", [*in_image(), NEW], ["no evil:amd64", "evil:amd64 6.6.6"]),
        ("python", "python", change(python(), "numpy", version="1.0"), ["numpy", "1.0"]),
        ("python", "python", without(python(), "horovod"), ["horovod", "not installed"]),
        ("python", "python", [*python(), NEW], ["no evil", "evil 6.6.6"]),
    ],
)  # fmt: skip
def test_a_package_that_is_not_as_locked_is_one_difference(part, key, facts, words):
    parts = judge(laid(**{key: facts}))
    assert differing(parts) == {part, "sbom"}  # the bill still lists what was built in
    (difference,) = parts[part].differences
    line = f"{difference.expected} | {difference.found}"
    assert all(word in line for word in words), line
    assert difference.where == f"of {key}"
    assert "invoke build-image --stack cpu" in difference.fix


def wrong(path, problem="edited", expected="1" * 64, found="2" * 64):
    found = "" if problem == "missing" else found
    one = {"path": path, "owner": "p 1", "problem": problem, "expected": expected, "found": found}
    return {"checked": 5, "wrong": [one]}


@pytest.mark.parametrize("key", ["system_files", "python_files"])
@pytest.mark.parametrize("problem", ["edited", "missing", "unreadable"])
def test_a_file_that_is_not_as_its_package_brought_it(key, problem):
    parts = judge(laid(**{key: wrong("/usr/lib/x", problem)}))
    name = key.replace("_", "-")
    assert differing(parts) == {name}
    (difference,) = parts[name].differences
    assert difference.where == "/usr/lib/x"
    assert "p 1" in difference.expected
    assert problem in difference.found


@pytest.mark.parametrize(
    "path",
    ["/usr/bin/mpicc", "/usr/bin/opal_wrapper", "/usr/bin/oshcc",
     "/v/site-packages/tensorflow/include/a/b.h"],
)  # fmt: skip
def test_what_the_build_takes_out_may_be_missing_but_not_edited(path):
    assert differing(judge(laid(system_files=wrong(path, "missing")))) == set()
    assert differing(judge(laid(system_files=wrong(path, "edited")))) == {"system-files"}


def test_a_stripped_library_is_held_against_the_bill():
    files = {LIBRARY: "2" * 64, f"{PROJECT}/env/x.py": A}
    listed = json.dumps(bill(files))
    assert differing(judge(laid(python_files=wrong(LIBRARY), sbom=listed))) == set()
    other = wrong(LIBRARY, found="3" * 64)
    assert differing(judge(laid(python_files=other, sbom=listed))) == {"python-files"}


def test_files_of_nobody_and_packages_without_a_list_are_told():
    facts = laid(unowned=["/v/evil.pth"], python=change(python(), "numpy", recorded=False))
    told = {one.where: one.found for one in judge(facts)["python-files"].differences}
    assert told == {"/v/evil.pth": "a file of nobody", "/venv": "no RECORD"}


def test_a_script_that_the_engine_would_run_first_is_told():
    parts = judge(laid(scripts=["99-evil.sh"]))
    assert differing(parts) == {"redirects"}
    (difference,) = parts["redirects"].differences
    assert difference.where == "of scripts/99-evil.sh"
    assert "invoke build-image --stack cpu" in difference.fix


def test_a_program_of_nobody_on_the_path_is_told():
    parts = judge(laid(programs=["/usr/local/bin/mpirun"]))
    assert differing(parts) == {"programs"}
    assert parts["programs"].differences[0].where == "/usr/local/bin/mpirun"


@pytest.mark.parametrize(
    ("variables", "preload", "words"),
    [
        ({"LD_LIBRARY_PATH": "/home/me/lib"}, None, "LD_LIBRARY_PATH=/home/me/lib"),
        ({"LD_PRELOAD": "/x.so"}, None, "LD_PRELOAD=/x.so"),
        ({}, "/evil.so\n", "/etc/ld.so.preload"),
    ],
)
def test_a_library_from_elsewhere_is_told_with_what_brought_it(variables, preload, words):
    foreign = {"path": "/home/me/lib/libmpi.so.40", "owner": None}
    facts = laid(loaded=[foreign], environment=variables, preloaded=preload)
    parts = judge(facts)
    assert differing(parts) == {"loaded"}
    (difference,) = parts["loaded"].differences
    assert difference.where == f"/home/me/lib/libmpi.so.40 ({words})"
    assert named_libraries(facts) == [foreign]


def test_a_library_of_another_version_than_the_locked_is_told():
    other = libmpi() | {"owner": "libopenmpi3 4.0.0-1"}
    (difference,) = judge(laid(loaded=[other]))["loaded"].differences
    assert "libopenmpi3 4.0.0-1" in difference.found


def test_a_gpu_stack_must_have_loaded_nccl():
    lock = replace(LOCK, components={**LOCK.components, "nccl": "2.30"})
    (difference,) = judge(healthy(), lock=lock)["loaded"].differences
    assert "libnccl" in difference.expected
    loaded = [{"path": "/v/libnccl.so.2", "owner": "numpy " + LOCK.version("numpy")}]
    assert judge(laid(loaded=loaded), lock=lock)["loaded"].status is Status.PASS


GPU = replace(LOCK, components={**LOCK.components, "cuda": "12.9.79", "nccl": "2.30.1"})
TELLS = {"versions.cuda": Fact("12.9", "libcudart"), "versions.nccl": Fact("2.30.1", "libnccl")}


@pytest.mark.parametrize(
    ("name", "fact", "found"),
    [
        ("versions.cuda", Fact("12.4", "/usr/lib/libcudart.so.12"), "cuda 12.4"),
        ("versions.cuda", Fact("12.90", "libcudart"), "cuda 12.90"),
        ("versions.nccl", Fact("2.30", "libnccl"), None),
        ("versions.nccl", Fact(None, "the library path"), "no nccl to load"),
    ],
)
def test_libraries_speak_for_themselves(name, fact, found):
    part = judge(healthy() | TELLS | {name: fact}, lock=GPU)["components"]
    assert [one.found for one in part.differences] == ([found] if found else [])
    assert all(one.where == fact.origin for one in part.differences)


def test_a_library_that_cannot_be_asked_is_unknown():
    fact = Fact(None, "told.py", problem="died by SIGSEGV")
    part = judge(healthy() | TELLS | {"versions.cuda": fact}, lock=GPU)["components"]
    assert part.status is Status.UNKNOWN


def test_the_checks_of_an_image_ask_the_libraries():
    read = {key for name in IMAGE_CHECKS for key in find_check(name).reads}
    assert any(key.startswith("versions.") for key in read)  # one probe gives them all


def test_another_lock_inside_is_told_key_by_key():
    other = replace(LOCK, components={**LOCK.components, "keras": "9.9"}, python=LOCK.python[1:])
    parts = judge(laid(lock=render_lock(other)))
    assert differing(parts) == {"lock"}
    told = {d.expected.partition(":")[0]: (d.expected, d.found) for d in parts["lock"].differences}
    assert set(told) == {"components", "python"}
    assert told["components"][1] == '{"keras": "9.9"}'
    assert LOCK.python[0].name in told["python"][0]


@pytest.mark.parametrize("text", ["{", "[1]", "7", "null"])
def test_a_lock_that_is_none_is_told(text):
    (difference,) = judge(laid(lock=text))["lock"].differences
    assert difference.expected == "a lock in JSON"


@pytest.mark.parametrize("name", ["chexnet.stack", "chexnet.lock.sha256", ORIGIN_LABELS[0]])
def test_a_label_that_is_missing_or_other_is_told(name):
    labels = dict(healthy().value("inventory.labels"))
    del labels[name]
    parts = judge(laid(labels=labels))
    assert differing(parts) == {"labels"}
    (difference,) = parts["labels"].differences
    assert name in difference.expected
    assert difference.found == "no such label"


def test_the_driver_floor_is_a_label_of_gpu_stacks():
    lock = replace(LOCK, driver_minimum="525.60.13")
    facts = laid(labels=healthy().value("inventory.labels") | {"chexnet.lock.sha256": lock.sha256})
    (difference,) = judge(facts, lock=lock)["labels"].differences
    assert difference.expected == "chexnet.driver.minimum=525.60.13"


@pytest.mark.parametrize(
    ("project", "where", "found"),
    [
        ({"env/x.py": {"sha256": B, "git": "3" * 40}}, "env/x.py", "hash 333333333333"),
        ({}, "env/x.py", "no such file"),
        ({"env/x.py": {"sha256": A, "git": "1" * 40}, "env/y.py": {"sha256": A, "git": "4" * 40}},
         "env/y.py", "hash 444444444444"),
    ],
)  # fmt: skip
def test_the_projects_files_are_those_of_the_revision(project, where, found):
    parts = judge(laid(project=project | {"chexnet/REVISION": {"sha256": B, "git": "2" * 40}}))
    assert differing(parts) == {"project"}
    (difference,) = parts["project"].differences
    assert (difference.where, difference.found) == (f"{PROJECT}/{where}", found)


def test_without_the_revision_the_bill_says_which_files_there_were():
    parts = judge(healthy(), files=None)
    assert parts["project"].status is Status.INFO
    assert "no commit here" in parts["project"].note
    facts = laid(project={"env/x.py": {"sha256": B, "git": "1" * 40}})
    where = [one.where for one in judge(facts, files=None)["project"].differences]
    assert where == [f"{PROJECT}/chexnet/REVISION", f"{PROJECT}/env/x.py"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "JSONDecodeError"), ("[]", "TypeError"), ("{}", "KeyError"), ("7", "TypeError"),
        ('{"components": [7], "metadata": 7}', "TypeError"),
        ('{"components": [{"purl": 7}], "metadata": 7}', "AttributeError"),
        (json.dumps(bill({}) | {"metadata": {"component": {"properties": []}}}), "None"),
    ],
)  # fmt: skip
def test_a_bill_that_is_none_of_this_lock_is_told(text, words):
    (difference,) = judge(laid(sbom=text))["sbom"].differences
    assert words in difference.found


def test_no_bill_at_all_is_a_difference():
    facts = healthy() | {"inventory.sbom": Fact(None, "/opt/x", problem="no such file")}
    parts = judge(facts)
    assert differing(parts) == {"sbom"}


def test_a_lock_without_the_distributions_packages_cannot_tell_and_says_why():
    lock = replace(LOCK, system_packages=(), gaps={"system_packages": "no archive of Ubuntu"})
    part = judge(laid(lock=render_lock(lock)), lock=lock)["system"]
    assert part.status is Status.UNKNOWN
    assert "no archive of Ubuntu" in part.note


def test_checks_that_fail_are_differences_and_untold_ones_are_unknown():
    def result(status):
        return Result("horovod.mpi", status, "static", "built", "not", "there", "do it", (), ())

    part = judge(healthy(), results=[result(Status.FAIL), result(Status.PASS)])["checks"]
    assert part.status is Status.FAIL
    assert asdict(part.differences[0]) == {
        "part": "image.checks", "expected": "horovod.mpi: built", "found": "not",
        "where": "there", "fix": "do it",
    }  # fmt: skip
    part = judge(healthy(), results=[result(Status.UNKNOWN)])["checks"]
    assert (part.status, part.note) == (Status.UNKNOWN, "horovod.mpi: not")
