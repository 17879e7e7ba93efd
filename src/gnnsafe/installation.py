"""What is installed here, what is missing, and what to do about it; torch is imported, but need not work."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal, NamedTuple

from gnnsafe import __version__
from gnnsafe.errors import GnnsafeError

__all__ = ["Finding", "findings"]

State = Literal["ok", "missing", "wrong"]

REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[.*?\])?(>=(?P<least>[\d.]+))?.*?(extra == .(?P<extra>[\w-]+).)?$")
JAVA = 17  # the oldest that Spark 4 takes
INSTALL_JAVA = f"install Java {JAVA} (Debian: apt install openjdk-{JAVA}-jre-headless), or set JAVA_HOME"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Finding(NamedTuple):
    """One thing that was looked at: there, missing where it is optional, or wrong, and what to do about it."""

    part: str
    about: str
    state: State
    text: str
    remedy: str = ""


def findings(root: str | None = None) -> list[Finding]:
    """All of them; `root` is the data root where `GNNSAFE_DATA` does not name it."""
    return [*_versions(), *_machine(), *_extras(), *_data(root)]


def _versions() -> Iterator[Finding]:
    yield Finding("versions", "gnnsafe", "ok", f"{__version__} in {Path(__file__).parent}")
    yield Finding("versions", "Python", "ok", f"{platform.python_version()} on {platform.platform()}")
    needed = _requirements().get("", {})
    if not needed:
        yield Finding("versions", "package", "wrong", "gnnsafe is not installed, only found", "pip install gnnsafe")
    for name, least in needed.items():
        have = _version(name)
        state: State = "ok" if have is not None and _enough(have, least) else "wrong"
        text = "not installed" if have is None else have if state == "ok" else f"{have}, older than {least}"
        yield Finding("versions", name, state, text, "" if state == "ok" else f"pip install '{name}>={least}'")


def _machine() -> Iterator[Finding]:
    try:
        import torch

        from gnnsafe.bench.cores import free_memory
    except Exception as error:  # whatever a broken build raises
        text = f"it cannot be imported: {type(error).__name__}: {error}"
        yield Finding("machine", "torch", "wrong", text, "reinstall it, see https://pytorch.org")
        return
    asked, free = os.environ.get("OMP_NUM_THREADS"), free_memory()
    by = f", OMP_NUM_THREADS={asked}" if asked else ""
    yield Finding("machine", "threads", "ok", f"torch takes {torch.get_num_threads()} of {os.cpu_count()} cores{by}")
    yield Finding("machine", "memory", "ok", "unknown" if free is None else f"{free / 1024:.1f} GB free")
    if torch.cuda.is_available():
        found = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
        yield Finding("machine", "devices", "ok", f"cpu, cuda: {found}")
    elif shutil.which("nvidia-smi"):
        text = f"cpu alone, though there is a GPU: torch {torch.__version__} cannot use it"
        yield Finding("machine", "devices", "missing", text, "install a CUDA build, see https://pytorch.org")
    else:
        yield Finding("machine", "devices", "ok", "cpu")


def _extras() -> Iterator[Finding]:
    outside = {"spark": _java, "dev": _browser}
    for extra, needed in sorted(_requirements().items()):
        if not extra:
            continue
        have = {name: _version(name) for name in needed}
        lacking = [name for name, found in have.items() if found is None]
        old = [name for name, found in have.items() if found is not None and not _enough(found, needed[name])]
        states: dict[State, str] = {"wrong": "too old: " + ", ".join(old), "missing": "without " + ", ".join(lacking)}
        state: State = "wrong" if old else "missing" if lacking else "ok"
        text = states.get(state) or ", ".join(f"{name} {found}" for name, found in have.items())
        yield Finding("extras", extra, state, text, "" if state == "ok" else f"pip install 'gnnsafe[{extra}]'")
        if extra in outside and not lacking:
            yield outside[extra]()


def _java() -> Finding:
    """Spark's: the one of JAVA_HOME, or of the path."""
    home = os.environ.get("JAVA_HOME")
    command = shutil.which("java", path=f"{home}/bin" if home else None)
    if command is None:
        return Finding("extras", "Java, for spark", "wrong", "there is none", INSTALL_JAVA)
    told = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found is None or int(found[1]) < JAVA:
        text = f"{command} is {'of no known version' if found is None else found[1]}, older than {JAVA}"
        return Finding("extras", "Java, for spark", "wrong", text, INSTALL_JAVA)
    return Finding("extras", "Java, for spark", "ok", f"{found[1]}, {command}")


def _browser() -> Finding:
    command = next(filter(None, map(shutil.which, BROWSERS)), None)
    if command is not None:
        return Finding("extras", "Chromium, for dev", "ok", command)
    remedy = "install Chromium (Debian: apt install chromium)"
    return Finding("extras", "Chromium, for dev", "missing", "none: tests of pages are left out", remedy)


def _data(root: str | None) -> Iterator[Finding]:
    try:
        from gnnsafe.datasets import DATASETS
        from gnnsafe.datasets.cache import cache_folder
    except Exception:  # of torch, which was told of above
        return
    place, cache = root or os.environ.get("GNNSAFE_DATA"), cache_folder()
    if place is None:
        text = "GNNSAFE_DATA is not set: data sets are downloaded when first asked for"
        yield Finding("data", "data root", "ok", text)
    elif Path(place).is_dir():
        yield Finding("data", "data root", "ok", place)
    else:
        remedy = "set GNNSAFE_DATA to a folder laid out as PyG does, or unset it"
        yield Finding("data", "data root", "wrong", f"'{place}' is no folder", remedy)
    there = next((folder for folder in (cache, *cache.parents) if folder.exists()), None) if cache else None
    if there is not None and os.access(there, os.W_OK):
        yield Finding("data", "cache", "ok", str(cache))
    else:
        text = f"{cache or 'none'}: cannot be written to, so that graphs are prepared again each time"
        yield Finding("data", "cache", "missing", text, "set XDG_CACHE_HOME to a folder of yours")
    try:
        known = {name: dataset.available(root) for name, dataset in DATASETS.items()}
    except GnnsafeError:  # of the data root, which was told of above
        return
    yield Finding("data", "available", "ok", ", ".join(name for name, here in known.items() if here))
    if away := [name for name, here in known.items() if not here]:
        remedy = "gnnsafe.load_benchmark downloads what is public, or set GNNSAFE_DATA to a folder that has them"
        yield Finding("data", "not available", "missing", ", ".join(away), remedy)


def _requirements() -> dict[str, dict[str, str]]:
    """What gnnsafe needs, "", and what its extras do: names, with the least version or none."""
    found: dict[str, dict[str, str]] = {}
    try:
        lines = requires("gnnsafe") or []
    except PackageNotFoundError:
        return {}
    for line in lines:
        match = REQUIREMENT.match(line)
        assert match is not None
        found.setdefault(match["extra"] or "", {})[match["name"]] = match["least"] or "0"
    return found


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _enough(have: str, least: str) -> bool:
    """Whether a version is another, or later.

    >>> _enough("2.10.1", "2.9"), _enough("1.26.0rc1", "1.26"), _enough("0.9", "1")
    (True, True, False)
    """
    numbers = ([int(part) for part in re.findall(r"\d+", text)] for text in (have, least))
    return next(numbers) >= next(numbers)
