"""The header `fileidhash`, by which a renewal of URLs in another format requests the ids that it knows."""

import pytest
from faults.server import Reply

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.names import Table
from delta_sharing_client.scan.url_renewal import UrlLister
from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest

TABLE = Table("t", "s", "d")
QUERY = "/shares/s/schemas/d/tables/t/query"
CHANGES = "/shares/s/schemas/d/tables/t/changes"
SCHEMA = '{"type": "struct", "fields": []}'
METADATA = {"id": "m", "format": {"provider": "parquet"}, "schemaString": SCHEMA, "partitionColumns": []}
PARQUET = [{"protocol": {"minReaderVersion": 1}}, {"metaData": METADATA}]
DELTA = [
    {"protocol": {"deltaProtocol": {"minReaderVersion": 3, "minWriterVersion": 7}}},
    {"metaData": {"deltaMetadata": METADATA}},
]


def file(kind, url):
    if kind == "parquet":
        return {"file": {"url": url, "id": "md5", "partitionValues": {}, "size": 1}}
    return {"file": {"id": kind, "deltaSingleAction": {"add": {"path": url, "size": 1}}}}


@pytest.mark.protocol("fileidhash")
def test_a_renewal_in_the_other_format_keeps_the_ids(rest, server):
    def answer(request):
        if "delta" not in request.headers["delta-sharing-capabilities"].split(";")[0]:
            return (
                Reply(status=400)
                if table_needs_delta
                else Reply.of_lines(*PARQUET, file("parquet", "https://h/1"))
            )
        known = request.headers.get("fileidhash")
        headers = {} if known is None else {"fileidhash": known.upper()}
        return Reply.of_lines(*DELTA, file("md5" if known == "parquet" else "sha", "https://h/2"), headers=headers)

    server.on("POST", QUERY, answer)
    table_needs_delta = False
    listed = rest.query_table(TABLE, QueryRequest(formats=("parquet",)))
    table_needs_delta = True
    urls = UrlLister(rest, TABLE, listed).list_urls().urls
    assert {name: url.reveal() for name, url in urls.items()} == {"md5": "https://h/2"}
    assert [request.headers.get("fileidhash") for request in server.requests] == [None, None, "parquet"]


@pytest.mark.parametrize("asked", ["parquet", "delta"])
def test_an_answer_with_other_ids_is_refused(rest, server, asked):
    other = {"parquet": "delta", "delta": "parquet"}[asked]
    for method, path in (("POST", QUERY), ("GET", CHANGES)):
        server.on(method, path, Reply.of_lines(*PARQUET, headers={"fileidhash": other}))
    with pytest.raises(ProtocolError, match=f"fileidhash={asked}"):
        rest.query_table(TABLE, QueryRequest(file_id_hash=asked))
    with pytest.raises(ProtocolError, match=f"fileidhash={asked}"):
        rest.table_changes(TABLE, ChangesRequest(starting_version=0, file_id_hash=asked))
    assert "fileIdHash" not in server.requests[0].json()


def test_a_server_that_does_not_know_the_header(rest, server):
    server.on("POST", QUERY, Reply.of_lines(*PARQUET, file("parquet", "https://h/1")))
    assert [item.id for item in rest.query_table(TABLE, QueryRequest(file_id_hash="delta")).items] == ["md5"]
