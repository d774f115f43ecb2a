"""MNIST's reader and its downloads, with a small data set and a server on this machine."""

import gzip
import hashlib
import re
import socket
import struct
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pooch
import pytest

from counterflow.data import mnist as module
from counterflow.data.dataset import DataError
from counterflow.data.mnist import (
    FASHION_MNIST,
    MNIST,
    File,
    Source,
    cache_folder,
    download,
    fashion_mnist,
    mnist,
    read,
)

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 256, (60, 28, 28), dtype=np.uint8)
IMAGES[0, 0, :2] = 0, 255
LABELS = GENERATOR.permutation(np.arange(60, dtype=np.uint8) % 10)


def encoded(array: np.ndarray) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


CONTENTS = {
    "train-images-idx3-ubyte.gz": encoded(IMAGES),
    "train-labels-idx1-ubyte.gz": encoded(LABELS),
}
PACKED = {name: gzip.compress(contents, mtime=0) for name, contents in CONTENTS.items()}
IMAGES_NAME, LABELS_NAME = CONTENTS


def known(name: str, shape: tuple[int, ...], algorithm: str) -> File:
    packed = hashlib.sha256(PACKED[name]).hexdigest()
    contents = hashlib.new(algorithm, CONTENTS[name]).hexdigest()
    return File(name, shape, packed, f"{algorithm}:{contents}")


SMALL = Source(
    name="small",
    mirrors=(),
    images=known(IMAGES_NAME, (60, 28, 28), "sha256"),
    labels=known(LABELS_NAME, (60,), "md5"),
)


def is_small(data) -> bool:
    pixels = IMAGES.reshape(60, 784).astype(np.float64) / 127.5 - 1
    return np.array_equal(data.inputs, pixels) and np.array_equal(data.targets, np.eye(10)[LABELS])


