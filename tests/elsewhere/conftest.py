"""The device "elsewhere", compiled and registered before any test of the session runs.

Autograd makes its threads at the first backward pass, one for each kind of device that it knows by then.
It takes a C++ compiler (CXX, default c++) and half a minute; a session without its tests does not pay for it.
"""

import os
import subprocess
import tempfile
import types
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import include_paths, library_paths

HERE = Path(__file__).parent


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly and any(item.path.parent == HERE for item in session.items):
        with tempfile.TemporaryDirectory() as folder:
            torch.ops.load_library(compiled(Path(folder)))
        register()


def compiled(folder: Path) -> str:
    library = str(folder / "device.so")
    command = [os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-std=c++20", "-O1", "-o", library]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    includes = [f"-I{path}" for path in include_paths()]
    libraries = [f"-L{path}" for path in library_paths()] + ["-lc10", "-ltorch_cpu"]
    subprocess.run([*command, abi, *includes, str(HERE / "device.cpp"), *libraries], check=True)
    return library


def register() -> None:
    torch.utils.rename_privateuse1_backend("elsewhere")
    module = types.ModuleType("elsewhere")
    vars(module).update(
        is_available=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        _is_in_bad_fork=lambda: False,
        manual_seed_all=lambda seed: None,
        get_amp_supported_dtype=lambda: [torch.bfloat16],
    )
    torch._register_device_module("elsewhere", module)
