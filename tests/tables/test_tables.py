import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safesync.tables import Table, TableError, read_document, write_document
from safesync.tables.arrivals import ARRIVALS, arrivals_sha256
from safesync.tables.atomic import replacing
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE


@pytest.fixture
def arrivals():
    return pd.DataFrame(
        {
            "request_id": [0, 1],
            "arrival_s": [0.25, 1.5],
            "prompt_tokens": [64, 32],
            "output_tokens": [16, 8],
        }
    )


def test_what_is_written_is_read_back(tmp_path, arrivals):
    ARRIVALS.write(tmp_path / "a" / "part.parquet", arrivals, {"seed": 3})
    rows, facts = ARRIVALS.read_with_metadata(tmp_path / "a" / "part.parquet")
    assert facts == {"seed": 3}
    assert rows["prompt_tokens"].dtype == np.int32
    pd.testing.assert_frame_equal(rows, arrivals, check_dtype=False)


def test_equal_rows_give_equal_bytes(tmp_path, arrivals):
    ARRIVALS.write(tmp_path / "a", arrivals, {"b": 1, "a": 2})
    ARRIVALS.write(tmp_path / "b", arrivals.copy(), {"a": 2, "b": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_nothing_half_written_is_left(tmp_path, arrivals):
    arrivals["arrival_s"] = ["soon", "later"]
    with pytest.raises(TableError, match="do not fit table 'arrivals'"):
        ARRIVALS.write(tmp_path / "a", arrivals)
    assert list(tmp_path.iterdir()) == []


def test_columns_are_checked_on_the_way_out(tmp_path, arrivals):
    with pytest.raises(TableError, match=r"missing \['arrival_s'\] and unknown \['arrival'\]"):
        ARRIVALS.write(tmp_path / "a", arrivals.rename(columns={"arrival_s": "arrival"}))


def test_a_null_where_a_count_belongs_is_refused(tmp_path, arrivals):
    arrivals["prompt_tokens"] = [64.5, 32]
    with pytest.raises(TableError):
        ARRIVALS.write(tmp_path / "a", arrivals)


@pytest.mark.parametrize("cut", [0, 10, -20])
def test_a_truncated_file_is_one_sentence(tmp_path, arrivals, cut):
    path = tmp_path / "a"
    ARRIVALS.write(path, arrivals)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(TableError, match="not a readable Parquet file"):
        ARRIVALS.read(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TableError, match=r"nothing: no such file; expected a table 'arrivals'"):
        ARRIVALS.read(tmp_path / "nothing")


def test_another_table_is_refused(tmp_path, arrivals):
    ARRIVALS.write(tmp_path / "a", arrivals)
    with pytest.raises(TableError, match="holds table 'arrivals', expected 'schedule'"):
        SCHEDULE.read(tmp_path / "a")


def test_an_older_schema_version_is_refused(tmp_path, arrivals):
    ARRIVALS.write(tmp_path / "a", arrivals)
    newer = Table("arrivals", ARRIVALS.schema, version=2)
    with pytest.raises(TableError, match="schema version 1, expected 2"):
        newer.read(tmp_path / "a")


def test_a_column_of_another_type_is_refused(tmp_path, arrivals):
    ARRIVALS.write(tmp_path / "a", arrivals)
    table = pq.read_table(tmp_path / "a")
    other = table.set_column(1, "arrival_s", table["arrival_s"].cast(pa.float32()))
    pq.write_table(other.replace_schema_metadata(table.schema.metadata), tmp_path / "a")
    with pytest.raises(TableError, match="'arrival_s' has type float, expected double"):
        ARRIVALS.read(tmp_path / "a")


def test_a_foreign_parquet_file_is_refused(tmp_path, arrivals):
    arrivals.to_parquet(tmp_path / "a")
    with pytest.raises(TableError, match="no safesync metadata"):
        ARRIVALS.read(tmp_path / "a")


def test_empty_tables_keep_their_types(tmp_path):
    REQUESTS.write(tmp_path / "a", REQUESTS.empty())
    assert REQUESTS.read(tmp_path / "a").empty


def test_the_hash_of_arrivals_sees_every_column(arrivals):
    told = {arrivals_sha256(arrivals)}
    for column in arrivals:
        changed = arrivals.copy()
        changed.loc[1, column] = changed.loc[1, column] + 1
        told.add(arrivals_sha256(changed))
    assert len(told) == 5


def test_documents_refuse_what_json_cannot_say(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_document(tmp_path / "a.json", {"p": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_document_without_a_field_is_refused(tmp_path):
    write_document(tmp_path / "a.json", {"b": 1})
    with pytest.raises(TableError, match="no field 'a'"):
        read_document(tmp_path / "a.json", ("a",))
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(TableError, match="not valid JSON"):
        read_document(tmp_path / "a.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(KeyError), replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
