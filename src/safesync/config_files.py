"""The files under config/, written from the models: `python -m safesync.config_files`.

Every file is complete in itself, so that nothing about a run stands only in code.
"""

import json
import sys
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from safesync.config import Config, load

_WIDTH = 100

_BURSTS = {"family": "periodic", "quiet_rps": 1, "busy_rps": 6, "period_s": 30, "busy_s": 10}
_POLICIES = [
    {**entry.model_dump(), "measure": entry.id in ("fixed_h_256", "wa_forecast")}
    for entry in Config().policies
]

PRESETS: dict[str, tuple[str, dict]] = {
    "config": (
        "The default: one bursty block on two cores, at most 25 minutes after set-up.",
        {},
    ),
    "smoke": (
        "Everything real, but short: 6 minutes on two cores. Too little for any claim.",
        {
            "run": "smoke",
            "horizon_s": 30,
            "merge": {"merge_s": 4},
            "corridor": {"h_min": 48, "h_max": 192, "step_s": 0.0625},
            "slo": {"threshold_s": 1.5},
            "seeds": {"calibration": [], "tune": [], "judge": [23]},
            "policies": [
                {"id": "fixed_h_96", "policy": "fixed_h", "params": {"h": 96}},
                {"id": "wa_diloco", "policy": "wa_diloco"},
            ],
            "controls": {"draws": 1},
            "learners": {"islands": 4, "batch": 16, "h": 96},
            "parity": {"draws": 1, "seeds": [1]},
            "emulator": {"seeds": []},  # without calibration seeds there is no emulated tier
            # a noisy machine must not fail a smoke run; the figures are printed all the same
            "protocol": {"lateness_limit": 0.2, "loop_lag_limit_s": 1.0},
        },
    ),
    "regimes": (
        "The study's four regimes, bursty twice, each fixed by its description before any run.",
        {
            "run": "regimes",
            "horizon_s": 80,
            "regimes": {
                # light load, light contention
                "ordinary": {
                    "kind": "ordinary",
                    "arrivals": {"family": "poisson", "rate_rps": 1},
                    "ranks": 2,
                },
                # the bursty load beside another tenant, merge or no merge
                "pressure": {
                    "kind": "pressure",
                    "arrivals": _BURSTS,
                    "background": {
                        "load": {
                            "processes": 2,
                            "cpu_share": 0.5,
                            "network_bytes_per_s": 20e6,
                            "disk_bytes_per_s": 10e6,
                        }
                    },
                },
                # the bursty load's mean, constant: the negative control
                "steady": {
                    "kind": "steady",
                    "arrivals": {"family": "poisson", "rate_rps": 2.67},
                },
                "bursty": {"kind": "bursty", "arrivals": _BURSTS},
                "bursty_mmpp": {
                    "kind": "bursty",
                    "arrivals": {
                        "family": "mmpp2",
                        "rates_rps": [1, 6],
                        "mean_sojourn_s": [20, 10],
                    },
                },
            },
            "policies": _POLICIES,
            "claims": ["wa_forecast"],
            "controls": {"draws": 1},
            "parity": {"seeds": []},  # the default run trains
        },
    ),
    "trace": (
        "A real trace as the bursty regime: put Azure's AzureLLMInferenceTrace_code.csv (2023, "
        "github.com/Azure/AzurePublicDataset, CC-BY-4.0) into traces/ first.",
        {
            "run": "trace",
            "horizon_s": 80,
            "regimes": {
                "azure_code": {
                    "kind": "bursty",
                    "arrivals": {
                        "family": "trace",
                        "path": "traces/AzureLLMInferenceTrace_code.csv",
                        "scaling": "thin",
                        "target_rps": 1.5,
                        # the longest stretch without an idle slice; elsewhere 7 of 42 are empty
                        "window_start_s": 1040,
                        "window_s": 1040,
                        "lengths": "config",
                    },
                }
            },
            "policies": _POLICIES,
            "claims": ["wa_forecast"],
            "controls": {"draws": 1},
            "parity": {"seeds": []},  # the default run trains
        },
    ),
    "paper": (
        "The study's scale, for GPU nodes under SLURM: 600 s, 8 judged seeds, 19 draws.",
        {
            "run": "paper",
            "horizon_s": 600,
            "model": {
                "source": "hub",
                "id": "Qwen/Qwen2.5-1.5B-Instruct",
                "name": "qwen2.5-1.5b-instruct",
            },
            "sidecar": {"device": "cuda", "max_model_len": 2048, "max_num_seqs": 256},
            "merge": {
                "backend": "nccl",
                "parameters": 135_000_000,
                "fragment_parameters": 27_000_000,
            },
            "corridor": {"step_s": 0.125},
            "seeds": {
                "calibration": [11, 12, 13],
                "tune": [14, 15, 16],
                "judge": [23, 29, 31, 37, 41, 43, 47, 53],
            },
            "regimes": {
                name: {
                    "kind": "bursty",
                    "arrivals": arrivals,
                    "tokens": {
                        "prompt": {"law": "fixed", "tokens": 256},
                        "output": {"law": "fixed", "tokens": 128},
                    },
                }
                for name, arrivals in {
                    "periodic": {
                        "family": "periodic",
                        "quiet_rps": 4,
                        "busy_rps": 12,
                        "period_s": 120,
                        "busy_s": 30,
                    },
                    "mmpp": {"family": "mmpp2"},
                }.items()
            },
            "policies": [
                {"id": "fixed_h_256", "policy": "fixed_h", "params": {"h": 256}},
                {"id": "fixed_h_512", "policy": "fixed_h", "params": {"h": 512}},
                # scales for steps of 0.125 s and twice the load, chosen on the tune seeds for
                # budgets in mid-corridor and few forced merges
                {
                    "id": "wa_diloco",
                    "policy": "wa_diloco",
                    "params": {"staleness_scale_s": 64, "threshold": 0.6},
                },
                {
                    "id": "wa_forecast",
                    "policy": "wa_forecast",
                    "params": {"staleness_scale_s": 64, "threshold": 0.5, "overlap_scale": 120},
                },
                {
                    "id": "wa_offline",
                    "policy": "wa_offline",
                    "params": {"budget_from": "wa_forecast"},
                    "measure": False,
                },
            ],
            "signals": {"serving_reference": 24},
            "claims": ["wa_diloco", "wa_forecast"],
            "controls": {"draws": 19},
            "parity": {"draws": 3, "seeds": [1, 2, 3, 4, 5]},
            "emulator": {"seeds": list(range(101, 113))},  # 20 judge seeds in all
        },
    ),
    "styles": (
        "What hides a merge instead of scheduling it: one schedule, its merges blocking, throttled "
        "and overlapped, while the islands train beside the sidecar; about 20 minutes.",
        {
            "run": "styles",
            "horizon_s": 80,
            "regimes": {
                "bursty_training": {
                    "kind": "bursty",
                    "arrivals": _BURSTS,
                    "background": {"training": "learners"},
                }
            },
            "policies": [
                {"id": f"fixed_h_256{end}", "policy": "fixed_h", "params": {"h": 256}, **style}
                for end, style in (
                    ("", {}),
                    ("_throttled", {"style": "throttled"}),
                    ("_overlapped", {"style": "overlapped"}),
                )
            ],
            "claims": [],  # a style is no placement
        },
    ),
    "validation": (
        "How well the emulator predicts: 12 schedules of the default regime on three traces, and "
        "repeats for the noise from run to run; about 75 minutes on two cores.",
        {
            "run": "validation",
            "seeds": {"calibration": [11], "tune": [12, 13], "judge": [23, 29, 31]},
            "policies": [{"id": "fixed_h_256", "policy": "fixed_h", "params": {"h": 256}}],
            "claims": ["fixed_h_256"],
            "controls": {"draws": 3, "repeats": {"nosync": 3, "fixed_h_256": 3}},
            "emulator": {"seeds": list(range(101, 118))},  # 20 judge seeds in all
        },
    ),
}


