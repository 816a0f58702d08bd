"""The device guard that torch looks for before it computes on CUDA, compiled for the installed
torch."""

import ctypes
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("guard.cpp")


def compiler() -> str | None:
    """Return the path of the C++ compiler, None without one."""
    return shutil.which(os.environ.get("CXX", "c++"))


def load_guard(folder: Path) -> None:
    """Register the guard, before torch has asked for one; what is compiled lies in ``folder``."""
    spec = importlib.util.find_spec("torch")  # found and not imported
    assert spec is not None
    assert spec.origin is not None
    torch = Path(spec.origin).parent
    libraries = torch / "lib"
    library = folder / "guard.so"
    options = ["-O0", "-std=c++20", "-fPIC", "-shared", f"-I{torch}/include", f"-L{libraries}"]
    command = [compiler(), *options, SOURCE, "-lc10", "-ltorch_cpu", "-o", library]
    subprocess.run(command, check=True)
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(libraries / name), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(library))
