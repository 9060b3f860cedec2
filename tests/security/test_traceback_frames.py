"""Local variables of tracebacks contain no signed URL."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import pytest
from faults.faulty_share import EXPIRED, SIGNATURE, TABLE, FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.options import TransportOptions

ECHO = f"https://x.example/f?X-Amz-Signature={SIGNATURE}"
QUICK = {
    "backoff_base": timedelta(milliseconds=1),
    "backoff_cap": timedelta(milliseconds=2),
    "read_timeout": timedelta(seconds=0.2),
    "api_attempts": 2,
    "storage_attempts": 2,
}
FILES = [File(f"f{n}", rows(100 * n, 20), parquet(rows(100 * n, 20))) for n in range(3)]
PACKAGE = str(Path(ds.__file__).parent)


@pytest.fixture(autouse=True)
def whole_tracebacks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Keep the frames below public calls."""
    with caplog.at_level(logging.DEBUG, "delta_sharing_client"):
        yield


@pytest.fixture
def share(server: FaultServer) -> FaultyShare:
    return FaultyShare(server=server, versions=[FILES[:2], FILES[1:]], version=1)


@pytest.fixture
def table(share: FaultyShare) -> Iterator[Any]:
    with ds.SharingClient(share.server.profile, options=TransportOptions(**QUICK)) as client:
        yield client.table("s.s.t")


def frames(error: BaseException) -> Iterator[TracebackType]:
    """The frames of an error and of whatever it wraps, suppressed or not."""
    known: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or one in known:
            continue
        known.append(one)
        left += [one.__cause__, one.__context__]
        trace = one.__traceback__
        while trace is not None:
            yield trace
            trace = trace.tb_next


def recorded(value: Any, depth: int = 3) -> str:
    """What recorders keep of a variable: its repr, and those of the parts that they look into."""
    parts = [repr(value)]
    if hasattr(value, "__rich_repr__") and not isinstance(value, type):
        parts.append(repr(list(value.__rich_repr__())))
    if depth and isinstance(value, dict):
        parts += [recorded(part, depth - 1) for pair in value.items() for part in pair]
    elif depth and isinstance(value, list | tuple | set | frozenset):
        parts += [recorded(part, depth - 1) for part in value]
    return " ".join(parts)


def check_frames(error: BaseException) -> set[str]:
    """Check what is recorded of the package's frames, and of the libraries' below them; return their modules."""
    modules = set()
    for trace in frames(error):
        code = trace.tb_frame.f_code
        if "/tests/" in code.co_filename:
            continue
        for name, value in trace.tb_frame.f_locals.items():
            assert SIGNATURE not in recorded(value), (
                f"it is in {name} of {code.co_qualname}, {code.co_filename}:{trace.tb_lineno}"
            )
        if code.co_filename.startswith(PACKAGE):
            modules.add(code.co_filename.removeprefix(PACKAGE).strip("/"))
    return modules


STORE_FAULTS: dict[str, Reply] = {
    "refused": Reply(status=403, body=f"<Error><Message>{SIGNATURE} is wrong</Message></Error>".encode()),
    "gone": Reply(status=404, body=SIGNATURE.encode()),
    "failing": Reply(status=500, body=SIGNATURE.encode()),
    "expired": Reply(status=EXPIRED[0][0], body=EXPIRED[0][1].encode()),
    "redirects to a file": Reply(status=307, headers={"Location": f"file:///x?sig={SIGNATURE}"}),
    "redirects to nonsense": Reply(status=307, headers={"Location": f"http://[::1?sig={SIGNATURE}"}),
    "redirects for ever": Reply(status=307, headers={"Location": f"/data/f1?expires=9999999999&sig={SIGNATURE}"}),
    "drops": Reply(drop=True),
    "garbage": Reply(raw=b"HTTP/9 what?\r\n\r\n" + SIGNATURE.encode()),
    "silent": Reply(delay=2),
    "stalls": Reply(body=FILES[0].data, cut_at=50, ending="stall"),
    "cut": Reply(body=FILES[0].data, cut_at=50),
    "damaged": Reply(body=b"x" * len(FILES[0].data)),
    "longer": Reply(body=b"x" * (len(FILES[0].data) + 1)),
}
LOADS: dict[str, Callable[[Any, Path], object]] = {
    "snapshot": lambda table, folder: table.scan().to_arrow(),
    "ranges": lambda table, folder: table.scan(columns=[]).to_arrow(),
    "filter": lambda table, folder: table.scan(filters=[("id", ">", 3)]).to_pandas(),
    "changes": lambda table, folder: table.changes(0).to_arrow(),
    "mirror": lambda table, folder: table.mirror(folder / "m").sync(),
    "copy": lambda table, folder: table.scan().materialize(folder / "c"),
}


@pytest.mark.parametrize("how", LOADS)
@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_failing_store(share: FaultyShare, table: Any, tmp_path: Path, fault: str, how: str) -> None:
    share.fault = lambda request, reply: STORE_FAULTS[fault] if request.path.startswith("/data/") else reply
    with pytest.raises(DeltaSharingError) as caught:
        LOADS[how](table, tmp_path)
    assert len(check_frames(caught.value)) > 2


