"""A copy of the project in a folder of its own, in which Snakemake runs for real."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import yaml

ROOT = Path(__file__).parents[2]
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--cores", "all"]
SMOKE = "config/smoke.yaml"
PHASES = ("traces", "schedules", "all")  # the runs that `make run` consists of

# a server that is ready at once, where the test is about the processes around it
PACED = {
    "command": [
        sys.executable,
        "tests/paced.py",
        *("--port", "{port}", "--model", "{name}", "--first-token-s", "0.05"),
    ],
    "prompt_ids": [1000, 40000],
}
# a model for servers that read none: there in an instant, see Project.weightless
WEIGHTLESS = {"source": "folder", "id": "weightless", "name": "weightless"}
SMALL = {
    "run": "small",
    "horizon_s": 12,
    "client": {"drain_s": 5},
    "merge": {"merge_s": 2, "parameters": 2_000_000, "fragment_parameters": 500_000},
    "corridor": {"h_min": 16, "h_max": 48, "step_s": 0.0625},
    "slo": {"threshold_s": 1.0},
    "seeds": {"calibration": [], "tune": [], "judge": [1]},
    "learners": {"islands": 2, "layers": 1, "batch": 4},
    "policies": [{"id": "fixed_h_24", "policy": "fixed_h", "params": {"h": 24}}],
    "claims": [],
    "protocol": {"lateness_limit": 0.5, "loop_lag_limit_s": 1.0},
}


class Project:
    """The tracked and new files of this checkout, copied to ``folder``."""

    def __init__(self, folder: Path):
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def take(self, *names: str) -> None:
        """Copy ignored folders too, with their time stamps."""
        for name in names:
            if (ROOT / name).exists():
                copy_tree(ROOT / name, self.folder / name)

    def weightless(self) -> None:
        """Make the folder of the model WEIGHTLESS."""
        folder = self.folder / WEIGHTLESS["id"]
        folder.mkdir()
        (folder / "config.json").write_text('{"vocab_size": 49152}')
        (folder / "model.safetensors").touch()

    def config(self, name: str, **values) -> str:
        """Write config/<name>.yaml and return its path inside the project."""
        path = f"config/{name}.yaml"
        (self.folder / path).write_text(yaml.safe_dump(values))
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace ``old``, which must be there, in a file."""
        text = (self.folder / name).read_text()
        assert old in text, f"{name} does not hold {old!r}"
        (self.folder / name).write_text(text.replace(old, new, 1))

    def start(
        self, *targets: str, config: str, environment: dict[str, str] | None = None
    ) -> subprocess.Popen:
        """Start Snakemake in the background; its output is in snakemake.out."""
        with (self.folder / "snakemake.out").open("wb") as output:
            return subprocess.Popen(
                [*SNAKEMAKE, *targets, "--configfile", config],
                cwd=self.folder,
                env=self.environment() | (environment or {}),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_heed_interrupts,
            )

    def run(self, *arguments: str, config: str, timeout_s: float = 600) -> tuple[int, str]:
        """Run Snakemake to its end; return its exit status and all that it said."""
        done = subprocess.run(
            [*SNAKEMAKE, *arguments, "--configfile", config],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def environment(self) -> dict[str, str]:
        # this copy's library, not the installed checkout's
        return {**os.environ, "PYTHONPATH": str(self.folder / "src")}

    def interrupt(self, snakemake: subprocess.Popen) -> None:
        """Do what Ctrl-C does: SIGINT to Snakemake and all that shares its terminal."""
        os.killpg(snakemake.pid, signal.SIGINT)

    def said(self) -> str:
        return (self.folder / "snakemake.out").read_text(errors="replace")

    def processes(self) -> list[psutil.Process]:
        """Return all living processes that were started inside the project."""
        found = []
        for process in psutil.process_iter():
            try:
                inside = Path(process.cwd()).is_relative_to(self.folder)
                if inside and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def process(self, *words: str) -> psutil.Process:
        """Return the one process whose command line holds all ``words``."""
        found = []
        for process in self.processes():
            try:
                command = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if all(word in command for word in words):
                found.append(process)
        assert len(found) == 1, f"{words}: {found}"
        return found[0]

    def stop(self) -> None:
        """End whatever a failed test left behind."""
        for process in self.processes():
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue


def _heed_interrupts() -> None:
    # a shell lets what it starts in the background ignore them, and they would inherit that
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder with its time stamps; model weights, which nobody writes to, are linked."""

    def copy(one: str, other: str) -> None:
        try:
            if not one.endswith(".safetensors"):
                raise OSError
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, copy_function=copy)


def wait_until(true, timeout_s: float, what: str) -> float:
    """Return the seconds until ``true()``; fails when that takes longer than ``timeout_s``."""
    begin = time.monotonic()
    while not true():
        assert time.monotonic() - begin < timeout_s, f"{what}: not within {timeout_s} s"
        time.sleep(0.1)
    return time.monotonic() - begin


def planned(
    project: Project,
    config: str,
    names: tuple[str, ...] = ("policy", "draw"),
    target: str = "all",
) -> set[str]:
    """Return the jobs of a dry run: rule, and those wildcards of ``names`` that it has."""
    status, said = project.run("-n", target, config=config)
    assert status == 0, said
    jobs = set()
    for part in re.split(r"\n(?=(?:local)?(?:rule|checkpoint) \w+:\n)", said):
        rule = re.match(r"(?:local)?(?:rule|checkpoint) (\w+):\n", part)
        if not rule or rule[1] == target:
            continue
        wildcards = re.search(r"^    wildcards: (.*)$", part, re.MULTILINE)
        named = dict(pair.split("=", 1) for pair in wildcards[1].split(", "))
        shown = [named[name] for name in names if name in named]
        jobs.add(" ".join([rule[1], *shown]))
    return jobs
