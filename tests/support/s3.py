"""A real S3 server: SeaweedFS, on free ports of this machine, with one bucket; and a proxy in front that fails."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import boto3
import httpx2 as httpx
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from support.service import eventually

BUCKET = "backups"
WEED = Path(sys.executable).with_name("weed")
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "hidden-canary", "AWS_REGION": "us-east-1"}
_ROLES = ("master", "volume", "filer", "s3")


class S3Server:
    """Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        self._folder.mkdir()
        identity = {"accessKey": CREDENTIALS["AWS_ACCESS_KEY_ID"], "secretKey": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]}
        identities = [{"name": "tests", "credentials": [identity], "actions": ["Admin"]}]
        (self._folder / "s3.json").write_text(json.dumps({"identities": identities}))
        self._start()
        eventually(self._has_bucket)
        return self

    def _start(self) -> None:
        folder, ports = self._folder, _free_ports(2 * len(_ROLES))
        kinds = [(role, kind) for role in _ROLES for kind in ("", ".grpc")]
        listening = [f"-{role}.port{kind}={port}" for (role, kind), port in zip(kinds, ports, strict=True)]
        listening += [f"-{role}.localSocket={folder / role}.sock" for role in ("filer", "s3")]
        here = (
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-dir={folder}",
            "-filer",
            "-s3",
            f"-s3.config={folder}/s3.json",
        )
        small = ("-master.volumeSizeLimitMB=64", "-volume.max=50", "-master.telemetry=false")
        plain = ("-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0")
        with (folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [WEED, "-logtostderr=true", "server", *here, *small, *plain, *listening],
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        self._sockets = [Path(f"/tmp/seaweedfs-{role}-grpc-{port}.sock") for role in _ROLES for port in ports]
        self.port = ports[-2]
        self.client = client_of(self.port)

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()
        self.client.close()
        for name in self._sockets:
            name.unlink(missing_ok=True)

    def names(self, prefix: str = "") -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return [each["Key"] for each in found]

    def uploads(self, prefix: str = "") -> list[str]:
        """Return the keys of uploads that are not completed."""
        found = self.client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads") or []
        return [each["Key"] for each in found]

    def content(self, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return content

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def _has_bucket(self) -> bool:
        if self._process.poll() is not None:  # Another process took one of its ports first.
            self._start()
        with suppress(BotoCoreError, ClientError):
            self.client.create_bucket(Bucket=BUCKET)
            self.put("probe", b"")
            self.client.delete_object(Bucket=BUCKET, Key="probe")
            return True
        return False


def settings_for(port: int) -> dict[str, str]:
    return CREDENTIALS | {"MAUVE_BACKUP_ENDPOINT": f"http://127.0.0.1:{port}"}


def client_of(port: int) -> Any:  # boto3 has no types.
    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}, request_checksum_calculation="when_required"),
    )


class FailingProxy:
    """Passes requests on to a server, except those for which `fails` says how to fail. Use as a context manager."""

    def __init__(self, port: int, fails: Callable[[str, str], str | None]) -> None:
        self._target = port
        self._fails = fails
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Serve one request of a connection."""
        with client, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := client.recv(65536)):
                    return
                head += piece
            head, _, body = head.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            method, path, _ = first.split(" ")
            headers = dict(line.split(": ", 1) for line in lines)
            lengths = [int(value) for name, value in headers.items() if name.lower() == "content-length"]
            wanted = lengths[0] if lengths else 0
            failure = self._fails(method, path)
            if failure == "cut":
                client.recv(65536)  # in the middle of the body
                return
            if any(name.lower() == "expect" for name in headers):
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            while len(body) < wanted:
                body += client.recv(65536)
            if failure == "busy":
                client.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            self._answer(client, method, path, headers, body, failure)

    def _answer(
        self,
        client: socket.socket,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        failure: str | None,
    ) -> None:
        url = f"http://127.0.0.1:{self._target}{path}"
        passed = {name: value for name, value in headers.items() if name.lower() not in {"expect", "connection"}}
        reply = httpx.request(method, url, headers=passed, content=body)
        skipped = {"connection", "transfer-encoding", "content-length"}
        kept = {name: value for name, value in reply.headers.items() if name.lower() not in skipped}
        length = reply.headers.get("content-length", "0") if method == "HEAD" else str(len(reply.content))
        head = [f"HTTP/1.1 {reply.status_code} X", f"content-length: {length}", "connection: close"]
        head += [f"{name}: {value}" for name, value in kept.items()]
        client.sendall("\r\n".join(head).encode() + b"\r\n\r\n")
        content = reply.content
        client.sendall(content[: len(content) // 2] if failure == "half" else content)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
