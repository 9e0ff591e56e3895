"""The verdict table in the terminal, and the schema that its file keeps to."""

import io
import json
from pathlib import Path

import jsonschema
import pytest
from protocol.planted import RUN_FACTS, study
from rich.console import Console

from safesync import schema, show
from safesync.protocol.gates import Gate, Scope
from safesync.protocol.verdict import judge
from safesync.tables import write_document

PASSED = [
    (Scope(), Gate(name, True, 1.0, 1.0, "Passed elsewhere."))
    for name in ("effect-size transfer", "causality", "training parity", "matched spacing")
]


@pytest.fixture(scope="module")
def verdict():
    """A study with an EARNED claim, one that was never replayed, and a described baseline."""
    return judge(
        study(-0.03),
        {},
        ["wa", "absent"],
        given_gates=PASSED,
        seeds={"judge": [0, 1, 2, 3, 4, 5]},
        **RUN_FACTS,
    )


@pytest.fixture
def path(verdict, tmp_path):
    write_document(tmp_path / "verdict.json", verdict)
    return tmp_path / "verdict.json"


def printed(path, **options):
    console = Console(file=io.StringIO(), width=140, highlight=False, **options)
    show.show(show.read_verdict(path), console)
    return console.file.getvalue()


def test_the_table_is_aligned_and_says_what_the_file_says(path, verdict):
    lines = printed(path).splitlines()
    assert lines[0] == verdict["answer"]
    heading = next(line for line in lines if "verdict" in line and "policy" in line)
    earned = next(line for line in lines if "EARNED" in line and line.startswith("vllm"))
    absent = next(line for line in lines if "INCONCLUSIVE" in line and line.startswith("vllm"))
    for word, cell in (("verdict", "EARNED"), ("policy", "wa"), ("regime", "bursty")):
        assert heading.index(word) == earned.index(cell)
    assert heading.index("verdict") == absent.index("INCONCLUSIVE")
    gain = verdict["verdicts"][0]["gain"]["points"]
    assert f"+{gain:.2f}" in earned
    assert earned.index(f"+{gain:.2f}") + 5 == heading.index("gain, points") + len("gain, points")
    assert "0.031" in earned.split()[-3]  # p after Holm over two claims: 2 / 2^6
    assert absent.split()[-6:] == ["–", "–", "0", "–", "–", "–"]
    said = " ".join(" ".join(lines).split())
    for result in verdict["verdicts"]:
        assert f"({result['tier']}): {result['sentence']}" in said


def test_what_would_settle_a_case_stands_behind_its_sentence(tmp_path):
    undecided = judge(study(-0.03, blocks=1, draws=3), {}, ["wa"], **RUN_FACTS)
    write_document(tmp_path / "verdict.json", undecided)
    said = " ".join(printed(tmp_path / "verdict.json").split())
    (result,) = undecided["verdicts"]
    assert f"{result['sentence']} {result['settle']['sentence']}" in said


def test_colours_are_for_a_terminal_only(path):
    assert "\x1b" not in printed(path)
    assert "\x1b[1;34mEARNED" in printed(path, force_terminal=True, color_system="standard")


def test_the_command_prints_without_colours_into_a_pipe(path, capsys):
    show.main(str(path))
    assert capsys.readouterr().out == printed(path)


def test_it_finds_the_verdict_of_a_config(path, verdict, monkeypatch, tmp_path, capsys):
    config = Path("config/smoke.yaml").resolve()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/smoke").mkdir(parents=True)
    path.rename(tmp_path / "results/smoke/verdict.json")
    show.main(str(config))
    said = capsys.readouterr().out
    assert verdict["answer"] in said and "The report is" not in said
    (tmp_path / "results/smoke/report").mkdir()
    Path("results/smoke/report/index.html").touch()
    show.main(str(config))
    assert capsys.readouterr().out == f"{said}The report is results/smoke/report/index.html\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, r"verdict\.json: there is no such file; `make run` makes it$"),
        ("{", r"verdict\.json: not valid JSON"),
        ('{"answer": ""}', r"verdict\.json: no field 'version'$"),
        ('{"version": 1, "answer": "", "verdicts": []}', "version 1 of the verdict document"),
    ],
)
def test_a_file_that_is_none_of_ours_is_one_sentence(path, text, sentence):
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit, match=sentence) as stopped:
        show.main(str(path))
    assert "\n" not in str(stopped.value)


def test_a_field_of_the_wrong_kind_is_named(path, verdict):
    path.write_text(json.dumps(verdict | {"run": 5}))
    with pytest.raises(SystemExit, match=r"verdict\.json: field run: "):
        show.main(str(path))


def test_a_config_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(SystemExit, match=r"none\.yaml"):
        show.main(str(tmp_path / "none.yaml"))


def test_the_schema_in_the_docs_is_that_of_the_models():
    """Written by `python -m safesync.schema`."""
    assert json.loads(Path(schema.PATH).read_text()) == schema.schema()


def test_a_verdict_keeps_to_the_schema_in_the_docs(path):
    document = json.loads(path.read_text())
    validator = jsonschema.Draft202012Validator(json.loads(Path(schema.PATH).read_text()))
    validator.validate(document)
    document["verdicts"][0]["verdict"] = "WON"
    document["verdicts"][0]["gain"]["points"] = "much"
    del document["family"]
    told = sorted(error.json_path for error in validator.iter_errors(document))
    assert told == ["$", "$.verdicts[0].gain", "$.verdicts[0].verdict"]
