"""Whether a stored measurement is the one that the config asks for.

Snakemake reruns what its records say has changed. Results that were copied, or whose records were
lost, come without records: what a manifest says of itself is the last word.
"""

from collections.abc import Mapping

IDENTITY = ("run", "regime", "seed", "policy", "draw")


class ProvenanceError(ValueError):
    """A measurement is not what its place or the config says; the message is one sentence."""


def check_identity(path: str, manifest: Mapping, expected: Mapping) -> None:
    """Raise ProvenanceError when ``manifest`` is that of another measurement than ``expected``."""
    for field in IDENTITY:
        if manifest.get(field) != expected[field]:
            raise ProvenanceError(
                f"{path}: {field} is {manifest.get(field)!r}, expected {expected[field]!r}; remove "
                "the measurement's files and run again"
            )


def check_settings(path: str, manifest: Mapping, settings: Mapping) -> None:
    """Raise ProvenanceError when a measurement was made with other settings than ``settings``.

    ``settings``: ``horizon_s`` and the config sections ``sidecar``, ``client``, ``merge`` and
    ``model`` as measurements take them; keys that only the manifest has are not compared.
    """
    found = {"horizon_s": manifest["horizon_s"], **manifest["config"]}
    for name, wanted in settings.items():
        if not isinstance(wanted, Mapping):
            wanted, have = {"": wanted}, {"": found.get(name)}
        else:
            have = found.get(name, {})
        for key, value in wanted.items():
            if have.get(key) != value:
                place = f"{name}.{key}".rstrip(".")
                raise ProvenanceError(
                    f"{path}: was measured with {place} = {have.get(key)!r}, the config says "
                    f"{value!r}; remove the measurement's files and run again"
                )
