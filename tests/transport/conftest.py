"""The scripted server for these tests, and a certificate of its own."""

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from faults.server import FaultServer

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.transport.storage_transport import StorageTransport


@pytest.fixture
def server():
    with FaultServer() as running:
        yield running


@pytest.fixture
def storage():
    with StorageTransport(TransportOptions(), endpoint_is_loopback=True) as transport:
        yield transport


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
        "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    )
    try:
        subprocess.run(command.split(), cwd=directory, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the openssl command")
    return directory


@pytest.fixture
def context(certificate):
    """What a server with that certificate needs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context
