"""A local model folder that vLLM can serve: converted from a package, copied from a hub or linked.

Only safetensors weights are accepted; pickled weights can run code when they are loaded.
"""

import hashlib
import importlib.util
import json
import os
import shutil
from pathlib import Path

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


class ModelError(RuntimeError):
    """The model cannot be prepared; the message is one sentence."""


def prepare_model(model: dict, folder: Path) -> dict[str, str]:
    """Bring the model of config section ``model`` into ``folder`` and return its checksums.

    ``model["source"]`` is ``package`` (a GGUF file inside an installed Python package,
    dequantized to bfloat16), ``hub`` (a Hugging Face id) or ``folder`` (a local folder, linked).
    Returns file name -> sha256 of everything that the server reads. Raises ModelError.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        _SOURCES[model["source"]](model, temporary)
        checksums = check_model(temporary, trust_remote_code=model["trust_remote_code"])
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return checksums


def check_model(folder: Path, *, trust_remote_code: bool = False) -> dict[str, str]:
    """Return file name -> sha256 of ``folder``; raises ModelError if it can't be served safely."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder; expected a model (config.json, *.safetensors)")
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder}: no config.json; expected a Hugging Face model folder")
    pickled = [path.name for pattern in PICKLED for path in sorted(folder.glob(pattern))]
    if pickled:
        raise ModelError(f"{folder}: holds pickled weights {pickled}; only safetensors are served")
    if not list(folder.glob("*.safetensors")):
        raise ModelError(f"{folder}: holds no *.safetensors weights")
    if not trust_remote_code and "auto_map" in _config(folder):
        raise ModelError(
            f"{folder / 'config.json'}: field 'auto_map' names code of the model's own; "
            "expected a built-in architecture, or model.trust_remote_code: true"
        )
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: _sha256(path) for path in files}


def vocabulary_size(folder: Path) -> int:
    """Return the number of token ids of the model in ``folder``."""
    return int(_config(folder)["vocab_size"])


def _config(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _from_package(model: dict, target: Path) -> None:
    spec = importlib.util.find_spec(model["id"])
    if spec is None:
        raise ModelError(f"config model.id: no installed package '{model['id']}'; run `make setup`")
    source = Path(spec.submodule_search_locations[0])
    found = sorted(source.glob("*.gguf"))
    if len(found) != 1:
        raise ModelError(f"{source}: holds {len(found)} GGUF files; expected exactly one")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    name = found[0].name
    weights = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    weights.save_pretrained(target, safe_serialization=True)
    AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(target)


def _from_hub(model: dict, target: Path) -> None:
    from huggingface_hub import snapshot_download

    wanted = ["*.safetensors", "*.json", "*.txt", "*.model"]
    if model["trust_remote_code"]:
        wanted.append("*.py")
    try:
        snapshot_download(
            model["id"], revision=model["revision"], local_dir=target, allow_patterns=wanted
        )
    except Exception as error:
        raise ModelError(
            f"config model.id: '{model['id']}' cannot be fetched from the hub ({error})"
        ) from error
    shutil.rmtree(target / ".cache", ignore_errors=True)


def _from_folder(model: dict, target: Path) -> None:
    source = Path(model["id"]).expanduser().resolve()
    if not source.is_dir():
        raise ModelError(f"config model.id: no such folder {source}")
    for path in sorted(source.iterdir()):
        if path.is_file():
            (target / path.name).symlink_to(path)


_SOURCES = {"package": _from_package, "hub": _from_hub, "folder": _from_folder}
