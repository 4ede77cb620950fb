"""What is read out of a GPU image: cuobjdump's lists, and a program that fails inside."""

import json
from pathlib import Path

import pytest

from benchmarks import gpu_image

# As cuobjdump of CUDA 13 prints it.
LISTED = """\
LIBRARY /v/nvidia/nccl/lib/libnccl.so.2
ELF file    1: libnccl.1.sm_70.cubin
ELF file    2: libnccl.2.sm_70.cubin
ELF file    3: libnccl.3.sm_90a.cubin
PTX file    1: libnccl.1.sm_120.ptx
LIBRARY /v/nvidia/cudnn/lib/libcudnn_graph.so.9
"""


@pytest.fixture
def image(tmp_path, monkeypatch):
    """Return a function that puts an engine on PATH which says what it is given."""
    path = tmp_path / "image.sif"
    path.write_bytes(b"")
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    def put(text, code=0):
        said = tmp_path / "said"
        said.write_text(text)
        program.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/asked\ncat {said}\nexit {code}\n')
        program.chmod(0o755)
        return path

    return put


def test_kernels_are_read_by_library_and_kind(image, tmp_path):
    kernels = gpu_image.list_kernels(image(LISTED), ["/v/*"], tool=Path("/tools"))
    assert kernels == {
        "libnccl.so.2": gpu_image.Kernels(binary=(70, 90), ptx=(120,)),
        "libcudnn_graph.so.9": gpu_image.Kernels(binary=(), ptx=()),
    }
    asked = (tmp_path / "asked").read_text()
    assert f"--bind /tools:{gpu_image.TOOLS}" in asked
    assert "--list-elf --list-ptx" in asked


def test_what_the_image_tells_is_found_among_what_its_libraries_print(image):
    path = image('2026 some warning\nTOLD {"nccl": 23203}\nbye\n')
    assert gpu_image.tell(path) == {"nccl": 23203}


def test_a_command_that_fails_inside_is_no_answer(image):
    with pytest.raises(RuntimeError, match="exited 3"):
        gpu_image.find_packages(image("libc6\n", code=3))


def test_the_record_names_the_command_that_was_run(tmp_path, monkeypatch):
    sizes = ["image: size", "image, unpacked: size", "its wheels, unpacked: size"]
    measured = [{"name": name, "value": 2.0, "unit": "MiB"} for name in sizes]
    monkeypatch.setattr(gpu_image, "measure_image", lambda image, *, folder: measured)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build.json").write_text('{"seconds": {}}')
    given = ["--stack", "cuda12", "--image", "i.sif", "--build", "build.json"]
    monkeypatch.setattr("sys.argv", ["gpu_image", "--output", "record.json", *given])
    gpu_image.main()
    command = json.loads((tmp_path / "record.json").read_text())["command"]
    assert command == ["python", "-m", "benchmarks.gpu_image", "--output", "record.json", *given]
