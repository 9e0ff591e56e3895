"""One measurement, real but for its server, whose config and environment mean no good."""

from dataclasses import dataclass

import psutil
import pytest
from security.ill_will import NASTY, POLICY, SECRETS, VALUES
from security.search import holding
from security.sockets import listening, status
from workflow.measuring import reached
from workflow.project import Project, wait_until


@dataclass(frozen=True)
class Measured:
    """What was seen of the measurement.

    ``key``: the server's own. ``listening``: see ``sockets``. ``statuses``: what its server
    answered without a key, with a wrong one and with its own, to a GET and to a completion.
    ``told_under_load``: files that held a secret while the load ran.
    """

    project: Project
    key: str
    listening: dict[str, list[str]]
    statuses: list[tuple[int, int]]
    told_under_load: set[str]


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("security") / "project")
    project.weightless()
    (project.folder / "weightless").rename(project.folder / VALUES["model"]["id"])
    rows = "".join(f"{i / 4}\n" for i in range(4 * 60))
    (project.folder / f"trace {NASTY}.csv").write_text("arrival_s\n" + rows)
    (project.folder / f"policy {NASTY}.py").write_text(POLICY)
    config = project.config("small", **VALUES)
    snakemake = reached(project, config, environment=SECRETS)
    server = project.process("tests/paced.py")
    key = server.environ()["VLLM_API_KEY"]
    words = server.cmdline()
    url = f"http://127.0.0.1:{words[words.index('--port') + 1]}"
    body = b'{"model": "weightless", "prompt": [1], "max_tokens": 1}'
    seen = Measured(
        project,
        key,
        listening(project.processes()),
        [
            (status(f"{url}/v1/models", given), status(f"{url}/v1/completions", given, body))
            for given in (None, SECRETS["VLLM_API_KEY"], key)
        ],
        holding(project.folder, [*SECRETS.values(), key]),
    )
    wait_until(lambda: snakemake.poll() is not None, 120, "the run's end")
    assert snakemake.returncode == 0, project.said()
    assert psutil.pid_exists(server.pid) is False
    yield seen
    project.stop()
