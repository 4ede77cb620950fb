"""Rendering: the committed text, purity, HPCCM's state and warnings."""

import logging
import re
from dataclasses import replace

import hpccm
import pytest
from hpccm.common import container_type
from packaging.version import Version

from env.errors import UserError
from env.lock import load_lock, lock_path
from env.stack import PROJECT, load_stack, load_stacks
from recipes import render
from recipes.layout import taken_paths
from recipes.render import FILE_NAMES, FORMATS, IMAGE_STACKS, render_definition

CPU = load_stack("cpu")


def state():
    return {name: value for name, value in vars(hpccm.config).items() if name.startswith("g_")}


@pytest.mark.parametrize("stack", IMAGE_STACKS)
@pytest.mark.parametrize("format", FILE_NAMES)
def test_the_committed_definition_is_what_the_recipe_renders(stack, format):
    committed = (PROJECT / "containers" / stack / FILE_NAMES[format]).read_text(encoding="utf-8")
    assert committed == render_definition(load_stack(stack), format=format), (
        "render it anew: python -c 'from recipes.render import write_definitions as w; w()'"
    )


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("other", FORMATS)
def test_rendering_is_pure_whatever_was_rendered_before(format, other):
    first = render_definition(CPU, format=format)
    render_definition(load_stack("cpu13"), format=other)
    assert render_definition(CPU, format=format) == first


def test_no_state_of_hpccm_matters_or_changes(monkeypatch):
    expected = render_definition(CPU, format="singularity")
    monkeypatch.setattr(hpccm.config, "g_ctype", container_type.BASH)
    monkeypatch.setattr(hpccm.config, "g_singularity_version", Version("2.6"))
    monkeypatch.setattr(hpccm.config, "g_wd", "/nowhere")
    monkeypatch.setattr(hpccm.config, "g_linux_distro", 99)
    before = state()
    assert render_definition(CPU, format="singularity") == expected
    assert state() == before


def test_the_state_is_restored_after_an_error(monkeypatch):
    def fail(*_args, **_kwargs):
        hpccm.config.g_ctype = container_type.BASH
        raise ValueError("no recipe")

    monkeypatch.setattr(render, "make_stages", fail)
    before, filters = state(), list(logging.getLogger().filters)
    with pytest.raises(ValueError, match="no recipe"):
        render_definition(CPU, format="docker")
    assert state() == before
    assert logging.getLogger().filters == filters


def test_a_warning_of_hpccm_is_an_error(monkeypatch):
    def warn(*_args, **_kwargs):
        # A distribution it does not know is what HPCCM itself warns of here.
        hpccm.primitives.baseimage(image="debian:something")

    monkeypatch.setattr(render, "make_stages", warn)
    with pytest.raises(RuntimeError, match="Unable to determine the Linux distribution"):
        render_definition(CPU, format="docker")


def test_an_unknown_format_lists_the_known_ones():
    with pytest.raises(UserError) as caught:
        render_definition(CPU, format="oci")
    assert caught.value.exit_code == 2
    assert "docker, singularity" in str(caught.value)


def test_a_stack_without_a_lock_says_how_to_make_one(tmp_path, monkeypatch):
    monkeypatch.setattr(render, "lock_path", lambda stack: tmp_path / f"{stack}.json")
    with pytest.raises(UserError, match="invoke lock"):
        render_definition(CPU, format="docker")


def test_the_second_stage_compiles_nothing():
    text = render_definition(CPU, format="docker")
    first, second = text.split("FROM ")[1:]
    lock = load_lock(lock_path("cpu"))
    assert "pip install" in first
    assert "g++" in first
    for compiler in ("g++", "gcc", "make", "pip install", "-dev "):
        assert compiler not in second
    assert all(name in second for name in lock.system["run"])


@pytest.mark.parametrize("format", FORMATS)
def test_a_local_base_takes_the_place_of_the_registry(format):
    image = CPU.base.image
    text = render_definition(CPU, format=format, local_base="/cache/root.tar")
    assert image not in text
    assert image in render_definition(CPU, format=format)
    expected = {
        "singularity": "BootStrap: localimage\nFrom: /cache/root.tar\n",
        "docker": "ADD /cache/root.tar /\n",
    }
    assert text.count(expected[format]) == 2


