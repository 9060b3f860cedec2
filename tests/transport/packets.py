"""A server that sends exactly the bytes of its scripts, and ways to read answers."""

import contextlib
import socket
import threading

from waiting import HANG

from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.retry import is_retryable

SIGNED = "/file.parquet?X-Amz-Signature=canary-signature-11aa"
FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
#: What an attacker would have us take for the next answer.
EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"


class PacketServer:
    """Answers each request with the next script: packets, seconds or events to wait for, None to hang up.

    heads: the requests as they came.
    connections: how many were made.
    hung_up: released once for each connection that the client closed.
    closed: released once for each connection that the server closed.
    sent: released once for each script that has been sent, as far as the client took it.
    """

    def __init__(self, *scripts, tls=None, address="127.0.0.1"):
        self.heads = []
        self.connections = 0
        self.hung_up = threading.Semaphore(0)
        self.closed = threading.Semaphore(0)
        self.sent = threading.Semaphore(0)
        self._scripts = iter(scripts)
        self._tls = tls
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._open = []
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        self.port = self._listener.getsockname()[1]
        host = f"[{address}]" if ":" in address else address
        self.url = f"http{'s' if tls else ''}://{host}:{self.port}"

    def __enter__(self):
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *exception):
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self.connections += 1
                    self._open.append(sock)
                thread = threading.Thread(target=self._serve, args=(sock,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, plain):
        with contextlib.suppress(OSError), plain, self._secured(plain) as sock:
            with self._lock:
                self._open.append(sock)
            self._converse(sock)
        self.closed.release()

    def _secured(self, plain):
        return plain if self._tls is None else self._tls.wrap_socket(plain, server_side=True)

    def _converse(self, sock):
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                try:
                    more = sock.recv(65536)
                except ConnectionResetError:
                    more = b""
                if not more:
                    self.hung_up.release()
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            with self._lock:
                self.heads.append(head)
                script = next(self._scripts)
            try:
                for part in script:
                    if part is None:
                        return
                    if isinstance(part, bytes):
                        sock.sendall(part)
                    elif isinstance(part, threading.Event):
                        part.wait(HANG)
                    else:
                        self._stopping.wait(part)
            finally:
                self.sent.release()


def by_some(response, most=7):
    return b"".join(iter(lambda: response.read_some(most), b""))


def by_view(response, most=7):
    buffer, data = bytearray(most), b""
    while count := response.read_into(memoryview(buffer)):
        data += buffer[:count]
    return data


def by_chunks(response):
    return b"".join(response.chunks())


WAYS = [by_some, by_view, by_chunks]


def fetch(storage, server, read=by_some, path=SIGNED):
    with storage.get(SecretUrl(server.url + path), file_id="f1") as response:
        return read(response)


def check_failure(error):
    assert is_retryable(error), error
    assert "canary" not in str(error) + repr(error)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
