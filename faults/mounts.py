"""Small disks in memory, in the mount namespace of the suite, where mounting is permitted."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

# Set in the namespace of the suite; see `in_own_namespace`.
_INSIDE = "COUNTERFLOW_FAULTS_MOUNT"


def in_own_namespace():
    """Goes on in a mount namespace of its own, where there may be one: no mount outlives it."""
    if _INSIDE in os.environ or shutil.which("unshare") is None:
        return
    for options in ("-m", "-rm"):
        if subprocess.run(["unshare", options, "true"], capture_output=True).returncode == 0:
            os.environ[_INSIDE] = "1"
            os.execvp("unshare", ["unshare", options, sys.executable, *sys.argv])


def may_mount(folder):
    """Whether a disk can be mounted on a folder."""
    if _INSIDE not in os.environ:
        return False
    try:
        with disk(folder):
            return True
    except subprocess.CalledProcessError:
        return False


@contextmanager
def disk(folder):
    """A disk of 64 MB in a folder."""
    _run("mount", "-t", "tmpfs", "-o", "size=64m", "counterflow-faults", folder)
    try:
        yield
    finally:
        _run("umount", "-l", folder)


def remount(folder, options):
    """Changes a disk: `size=100k`, `ro`, `rw`."""
    _run("mount", "-o", f"remount,{options}", folder)


def used(folder):
    """The kilobytes in use on a disk."""
    about = os.statvfs(folder)
    return (about.f_blocks - about.f_bfree) * about.f_frsize // 1024


def _run(*words):
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
