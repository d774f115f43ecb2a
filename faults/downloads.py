"""`kill -9` of a download that comes in slow pieces: half a file is never taken for a whole one."""

import gzip
import random
import struct
import threading
import time
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from common import Row, digest

PIECE, PAUSE = 2048, 0.004


def killed_download(workshop, trials):
    row, chance = Row("SIGKILL", "download of a data set"), random.Random(3)
    with Mirror(chance) as mirror:

        def start(cache):
            return workshop.server.start(fetch, mirror.address, str(cache), mirror.known)

        wanted, life = None, 60.0
        while row.trials < trials:
            cache, since = workshop.folder(), time.monotonic()
            mirror.asked.clear()
            process = start(cache)
            if row.trials % 4:
                process.sleep(life, lambda: mirror.asked)
                process.sleep(chance.uniform(0, 3 * mirror.seconds))
            elif wanted is not None:
                process.sleep(chance.uniform(0, life))
            else:
                process.wait()  # the undisturbed one
            killed = process.kill()
            if not killed:
                wanted = wanted or process.said
                row.wrong += process.said != wanted
                life = min(life, time.monotonic() - since)
                continue
            row.trials += 1
            row.happened["killed"] += 1
            kept = mirror.whole(row, cache)
            mirror.asked.clear()
            again = start(cache)
            row.ended(again)
            row.committed += len(kept)
            row.lost += len(kept & set(mirror.asked))  # what is whole is not asked for again
            row.wrong += again.said != wanted
            row.series += 1
            print(f"{row.where}: kill {row.trials} of {trials}, {len(kept)} files whole")
    return row


def fetch(address, cache, known):
    """The digest of a data set that is downloaded as MNIST is, from one mirror."""
    from counterflow.data import mnist

    mnist.cache_folder = lambda name: Path(cache)
    files = [mnist.File(name, tuple(shape), *digests) for name, shape, *digests in known]
    data = mnist.read(mnist.Source("small", (address,), *files))
    return digest((data.inputs.tolist(), data.targets.tolist()))


class Mirror:
    """A server on this machine that sends two small files slowly."""

    def __init__(self, chance):
        images = struct.pack(">4B3I", 0, 0, 8, 3, 60, 28, 28) + chance.randbytes(60 * 28 * 28)
        labels = struct.pack(">4B1I", 0, 0, 8, 1, 60) + bytes(range(10)) * 6
        plain = {"train-images-idx3-ubyte.gz": images, "train-labels-idx1-ubyte.gz": labels}
        self.files = {name: gzip.compress(content) for name, content in plain.items()}
        self.known = [
            (name, shape, _sha(self.files[name]), f"sha256:{_sha(plain[name])}")
            for name, shape in zip(plain, ((60, 28, 28), (60,)), strict=True)
        ]
        self.seconds = PAUSE * sum(map(len, self.files.values())) / PIECE
        self.asked = []
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.rpartition("/")[2]
                body = mirror.files[name]
                mirror.asked.append(name)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    for begin in range(0, len(body), PIECE):
                        self.wfile.write(body[begin : begin + PIECE])
                        time.sleep(PAUSE)
                except OSError:
                    pass  # who asked was killed

            def log_message(self, format, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/"

    def whole(self, row, cache):
        """The files in a cache; one that has its name but not its content is wrong."""
        kept = {path.name for path in cache.iterdir()} & self.files.keys()
        row.wrong += sum((cache / name).read_bytes() != self.files[name] for name in kept)
        return kept

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self._server.shutdown()
        self._server.server_close()


def _sha(content):
    return sha256(content).hexdigest()
