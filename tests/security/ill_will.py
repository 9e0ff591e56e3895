"""A config and an environment that mean no good: shell commands in every string, and secrets."""

from workflow.measuring import QUICK
from workflow.project import PACED, SMALL

# would make a file 'pwned' wherever a shell reads it
NASTY = "x; touch pwned; $(touch pwned) `touch pwned` & touch pwned"
SECRETS = {
    "HF_TOKEN": "hf_plantedTokenOfTheHub",
    "HUGGING_FACE_HUB_TOKEN": "hf_plantedTokenOfOldName",
    "VLLM_API_KEY": "planted-key-of-another-server",
    "SAFESYNC_SIDECAR_API_KEY": "planted-key-of-a-running-server",
    "SAFESYNC_API_KEY": "planted-key-of-a-load-generator",
}
POLICY = """\
from safesync.policies import Decision, Policy

class Never(Policy):
    name = "never"
    def decide(self, observation):
        return Decision(merge=False)

POLICY = Never
"""
VALUES = QUICK | {
    "model": {"source": "folder", "id": f"weights {NASTY}", "name": "weightless"},
    "sidecar": PACED
    | {
        "command": [*PACED["command"], "--text", NASTY],
        "dtype": NASTY,
        "extra_args": [NASTY],
    },
    "merge": SMALL["merge"] | {"ranks": 2},
    "regimes": {
        "bursty": {
            "arrivals": {"family": "trace", "path": f"trace {NASTY}.csv"},
            "background": {
                "load": {"network_bytes_per_s": 100_000, "disk_bytes_per_s": 100_000},
                "training": "learners",
            },
        }
    },
    "policies": [{"id": "never", "file": f"policy {NASTY}.py"}],
}
