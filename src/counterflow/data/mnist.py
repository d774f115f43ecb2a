"""MNIST and Fashion-MNIST: the 60,000 training images of 28 × 28 pixels, from mirrors or disk."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pooch
from jaxtyping import UInt8

from .dataset import DataError, Dataset, Progress, silent
from .idx import parse, unpacked


@dataclass(frozen=True)
class File:
    """A file of a data set: its name on a mirror, its array's shape, and how to know it.

    `packed` is the SHA-256 of the gzip file on the mirrors, `contents` the digest of what is in
    it, as `algorithm:digest`: a copy on disk may have been decompressed, or compressed again.
    """

    name: str
    shape: tuple[int, ...]
    packed: str
    contents: str

    @property
    def names_on_disk(self) -> tuple[str, ...]:
        """The names under which a copy is looked for in a folder."""
        plain = self.name.removesuffix(".gz")
        dotted = plain.replace("-idx", ".idx")
        return (f"{plain}.gz", plain, f"{dotted}.gz", dotted)


@dataclass(frozen=True)
class Source:
    """A data set in two files, and the mirrors to download them from, the first one first."""

    name: str
    mirrors: tuple[str, ...]
    images: File
    labels: File


MNIST = Source(
    name="mnist",
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://azureopendatastorage.blob.core.windows.net/mnist/",
    ),
    images=File(
        name="train-images-idx3-ubyte.gz",
        shape=(60000, 28, 28),
        packed="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        contents="sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    labels=File(
        name="train-labels-idx1-ubyte.gz",
        shape=(60000,),
        packed="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        contents="sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
)

# The SHA-256 of the gzip files are those that Flux (Julia) and batchup (Python) pin, and that
# several benchmarks list beside the MD5 in the data set's own README. Of the contents only the MD5
# is on record: three unrelated repositories agree on it, and one of them also lists MNIST's,
# rightly.
FASHION_MNIST = Source(
    name="fashion-mnist",
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
    images=File(
        name="train-images-idx3-ubyte.gz",
        shape=(60000, 28, 28),
        packed="3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        contents="md5:f4a8712d7a061bf5bd6d2ca38dc4d50a",
    ),
    labels=File(
        name="train-labels-idx1-ubyte.gz",
        shape=(60000,),
        packed="a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        contents="md5:9018921c3c673c538a1fc5bad174d6f9",
    ),
)


def mnist(folder: Path | None = None, progress: Progress = silent) -> Dataset:
    """The training set of MNIST: 60,000 handwritten digits as rows of 784 pixels.

    Args:
        folder: where the two files of the training set lie, as idx or gzip; nothing is then
            downloaded. Without a folder they are downloaded, once, and kept in a cache.
        progress: called during a download as `progress(file_name, done_bytes, total_bytes)`.
    """
    return read(MNIST, folder, progress)


def fashion_mnist(folder: Path | None = None, progress: Progress = silent) -> Dataset:
    """The training set of Fashion-MNIST: 60,000 pieces of clothing, in the format of `mnist`."""
    return read(FASHION_MNIST, folder, progress)


def cache_folder(name: str) -> Path:
    """Where the downloaded files of the data set called `name` are kept."""
    return Path(pooch.os_cache("counterflow")) / name


def read(source: Source, folder: Path | None = None, progress: Progress = silent) -> Dataset:
    """The data set of `source`, whose pixels are from 0 to 255."""
    if folder is None:
        paths = download(source, cache_folder(source.name), progress)
    else:
        paths = find(source, folder)
    images, labels = (
        _array(path, file) for path, file in zip(paths, (source.images, source.labels), strict=True)
    )
    return Dataset(images.reshape(len(images), -1), 255, np.eye(10)[labels])


def find(source: Source, folder: Path) -> list[Path]:
    """The paths of images and labels in a folder, under any of the usual names."""
    if not folder.is_dir():
        raise DataError(
            f"`folder` must be a folder with {source.images.name} and {source.labels.name} of "
            f"{source.name}, got {folder}, which is not a folder: correct the path, or leave "
            "`folder` (`--data-dir`) out to download them"
        )
    found = []
    for file in (source.images, source.labels):
        paths = [folder / name for name in file.names_on_disk if (folder / name).exists()]
        if not paths:
            raise DataError(
                f"`folder` must hold one of {', '.join(file.names_on_disk)} for {source.name}, "
                f"but {folder} holds none of them: put the file there, or leave `folder` "
                "(`--data-dir`) out to download it"
            )
        found.append(paths[0])
    return found


def download(source: Source, cache: Path, progress: Progress = silent) -> list[Path]:
    """The paths of images and labels in the cache, which are downloaded if they are not there.

    A file in the cache whose SHA-256 is wrong is downloaded again. A download goes to a temporary
    file, which takes the file's name only when its SHA-256 is right.
    """
    return [_fetch(source, file, cache, progress) for file in (source.images, source.labels)]


def _fetch(source: Source, file: File, cache: Path, progress: Progress) -> Path:
    failures = []
    for mirror in source.mirrors:
        downloader = pooch.HTTPDownloader(
            progressbar=_ProgressBar(file.name, progress),  # pyright: ignore
            chunk_size=2**16,
            timeout=(10, 30),  # seconds to connect, and between bytes
            # The file as it lies on the server: it must not be decompressed on the way.
            headers={"Accept-Encoding": "identity"},
        )
        try:
            with _quiet_pooch():
                return Path(
                    pooch.retrieve(
                        mirror + file.name,
                        known_hash=file.packed,
                        fname=file.name,
                        path=cache,
                        downloader=downloader,  # pyright: ignore
                    )
                )
        except (OSError, ValueError) as error:  # no connection, no such file; another SHA-256
            failures.append(f"  {mirror}{file.name}: {error}")
    damaged = cache / file.name
    raise DataError(
        "\n".join(
            [
                f"{file.name} of {source.name} must come from one of {len(failures)} mirrors, "
                "but all of them failed:",
                *failures,
                *([f"{damaged} is there, but is damaged."] if damaged.exists() else []),
                f"If there is no network here, download {source.images.name} and "
                f"{source.labels.name} elsewhere, from one of these mirrors, and put both into "
                f"{cache}, or into any folder that you then name with `--data-dir` (in Python, "
                "`folder`).",
            ]
        )
    )


@contextmanager
def _quiet_pooch() -> Iterator[None]:
    """Pooch without its lines on stderr: `progress` and the error say it all."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")
    try:
        yield
    finally:
        logger.setLevel(level)