# --- from a folder --------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder with both files, as they come from a mirror."""
    path = tmp_path / "folder"
    path.mkdir()
    for name, packed in PACKED.items():
        (path / name).write_bytes(packed)
    return path


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Only servers on this machine, and no cache of the user."""

    def forbidden(name):
        raise AssertionError("the test forgot to say where the cache is")

    monkeypatch.setattr(module, "cache_folder", forbidden)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_pixels_are_scaled_and_labels_one_hot(folder):
    data = read(SMALL, folder)
    assert is_small(data)
    assert data.inputs.dtype == data.targets.dtype == np.float64
    assert (data.inputs.min(), data.inputs.max()) == (-1.0, 1.0)


@pytest.mark.parametrize("pattern", ["{}-idx{}-ubyte", "{}.idx{}-ubyte"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("files", [CONTENTS, PACKED])
def test_usual_names_are_found_plain_or_packed(pattern, suffix, files, tmp_path):
    for (name, file), stem, dimensions in zip(
        files.items(), ("train-images", "train-labels"), (3, 1), strict=True
    ):
        assert name.startswith(stem)
        (tmp_path / (pattern.format(stem, dimensions) + suffix)).write_bytes(file)
    assert is_small(read(SMALL, tmp_path))


def test_a_file_that_was_packed_again_is_the_same(folder):
    (folder / IMAGES_NAME).write_bytes(gzip.compress(CONTENTS[IMAGES_NAME], 1, mtime=7))
    assert is_small(read(SMALL, folder))


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz .* which is not a folder"):
        read(SMALL, tmp_path / "missing")


@pytest.mark.parametrize("name", [IMAGES_NAME, LABELS_NAME])
def test_a_missing_file_is_told_with_its_names(name, folder):
    (folder / name).unlink()
    with pytest.raises(DataError, match=f"one of {name}, .*{re.escape(str(folder))} holds none"):
        read(SMALL, folder)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (IMAGES_NAME, IMAGES[:10], r"shape \(60, 28, 28\), got \(10, 28, 28\)"),  # t10k
        (IMAGES_NAME, LABELS, r"shape \(60, 28, 28\), got \(60,\)"),
        (LABELS_NAME, IMAGES, r"shape \(60,\), got \(60, 28, 28\)"),
        (IMAGES_NAME, IMAGES[::-1], "digest sha256:.*, got sha256:.*another data set's file"),
        (LABELS_NAME, LABELS[::-1], "digest md5:.*, got md5:.*another data set's file"),
    ],
)
def test_a_wrong_file_is_told(name, array, message, folder):
    (folder / name).write_bytes(gzip.compress(encoded(array)))
    with pytest.raises(DataError, match=f"{re.escape(str(folder / name))} must hold .*{message}"):
        read(SMALL, folder)


def test_a_file_of_the_other_data_set_is_recognized(folder, monkeypatch):
    other = replace(SMALL.images, contents="sha256:" + 64 * "0")
    monkeypatch.setattr(module, "FASHION_MNIST", replace(SMALL, name="fashion-mnist"))
    with pytest.raises(DataError, match=rf"\(this is {IMAGES_NAME} of fashion-mnist\)"):
        read(replace(SMALL, images=other), folder)


@pytest.mark.parametrize("name", [IMAGES_NAME, LABELS_NAME])
@pytest.mark.parametrize("files", [CONTENTS, PACKED])
def test_a_truncated_file_is_told(name, files, folder):
    (folder / name).write_bytes(files[name][:-1])
    with pytest.raises(DataError, match=f"{re.escape(str(folder / name))} must .*truncated"):
        read(SMALL, folder)


# --- the two data sets ----------------------------------------------------------------------


def test_each_name_reads_its_own_source(folder, monkeypatch):
    monkeypatch.setattr(module, "MNIST", SMALL)
    assert is_small(mnist(folder))
    with pytest.raises(DataError, match=r"\(60000, 28, 28\), got \(60, 28, 28\)"):
        fashion_mnist(folder)
    monkeypatch.setattr(module, "FASHION_MNIST", SMALL)
    assert is_small(fashion_mnist(folder))


@pytest.mark.parametrize("source", [MNIST, FASHION_MNIST])
def test_a_source_is_complete(source):
    assert len(set(source.mirrors)) > 1
    assert all(re.fullmatch(r"https?://\S+/", mirror) for mirror in source.mirrors)
    assert (source.images.shape, source.labels.shape) == ((60000, 28, 28), (60000,))
    for file in (source.images, source.labels):
        assert re.fullmatch("[0-9a-f]{64}", file.packed)
        assert re.fullmatch("sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", file.contents)


def test_no_two_files_have_the_same_digest():
    files = [file for source in (MNIST, FASHION_MNIST) for file in (source.images, source.labels)]
    assert len({file.packed for file in files}) == len({file.contents for file in files}) == 4


def test_each_data_set_has_a_cache_of_its_own():
    assert cache_folder("mnist") == pooch.os_cache("counterflow") / "mnist"
    assert cache_folder("mnist") != cache_folder("fashion-mnist")


# --- from mirrors ---------------------------------------------------------------------------


class Mirrors:
    """A server on this machine; `/first/` and `/second/` answer as a test says."""

    def __init__(self):
        # What lies at a path, and how many of its bytes are sent of those announced.
        self.files: dict[str, bytes] = {}
        self.cut: dict[str, int] = {}
        self.tells_length = True
        self.requests: list[str] = []
        self.encodings: set[str] = set()
        mirrors = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                mirrors.requests.append(self.path)
                mirrors.encodings.add(self.headers["Accept-Encoding"])
                body = mirrors.files.get(self.path)
                if body is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                if mirrors.tells_length:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: mirrors.cut.get(self.path)])

            def log_message(self, format, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def put(self, mirror: str, files: dict[str, bytes] = PACKED) -> None:
        self.files |= {f"/{mirror}/{name}": body for name, body in files.items()}

    @property
    def source(self) -> Source:
        top = f"http://127.0.0.1:{self.server.server_port}"
        return replace(SMALL, mirrors=(f"{top}/first/", f"{top}/second/"))

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def mirrors():
    server = Mirrors()
    yield server
    server.close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    path = tmp_path / "cache" / "small"  # made by the download
    monkeypatch.setattr(module, "cache_folder", lambda name: tmp_path / "cache" / name)
    return path


def names_in(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_download_is_read_and_kept(mirrors, cache):
    mirrors.put("first")
    assert is_small(read(mirrors.source))
    assert mirrors.requests == [f"/first/{IMAGES_NAME}", f"/first/{LABELS_NAME}"]
    assert mirrors.encodings == {"identity"}  # the server is not to decompress what it sends
    assert names_in(cache) == [IMAGES_NAME, LABELS_NAME]

    assert is_small(read(mirrors.source))
    assert len(mirrors.requests) == 2  # the second time nothing is asked for


def test_the_next_mirror_is_tried_after_a_404(mirrors, cache):
    mirrors.put("second")
    assert is_small(read(mirrors.source))
    assert mirrors.requests == [
        f"/{mirror}/{name}" for name in (IMAGES_NAME, LABELS_NAME) for mirror in ("first", "second")
    ]


@pytest.mark.parametrize("tells_length", [True, False])
def test_the_next_mirror_is_tried_after_a_truncated_file(tells_length, mirrors, cache):
    mirrors.tells_length = tells_length
    mirrors.put("first")
    mirrors.put("second")
    mirrors.cut[f"/first/{IMAGES_NAME}"] = 1000
    assert is_small(read(mirrors.source))
    assert mirrors.requests[:2] == [f"/first/{IMAGES_NAME}", f"/second/{IMAGES_NAME}"]
    assert names_in(cache) == [IMAGES_NAME, LABELS_NAME]


def test_the_next_mirror_is_tried_after_other_bytes(mirrors, cache):
    mirrors.put("first", dict.fromkeys(PACKED, b"<html>Please log in</html>"))
    mirrors.put("second")
    assert is_small(read(mirrors.source))


def test_the_next_mirror_is_tried_where_nobody_listens(mirrors, cache):
    mirrors.put("second")
    _, second = mirrors.source.mirrors
    assert is_small(read(replace(mirrors.source, mirrors=(deserted(), second))))


def test_nothing_damaged_is_kept(mirrors, cache):
    mirrors.put("first")
    mirrors.cut[f"/first/{IMAGES_NAME}"] = 1000
    mirrors.put("second", {name: body[:-1] + b"\xff" for name, body in PACKED.items()})
    with pytest.raises(DataError, match=r"SHA256 hash of downloaded file .* does not match"):
        read(mirrors.source)
    assert names_in(cache) == []


def test_an_interrupted_download_leaves_nothing(mirrors, cache):
    mirrors.put("first")

    def interrupt(file_name: str, done_bytes: int, total_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(mirrors.source, progress=interrupt)
    assert names_in(cache) == []


def test_a_damaged_file_in_the_cache_is_downloaded_again(mirrors, cache):
    mirrors.put("first")
    read(mirrors.source)
    (cache / LABELS_NAME).write_bytes(PACKED[LABELS_NAME][:-1])
    assert is_small(read(mirrors.source))
    assert mirrors.requests[2:] == [f"/first/{LABELS_NAME}"]
    assert (cache / LABELS_NAME).read_bytes() == PACKED[LABELS_NAME]


def deserted() -> str:
    """The address of a mirror where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"