def test_a_finished_first_stage_is_taken_as_it_is():
    text = render_definition(CPU, format="singularity", local_base="/b", build_stage="/cache/s")
    assert "From: /cache/s\nStage: build\n" in text
    assert "pip install" not in text
    assert "%files from build" in text
    whole = render_definition(CPU, format="singularity", local_base="/b")
    last = whole.index("Stage: run")
    assert text[text.index("Stage: run") :] == whole[last:]


@pytest.mark.parametrize("stack", load_stacks())
@pytest.mark.parametrize("format", FORMATS)
def test_every_stack_of_the_catalogue_renders(stack, format):
    text = render_definition(load_stack(stack), format=format)
    assert load_stack(stack).base.image in text
    assert "\n\n\n" not in text


@pytest.mark.parametrize("stack", ["cuda12", "cuda11", "ngc12"])
def test_the_toolkit_of_a_gpu_stack_stays_in_the_first_stage(stack):
    first, second = render_definition(load_stack(stack), format="docker").split("FROM ")[1:]
    assert "HOROVOD_GPU_OPERATIONS=NCCL" in first
    assert "hvd.nccl_built()" in second
    for part in ("nvidia-cuda-toolkit", "nvcc", "libnccl-dev", "libnccl.so ", "g++", "non-free"):
        assert part not in second
    base = load_stack(stack).base
    assert first.startswith(f"{base.build_image or base.image} AS build")
    assert second.startswith(f"{base.image} AS run")


def test_the_second_stage_takes_exactly_what_is_kept_of_the_first():
    for name in load_stacks():
        text = render_definition(load_stack(name), format="docker")
        taken = re.findall(r"^COPY --from=build (\S+) (\S+)$", text, re.MULTILINE)
        assert sorted(taken) == sorted((p, p) for p in taken_paths(load_lock(lock_path(name))))


def test_recipes_hold_no_version_of_the_catalogue():
    chosen = {
        version
        for stack in load_stacks().values()
        for version in stack.components.values()
        if version.count(".")
    }
    for path in (PROJECT / "recipes").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not [version for version in chosen if f'"{version}"' in text], path


def test_definitions_are_written_where_they_are_committed(tmp_path):
    folders = [tmp_path / "containers" / stack for stack in IMAGE_STACKS]
    for folder in folders:
        folder.mkdir(parents=True)
    written = render.write_definitions(root=tmp_path)
    assert [path.name for path in written] == ["Singularity.def", "Dockerfile"] * len(folders)
    for path in written:
        committed = PROJECT / path.relative_to(tmp_path)
        assert path.read_bytes() == committed.read_bytes()
    assert sorted(tmp_path.rglob("*")) == sorted([*written, *folders, tmp_path / "containers"])


@pytest.mark.parametrize("format", FORMATS)
def test_each_stage_is_named_by_its_own_digest(format):
    stack, lock = load_stack("ngc12"), load_lock(lock_path("ngc12"))
    own = {"digest": "sha256:" + "ab" * 32, "build_digest": "sha256:" + "cd" * 32}
    text = render_definition(stack, format=format, lock=replace(lock, base=lock.base | own))
    name = stack.base.image.rpartition(":")[0]
    assert [line.split("sha256:")[1][:4] for line in text.splitlines() if f"{name}@" in line] == [
        "cdcd", "abab",
    ]  # fmt: skip
    assert stack.base.build_image not in text


@pytest.mark.parametrize("format", FORMATS)
def test_a_base_whose_digest_is_locked_is_named_by_it(format):
    lock = load_lock(lock_path("cpu"))
    digest = "sha256:" + "ab" * 32
    text = render_definition(
        CPU, format=format, lock=replace(lock, base={**lock.base, "digest": digest})
    )
    name = CPU.base.image.rpartition(":")[0]
    assert text.count(f"{name}@{digest}") == 2
    assert CPU.base.image not in text