class _ProgressBar:
    """What pooch takes for a progress bar, and which passes on what it is told."""

    def __init__(self, file_name: str, progress: Progress):
        self.file_name = file_name
        self.progress = progress
        self.total = 0  # set by pooch, when the server has answered
        self.done = 0

    def update(self, amount: int) -> None:
        # Pooch counts whole chunks, so the last one goes beyond the end.
        self.done = min(self.done + amount, self.total or self.done + amount)
        self.progress(self.file_name, self.done, self.total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


def _array(path: Path, file: File) -> UInt8[np.ndarray, "..."]:
    """The array in the file at `path`; raises unless that is `file`, under whatever name."""
    contents = unpacked(path)
    array = parse(contents, path)
    if array.shape != file.shape:
        raise DataError(
            f"{path} must hold an array of shape {file.shape}, got {array.shape}: "
            f"put {file.name} of the training set in its place"
        )
    if not _is(file, contents):
        raise DataError(
            f"{path} must hold the contents with the digest {file.contents}, got "
            f"{_digest(contents, file.contents)}{_recognized(contents)}: it is another data set's "
            "file or was changed, put an intact copy of the right one in its place"
        )
    return array


def _digest(contents: bytes, like: str) -> str:
    algorithm, _, _ = like.partition(":")
    # MD5 tells files apart here, it does not keep secrets: where it is locked, it may be used.
    return f"{algorithm}:{hashlib.new(algorithm, contents, usedforsecurity=False).hexdigest()}"


def _is(file: File, contents: bytes) -> bool:
    return _digest(contents, file.contents) == file.contents


def _recognized(contents: bytes) -> str:
    """Whose file this is, if it is one of those known here, as a remark in brackets."""
    for source in (MNIST, FASHION_MNIST):
        for file in (source.images, source.labels):
            if _is(file, contents):
                return f" (this is {file.name} of {source.name})"
    return ""