def config_yaml(name: str) -> str:
    """Return the commented YAML of preset ``name``, with every key of the models."""
    purpose, values = PRESETS[name]
    config = load(values, f"preset {name}")
    head = f"# {purpose}\n# Written by `python -m safesync.config_files`; keys: config/README.md\n"
    return head + "\n".join(_section_lines(config, "")) + "\n"


def config_readme() -> str:
    """Return config/README.md: one table per section of the config."""
    parts = [
        "# Config\n",
        "Written by `python -m safesync.config_files` from the models in `src/safesync/config.py`.",
        "Each file here is complete in itself: copy one, edit it, and name it with",
        "`make run CONFIG=config/mine.yaml`, or Snakemake's `--configfile config/mine.yaml`.",
        "An unknown key is refused, and the nearest known one is named.\n",
        *(f"- `{name}.yaml`: {purpose}" for name, (purpose, _) in PRESETS.items()),
        "",
    ]
    for title, model in _models(Config, "top level", {}).items():
        parts += [f"## {title}\n", (model.__doc__ or "").strip().splitlines()[0], ""]
        parts += ["| key | type | default | meaning |", "|---|---|---|---|"]
        for key, field in model.model_fields.items():
            meaning = (field.description or _summary(field.annotation)).replace("|", "\\|")
            kind, default = _type_name(field.annotation), _default(field)
            parts.append(f"| `{key}` | {kind} | {default} | {meaning} |")
        parts.append("")
    return "\n".join(parts)