@pytest.mark.parametrize("how", ["snapshot", "ranges", "copy"])
@pytest.mark.parametrize(
    "url",
    [
        "http://user@127.0.0.1/x?sig=",
        "http://169.254.169.254/x?sig=",
        "http://192.0.2.7/x?sig=",
        "http://[::1/x?sig=",
        "http://127.0.0.1/a b?sig=",
        "http://127.0.0.1:99999/x?sig=",
        "file:///x?sig=",
        "x?sig=",
    ],
)
def test_refused_urls(share: FaultyShare, table: Any, tmp_path: Path, url: str, how: str) -> None:
    handed_out = f"{share.server.url}/data/"
    replacement = (url + SIGNATURE + "&").encode()
    share.fault = lambda request, reply: reply.but(body=reply.body.replace(handed_out.encode(), replacement))
    with pytest.raises(DeltaSharingError) as caught:
        LOADS[how](table, tmp_path)
    assert any(module.startswith("transport") for module in check_frames(caught.value))


@pytest.mark.parametrize("how", ["snapshot", "ranges", "mirror"])
@pytest.mark.parametrize(
    "reply",
    [
        Reply.of_json({"errorCode": "BUSY", "message": ECHO}, status=503),
        Reply.of_json({"errorCode": "NO", "message": ECHO}, status=403),
        Reply(drop=True),
        Reply.of_lines({"file": {"url": f"http://127.0.0.1/x?sig={SIGNATURE}"}}),
        Reply(body=f'{{"file": {{"url": "http://127.0.0.1/x?sig={SIGNATURE}"'.encode()),
    ],
    ids=["busy", "refuses", "drops", "malformed", "cut"],
)
def test_failed_renewal(share: FaultyShare, table: Any, tmp_path: Path, reply: Reply, how: str) -> None:
    """The store says that they have expired once they were listed, and the server has none but the first ones."""
    refused = []

    def fault(request: Any, healthy: Reply) -> Reply:
        if request.path.startswith("/data/"):
            refused.append(request)
            return STORE_FAULTS["expired"]
        return reply if refused else healthy

    share.fault = fault
    with pytest.raises(DeltaSharingError) as caught:
        LOADS[how](table, tmp_path)
    assert len(check_frames(caught.value)) > 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"size": ', b'"size": -'),
        (b'"partitionValues": {}', b'"partitionValues": ["x"]'),
        (b'"url": ', b'"uri": '),
        (b'"protocol": {', b'"another": {'),
        (b'{"endStreamAction"', b'{"file": {"url": "https://x/?sig=%b' % SIGNATURE.encode()),
    ],
)
@pytest.mark.parametrize("how", ["snapshot", "filter", "changes", "mirror"])
def test_refused_answers(share: FaultyShare, table: Any, tmp_path: Path, old: bytes, new: bytes, how: str) -> None:
    share.fault = lambda request, reply: reply.but(body=reply.body.replace(old, new))
    with pytest.raises(DeltaSharingError) as caught:
        LOADS[how](table, tmp_path)
    assert check_frames(caught.value)


def test_exceptions_of_the_caller(table: Any) -> None:
    class Stop(Exception):
        pass

    def read() -> None:
        for _ in table.scan().to_record_batch_reader():
            raise Stop

    with pytest.raises(Stop) as caught:
        read()
    check_frames(caught.value)
    plan = table.scan().plan()
    assert SIGNATURE in plan.tasks[0].url.reveal()
    assert SIGNATURE not in recorded(list(plan.tasks))
    assert SIGNATURE not in recorded([msgspec.structs.asdict(task) for task in plan.tasks])


@pytest.mark.parametrize("kind", ["p", "u", "x"])
@pytest.mark.parametrize("fault", ["refused", "expired", "redirects to a file", "drops", "garbage", "gone"])
def test_failing_deletion_vectors(server: FaultServer, fault: str, kind: str) -> None:
    url = f"{server.url}/data/v0?X-Amz-Signature={SIGNATURE}"
    vector = {"storageType": kind, "pathOrInlineDv": url, "offset": 1, "sizeInBytes": 40, "cardinality": 1}
    add = {"path": url, "partitionValues": {}, "size": len(FILES[0].data), "deletionVector": vector}
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    metadata = {"id": "x", "format": {"provider": "parquet"}, "schemaString": json.dumps(schema)}
    lines = [
        {"protocol": {"deltaProtocol": {**features, "writerFeatures": ["deletionVectors"]}}},
        {"metaData": {"deltaMetadata": metadata}},
        {"file": {"id": "f0", "deltaSingleAction": {"add": add}}},
    ]
    server.on("POST", f"{TABLE}/query", Reply.of_lines(*lines))
    server.on("GET", "/data/v0", STORE_FAULTS[fault])
    client = ds.SharingClient(server.profile, options=TransportOptions(**QUICK))
    with client, pytest.raises(DeltaSharingError) as caught:
        client.table("s.s.t").scan().to_arrow()
    check_frames(caught.value)
