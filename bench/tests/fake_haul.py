#!/usr/bin/env python3
"""Stands in for haul in the bench's own tests: the same command line, a toy protocol, no promises.

FAKE_HAUL_FAULT=flip changes one byte on the way; FAKE_HAUL_FAULT=fail exits with status 1.
"""

import json
import os
import socketserver
import sys
import time
from pathlib import Path
from socket import create_connection


class Handler(socketserver.StreamRequestHandler):
    """`PUT path size` and the bytes, answered by a line; `GET path`, answered by the bytes."""

    def handle(self):
        verb, path, *size = self.rfile.readline().decode().split()
        if verb == "PUT":
            left = int(size[0])
            if path != "null:":
                (self.server.root / path).parent.mkdir(parents=True, exist_ok=True)
            with open(self.server.root / path if path != "null:" else "/dev/null", "wb") as file:
                while left and (piece := self.rfile.read(min(left, 1 << 20))):
                    file.write(piece)
                    left -= len(piece)
                file.flush()
                if path != "null:":
                    os.fsync(file.fileno())
            self.wfile.write(b"done\n")
        elif verb == "LIST":
            files = (self.server.root / path).rglob("f*")
            names = [str(file.relative_to(self.server.root)) for file in files]
            self.wfile.write("\n".join(names).encode())
        else:
            self.wfile.write((self.server.root / path).read_bytes())


def serve(root):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.root = Path(root)
        url = f"haul://secrettoken@127.0.0.1:{server.server_address[1]}/"
        print(json.dumps({"event": "listening", "url": url}), flush=True)
        server.serve_forever()


def connect(url):
    authority, _, path = url.partition("@")[2].partition("/")
    host, _, port = authority.partition(":")
    return create_connection((host, int(port))), path


def push(source, url):
    if Path(source).is_dir():
        parent = Path(source).parent
        files = sorted(Path(source).rglob("f*"))
        return sum(push(file, f"{url}{file.relative_to(parent).parent}/") for file in files)
    connection, folder = connect(url)
    path = folder if folder == "null:" else folder + Path(source).name
    data = faulty(Path(source).read_bytes())
    connection.sendall(f"PUT {path} {len(data)}\n".encode() + data)
    assert connection.recv(5) == b"done\n"
    return len(data)


def pull(url, folder):
    connection, path = connect(url)
    if path.endswith("tree"):
        connection.sendall(f"LIST {path}\n".encode())
        names = connection.makefile("rb").read().decode().splitlines()
        base = url[: -len(path)]
        return sum(pull(base + name, made(folder, Path(name).parent.name)) for name in names)
    connection.sendall(f"GET {path}\n".encode())
    data = faulty(connection.makefile("rb").read())
    if folder != "null:":
        target = Path(folder) / Path(path).name
        target.write_bytes(data)
        os.sync()
    return len(data)


def made(folder, name):
    target = Path(folder) / "tree" / name
    target.mkdir(parents=True, exist_ok=True)
    return str(target)


def faulty(data):
    if os.environ.get("FAKE_HAUL_FAULT") == "flip":
        return bytes([data[0] ^ 1]) + data[1:]
    return data


def main(words):
    if words == ["--version"]:
        print("haul 0.0.0-fake")
        return 0
    assert os.environ["HAUL_STATE"], "the bench must name a state directory"
    if words[0] == "serve":
        return serve(words[1])
    if os.environ.get("FAKE_HAUL_FAULT") == "fail":
        print("fake: as asked, this fails", file=sys.stderr)
        return 1
    started = time.monotonic()
    moved = {"push": push, "pull": pull}[words[0]](words[1], words[2])
    report = {"event": "report", "ok": True, "bytes": moved, "seconds": time.monotonic() - started}
    report.update(send_engine="fake", receive_engine="fake", copied_bytes=0)
    print(json.dumps({"event": "progress", "bytes": moved}))
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
