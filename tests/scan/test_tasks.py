"""Tasks carry what a reader needs, and no credential."""

import pickle

import pytest
from msgspec import structs

from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.model.schema import parse_schema
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec, SelectionVector, check_variant
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.spark.job import with_urls

SCHEMA = parse_schema('{"type":"struct","fields":[{"name":"a","type":"long"},{"name":"b","type":"long"}]}')


def test_row_count():
    def task(records, deleted=None):
        vector = None if deleted is None else DeletionVector("i", SecretUrl("x"), 1, deleted)
        return FileScanTask(SecretUrl("u"), "f", 1, num_records=records, deletion_vector=vector)

    assert task(None).row_count is None
    assert task(None, 5).row_count is None
    assert task(10).row_count == 10
    assert task(10, 3).row_count == 7
    assert task(2, 3).row_count == 0


def test_tasks_are_frozen():
    task = FileScanTask(SecretUrl("u"), "f", 1)
    with pytest.raises(AttributeError):
        task.url = "x"
    assert structs.replace(task, url="x").url == "x"


def test_tasks_are_values():
    vector = DeletionVector("u", SecretUrl("https://h/dv?sig=s"), 1, 2)
    task = FileScanTask(SecretUrl("https://h/f?sig=s"), "f", 1, {"p": "1"}, 9, 5, vector, "v", {"c": 1}, False)
    again = pickle.loads(pickle.dumps(task))
    assert again == task
    assert hash(again) == hash(task)
    assert task != structs.replace(task, num_records=8)
    assert FileScanTask(SecretUrl("u"), "f", 1) == FileScanTask(SecretUrl("u"), "f", 1, {}, constants={})


def test_a_task_shows_what_it_is_and_no_url():
    vector = DeletionVector("u", SecretUrl("https://h/dv?sig=s"), 1, 2)
    task = FileScanTask(
        SecretUrl("https://h/f?sig=s"), "f1", 1, {"p": "1"}, 9, 5, vector, selection=SelectionVector(vector)
    )
    shown = repr(task)
    assert "https" not in shown + repr(list(task.__rich_repr__()))
    assert "expiration" not in shown
    assert shown.startswith("FileScanTask(file_id='f1', size=1, partition_values={'p': '1'}, num_records=9, ")


def test_other_urls_of_a_task_and_its_vectors():
    stored, selected = (DeletionVector("p", SecretUrl(f"https://h/{name}?sig=old"), 1, 2) for name in ("d", "s"))
    task = FileScanTask(
        SecretUrl("https://h/f?sig=old"), "f", 1, deletion_vector=stored, selection=SelectionVector(selected, "s1")
    )
    changed = with_urls(task, lambda key, url: SecretUrl(f"{url.reveal()[:-3]}new {key}"))
    urls = changed.url, changed.deletion_vector.path_or_inline, changed.selection.vector.path_or_inline
    assert [url.reveal() for url in urls] == [
        "https://h/f?sig=new f",
        "https://h/d?sig=new f (deletion vector without id)",
        "https://h/s?sig=new f (deletion vector s1)",
    ]


def test_the_fields_to_read():
    first, second = SCHEMA.fields
    spec = ReadSpec(SCHEMA.__class__((first,)), extra=(second,))
    assert spec.fields == (first, second)
    assert ReadSpec(SCHEMA).fields == SCHEMA.fields


def test_check_variant():
    assert check_variant("struct") == "struct"
    assert check_variant("json") == "json"
    for bad in ("JSON", "", None, 5):
        with pytest.raises(ValueError, match="variant is"):
            check_variant(bad)