def test_without_a_network_the_error_says_what_to_put_where(cache):
    source = replace(SMALL, mirrors=(deserted(), deserted()))
    with pytest.raises(DataError) as caught:
        read(source)
    first, *failures, advice = str(caught.value).splitlines()
    assert first.startswith(f"{IMAGES_NAME} of small must come from one of 2 mirrors")
    assert [line.split(": ")[0].strip() for line in failures] == [
        f"{mirror}{IMAGES_NAME}" for mirror in source.mirrors
    ]
    for word in (IMAGES_NAME, LABELS_NAME, str(cache), "`--data-dir`", "`folder`"):
        assert word in advice

    # What the error says to do is enough.
    for name, packed in PACKED.items():
        (cache / name).write_bytes(packed)
    assert is_small(read(source))


def test_without_a_network_a_damaged_file_in_the_cache_is_named(cache):
    cache.mkdir(parents=True)
    (cache / IMAGES_NAME).write_bytes(b"damaged")
    with pytest.raises(DataError, match=f"\n{re.escape(str(cache / IMAGES_NAME))} is there, but"):
        read(replace(SMALL, mirrors=(deserted(),)))


def test_a_cache_that_cannot_be_written_is_told(mirrors, cache):
    mirrors.put("first")
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=f"(?s){re.escape(str(cache))}.*`--data-dir`"):
        read(mirrors.source)


@pytest.mark.parametrize("tells_length", [True, False])
def test_progress_is_told_of_each_file(tells_length, mirrors, cache, monkeypatch):
    mirrors.put("first")
    mirrors.tells_length = tells_length
    calls = []

    def progress(file_name: str, done_bytes: int, total_bytes: int) -> None:
        calls.append((file_name, done_bytes, total_bytes))

    download(mirrors.source, cache, progress)
    assert list(dict.fromkeys(name for name, _, _ in calls)) == [IMAGES_NAME, LABELS_NAME]
    for name, packed in PACKED.items():
        total = len(packed) if tells_length else 0
        assert {length for file, _, length in calls if file == name} == {total}
        done = [done for file, done, _ in calls if file == name]
        if tells_length:
            assert done == sorted(done)
            assert done[-1] == total

    calls.clear()
    download(mirrors.source, cache, progress)
    assert calls == []


def test_pooch_writes_nothing_and_stays_as_it_was(mirrors, cache, capfd):
    mirrors.put("second")
    level = pooch.get_logger().level
    read(mirrors.source)
    assert capfd.readouterr() == ("", "")
    assert pooch.get_logger().level == level
