"""Which files of the library a rule runs: those it names and, file by file, all they import."""

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parent
_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def library(*names: str) -> list[str]:
    """Return the files of ``names`` (a room, or room.module) and of what they import, sorted.

    Paths are relative to the working folder, as Snakemake wants its inputs. Raises ValueError for
    a name that is no room or module.
    """
    found: set[Path] = set()
    todo = [file for name in names for file in _files(name)]
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            todo.extend(imports(file))
    return sorted(os.path.relpath(file) for file in found)


def _files(name: str) -> list[Path]:
    place = _ROOT.joinpath(*name.split("."))
    if place.is_dir():
        return sorted(place.rglob("*.py"))
    if place.with_suffix(".py").is_file():
        return [place.with_suffix(".py")]
    raise ValueError(f"library: no room or module '{name}' under {_ROOT}")


@cache
def imports(file: Path) -> tuple[Path, ...]:
    """Return the files of the library that ``file`` imports, and the packages it stands in."""
    names = set()
    for node in _statements(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    modules = {module for name in names for module in _modules(name.split("."))}
    packages = {parent / "__init__.py" for parent in file.parents if _ROOT in parent.parents}
    return tuple(sorted(modules | packages))


def beside(file: str) -> list[str]:
    """Return the files that a user's Python ``file`` imports from its folder or the working one.

    All that follow from those too, sorted; what is imported from elsewhere is an installed package.
    A file that is missing or does not parse has none: those who run it say what is wrong.
    """
    found: set[Path] = set()
    todo = [Path(file)]
    while todo:
        one = todo.pop()
        for module in _imported(one):
            for folder in (one.parent, Path()):
                place = folder / f"{module}.py"
                if place.is_file() and place not in (found | {Path(file)}):
                    found.add(place)
                    todo.append(place)
    return sorted(map(str, found))


def _imported(file: Path) -> set[str]:
    """Return the first names of the modules that ``file`` imports."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return set()
    names = set()
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return {name.partition(".")[0] for name in names}


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements; a walk through their expressions too would take three times as long."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _STATEMENTS):
            yield node
            yield from _statements(node)


def _modules(parts: list[str]) -> list[Path]:
    if parts[0] != _ROOT.name or len(parts) == 1:
        return []
    place = _ROOT.joinpath(*parts[1:])
    if (place / "__init__.py").is_file():
        return [place / "__init__.py"]
    return [place.with_suffix(".py")] if place.with_suffix(".py").is_file() else []
