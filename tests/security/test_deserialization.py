"""Nothing that is read from a file can run code: no pickle, and weights as plain numbers only."""

import ast
from pathlib import Path

import pytest

FILES = [path for room in ("src", "scripts", "benchmarks") for path in Path(room).rglob("*.py")]
MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
# methods that pickle, whatever they are called on
METHODS = {
    *("read_pickle", "to_pickle", "all_gather_object", "gather_object", "scatter_object_list"),
    *("broadcast_object_list", "send_object_list", "recv_object_list", "unsafe_load", "full_load"),
}


def faults(text: str) -> list[str]:
    """Return the lines, with what they do, that could run code out of a file."""
    tree = ast.parse(text)
    imported: dict[str, str] = {}  # a local name and what it stands for
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                found += _module(node, alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += _module(node, node.module)
            for alias in node.names:
                imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _called(node.func, imported)
            given = {word.arg: getattr(word.value, "value", ...) for word in node.keywords}
            if (
                name.rpartition(".")[2] in METHODS
                or (name == "torch.load" and given.get("weights_only") is not True)
                or (name == "numpy.load" and given.get("allow_pickle", False) is not False)
                or (name == "yaml.load" and "Safe" not in ast.unparse(node))
            ):
                found.append(f"line {node.lineno}: {name}")
    return found


def _module(node: ast.AST, name: str) -> list[str]:
    return [f"line {node.lineno}: {name}"] if name.partition(".")[0] in MODULES else []


def _called(function: ast.expr, imported: dict[str, str]) -> str:
    """Return the dotted name of what is called, with imported names in full."""
    parts = []
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        parts.append(imported.get(function.id, function.id))
    return ".".join(reversed(parts))


def test_no_file_of_ours_reads_pickles():
    assert len(FILES) > 100
    for path in FILES:
        assert faults(path.read_text()) == [], path


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import joblib as j",
        "from cloudpickle import load",
        "import torch\ntorch.load(path)",
        "import torch as t\nt.load(path, weights_only=False)",
        "from torch import load\nload(path, weights_only=wish)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import pandas as pd\npd.read_pickle(path)",
        "rows.to_pickle(path)",
        "import torch.distributed as dist\ndist.all_gather_object(found, one)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "import yaml\nyaml.unsafe_load(text)",
    ],
)
def test_what_could_run_code_is_found(code):
    assert faults(code)


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.load(path, weights_only=True)",
        "import numpy as np\nnp.load(path)",
        "import json\njson.load(file)",
        "import yaml\nyaml.safe_load(text)",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "from safetensors.torch import load_file\nload_file(path)",
    ],
)
def test_what_cannot_is_left_alone(code):
    assert faults(code) == []