def _section_lines(section: BaseModel, indent: str) -> list[str]:
    lines = []
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        comment = field.description or _summary(field.annotation)
        nested = isinstance(value, BaseModel) or _block(value)
        if comment and (nested or len(f"{indent}{key}: {_shown(value)}  # {comment}") > _WIDTH):
            lines += _comment_lines(comment, indent)
            comment = ""
        if isinstance(value, BaseModel):
            lines += [f"{indent}{key}:", *_section_lines(value, indent + "  ")]
        elif isinstance(value, dict) and _block(value):
            lines.append(f"{indent}{key}:")
            for name, inner in value.items():
                lines += [f"{indent}  {name}:", *_section_lines(inner, indent + "    ")]
        elif isinstance(value, list) and _block(value):
            lines.append(f"{indent}{key}:")
            lines += [f"{indent}  - {_shown(inner)}" for inner in value]
        else:
            lines.append(f"{indent}{key}: {_shown(value)}" + (f"  # {comment}" if comment else ""))
    return lines


def _block(value: Any) -> bool:
    inner = list(value.values()) if isinstance(value, dict) else value
    return isinstance(inner, list) and any(isinstance(one, BaseModel) for one in inner)


def _comment_lines(text: str, indent: str) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and len(f"{indent}# {line} {word}") > _WIDTH:
            lines.append(f"{indent}# {line}")
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, f"{indent}# {line}"]


def _shown(value: Any) -> str:
    """Return YAML flow style that is JSON too, so that any reader agrees on it."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if (
        isinstance(value, str)
        and value.replace("_", "").replace("-", "").replace(".", "").isalnum()
    ):
        return (
            value
            if not value[0].isdigit() and value not in ("null", "true", "false")
            else (json.dumps(value))
        )
    return json.dumps(value)


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default()
    return "below" if isinstance(value, BaseModel) or _block(value) else f"`{_shown(value)}`"


def _models(model: type[BaseModel], title: str, found: dict) -> dict[str, type[BaseModel]]:
    """Return title -> model for ``model`` and everything nested in it, each once."""
    if model in found.values():
        return found
    found[title] = model
    for key, field in model.model_fields.items():
        for inner in _inner_models(field.annotation):
            place = key if title == "top level" else f"{title}.{key}"
            variant = len(_inner_models(field.annotation)) > 1
            _models(inner, f"{place} ({inner.__name__.lower()})" if variant else place, found)
    return found


def _inner_models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _inner_models(part)]


def _summary(annotation: Any) -> str:
    models = _inner_models(annotation)
    return (models[0].__doc__ or "").strip().splitlines()[0] if len(models) == 1 else ""


def _type_name(annotation: Any) -> str:
    parts = [part for part in get_args(annotation) if not _is_field_info(part)]
    if _inner_models(annotation):
        return {list: "list of sections", dict: "sections by name"}.get(
            get_origin(annotation), "section"
        )
    if get_origin(annotation) is None:
        return "null" if annotation is NoneType else getattr(annotation, "__name__", "any").lower()
    if all(isinstance(part, str) for part in parts):
        return " or ".join(f"`{part}`" for part in parts)
    names = [_type_name(part) for part in parts if part is not Ellipsis]
    origin = get_origin(annotation)
    if origin in (list, tuple, dict):
        return f"{origin.__name__} of {names[-1]}"
    return " or ".join(dict.fromkeys(names))


def _is_field_info(part: Any) -> bool:
    return type(part).__module__.startswith("pydantic")


def main(folder: Path) -> None:
    for name in PRESETS:
        (folder / f"{name}.yaml").write_text(config_yaml(name), encoding="utf-8")
    (folder / "README.md").write_text(config_readme(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("config"))
