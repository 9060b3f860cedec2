"""Certificates of connections to the sharing server and to stores."""

import http.server
import ssl
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from faults.server import FaultServer, Reply
from packets import SIGNED, by_some
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from waiting import FOREVER, NEVER, meanwhile, wait_until

from delta_sharing_client.auth.profile import load_profile
from delta_sharing_client.errors import (
    IncompleteResponseError,
    TransportError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.exception_mapping import NonRetryableTransportError, translate
from delta_sharing_client.transport.retry import is_retryable
from delta_sharing_client.transport.storage_transport import StorageTransport


class TestTls:
    @pytest.fixture
    def secure(self, context):
        with FaultServer(tls=context) as running:
            running.on("GET", "*", Reply(body=b"secure"))
            yield running

    def get(self, url, **options):
        with StorageTransport(TransportOptions(**options), endpoint_is_loopback=False) as storage:
            return by_some(storage.get(SecretUrl(url + SIGNED)))

    def test_an_unknown_authority_is_not_retried(self, secure):
        with pytest.raises(NonRetryableTransportError, match="ca_bundle") as caught:
            self.get(secure.url)
        assert not is_retryable(caught.value)
        assert "canary" not in str(caught.value)

    def test_ca_bundle_of_the_options(self, secure, certificate):
        assert self.get(secure.url, ca_bundle=certificate / "cert.pem") == b"secure"

    @pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
    def test_ca_bundle_of_the_environment(self, secure, certificate, monkeypatch, name):
        for other in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            monkeypatch.delenv(other, raising=False)
        monkeypatch.setenv(name, str(certificate / "cert.pem"))
        assert self.get(secure.url) == b"secure"

    def test_host_name_mismatch_raises(self, secure, certificate):
        with pytest.raises(NonRetryableTransportError):
            self.get(secure.url.replace("127.0.0.1", "localhost"), ca_bundle=certificate / "cert.pem")

    def test_tls_to_a_plain_server_is_refused_for_good(self, server):
        with pytest.raises(TransportError) as caught:
            self.get(server.url.replace("http:", "https:"), connect_timeout=timedelta(seconds=0.5))
        assert "canary" not in str(caught.value)

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_a_profile_of_an_unknown_authority_is_not_missing(self, secure, host):
        pytest.importorskip("aiohttp")
        url = secure.url.replace("127.0.0.1", host)
        with pytest.raises(NonRetryableTransportError) as caught:
            load_profile(f"{url}/x.share?sig=canary")
        assert str(caught.value) == (
            f"profile {url}/x.share?***: the TLS connection was refused: self-signed certificate; "
            "for a certificate of a private authority set SSL_CERT_FILE"
        )

    @pytest.mark.parametrize("name", ["ClientConnectorCertificateError", "ClientConnectorSSLError"])
    def test_errors_of_aiohttp_have_no_reason(self, name):
        aiohttp = pytest.importorskip("aiohttp")
        cause = ssl.SSLCertVerificationError(1, "certificate verify failed: Hostname mismatch")
        key = aiohttp.client_reqrep.ConnectionKey("store.example", 443, True, True, None, None, None)
        error = translate(getattr(aiohttp, name)(key, cause), url=SecretUrl("https://store.example/x?sig=canary"))
        assert type(error) is NonRetryableTransportError
        assert "the TLS connection was refused; for a certificate" in str(error)

    def test_abort_reaches_tls_connections(self, secure, certificate):
        secure.on("GET", "*", Reply(delay=FOREVER))
        options = TransportOptions(ca_bundle=certificate / "cert.pem", read_timeout=NEVER)
        with (
            StorageTransport(options, endpoint_is_loopback=False) as storage,
            meanwhile(lambda: wait_until(lambda: secure.requests), storage.abort),
            pytest.raises((TransportError, IncompleteResponseError)),
        ):
            storage.get(SecretUrl(secure.url + SIGNED))

    def test_files_that_are_missing_or_no_certificates(self, tmp_path, certificate):
        nonsense = tmp_path / "nonsense.pem"
        nonsense.write_text("no certificate")
        for options in (
            {"ca_bundle": tmp_path / "missing.pem"},
            {"ca_bundle": nonsense},
            {"client_certificate": str(tmp_path / "missing.pem")},
            {"client_certificate": str(nonsense)},
            {"client_certificate": (str(certificate / "cert.pem"), str(tmp_path / "missing.pem"))},
        ):
            with pytest.raises(ValueError, match=r"CA bundle|client certificate"):
                self.get("https://127.0.0.1:1", **options)

    def test_a_server_without_tls(self):
        """It answers the greeting with HTTP, so that the address is wrong, and no certificate."""
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as plain:
            thread = threading.Thread(target=plain.serve_forever, args=(0.01,))
            thread.start()
            try:
                with pytest.raises(
                    NonRetryableTransportError, match="does not speak TLS: check the port"
                ) as caught:
                    self.get(f"https://127.0.0.1:{plain.server_port}")
            finally:
                plain.shutdown()
                thread.join()
        assert not is_retryable(caught.value)
        assert "whether the address should begin with http://" in str(caught.value)
        assert f"https://127.0.0.1:{plain.server_port}" in str(caught.value)

    def test_a_client_certificate_is_presented(self, certificate):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        context.load_verify_locations(certificate / "cert.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        pair = (str(certificate / "cert.pem"), str(certificate / "key.pem"))
        with FaultServer(tls=context) as running:
            running.on("GET", "*", Reply(body=b"mutual"))
            assert self.get(running.url, ca_bundle=certificate / "cert.pem", client_certificate=pair) == b"mutual"

    def test_a_rotated_authority_is_trusted_from_the_next_connection_on(self, secure, certificate, tmp_path):
        bundle = tmp_path / "ca.pem"
        bundle.write_bytes(Path(DEFAULT_CA_BUNDLE_PATH).read_bytes())
        with StorageTransport(TransportOptions(ca_bundle=bundle), endpoint_is_loopback=False) as storage:
            with pytest.raises(NonRetryableTransportError):
                storage.get(SecretUrl(secure.url + SIGNED))
            replacement = tmp_path / "new.pem"
            replacement.write_bytes((certificate / "cert.pem").read_bytes())
            replacement.replace(bundle)
            assert by_some(storage.get(SecretUrl(secure.url + SIGNED))) == b"secure"
            bundle.write_text("half wri")  # in the middle of the next rotation
            assert by_some(storage.get(SecretUrl(secure.url + SIGNED))) == b"secure"
