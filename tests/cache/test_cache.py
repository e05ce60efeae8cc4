from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from umma_jit._image import KernelImage
from umma_jit._source import KernelSource
from umma_jit.cache import DiskStore, KernelCache, default_cache
from umma_jit.cache import disk as disk_module
from umma_jit.errors import CacheWarning, CompileError

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = KernelSource(text="text", entry="kernel", arch="sm_100a", options=("--std=c++17",))


class Compiler:
    def __init__(self) -> None:
        self.calls = 0
        self.delay = 0.0

    def __call__(self, source, kind) -> KernelImage:
        self.calls += 1
        time.sleep(self.delay)
        payload = b"\x7fELF" + source.text.encode()
        return KernelImage(
            kind=kind, arch=source.arch, entry=source.entry, payload=payload, options=(), compiler="12.9.86"
        )


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "cache"


def cache(root, compiler, **options) -> KernelCache:
    store = None if root is None else DiskStore(root)
    return KernelCache(store, compiler=compiler, identity=lambda: "12.9.86", **options)


def only_entry(root) -> Path:
    (path,) = root.glob("v*/*.kernel")
    return path


def test_a_second_get_is_from_memory(compiler):
    c = cache(None, compiler)
    assert c.get_or_compile(SOURCE, "cubin") is c.get_or_compile(SOURCE, "cubin")
    assert compiler.calls == 1


def test_another_process_finds_it_on_disk(root, compiler):
    first = cache(root, compiler).get_or_compile(SOURCE, "cubin", {"head_dim": 64})
    second = cache(root, compiler).get_or_compile(SOURCE, "cubin")
    assert compiler.calls == 1
    assert (first.origin, second.origin) == ("compiled", "disk")
    assert first.payload == second.payload


def test_kinds_and_sources_are_kept_apart(root, compiler):
    c = cache(root, compiler)
    c.get_or_compile(SOURCE, "cubin")
    c.get_or_compile(SOURCE, "ptx")
    c.get_or_compile(KernelSource(text="other", entry="kernel", arch="sm_100a", options=()), "cubin")
    assert compiler.calls == 3
    assert len(c.store.keys()) == 3


def test_compiling_anew_replaces_what_is_kept(root, compiler):
    cache(root, compiler).get_or_compile(SOURCE, "cubin")
    c = cache(root, compiler)
    assert c.get_or_compile(SOURCE, "cubin").origin == "disk"
    assert c.get_or_compile(SOURCE, "cubin", anew=True).origin == "compiled"
    assert c.get_or_compile(SOURCE, "cubin").origin == "compiled"
    assert compiler.calls == 2


def test_the_directory_is_the_users_alone(root, compiler):
    old = os.umask(0)
    try:
        cache(root, compiler).get_or_compile(SOURCE, "cubin")
    finally:
        os.umask(old)
    assert root.stat().st_mode & 0o777 == 0o700
    assert only_entry(root).parent.stat().st_mode & 0o777 == 0o700
    assert only_entry(root).stat().st_mode & 0o777 == 0o600


def test_nothing_temporary_is_left(root, compiler):
    cache(root, compiler).get_or_compile(SOURCE, "cubin")
    assert not list(root.rglob("*.tmp"))


def test_what_a_died_process_left_is_swept(root, compiler):
    c = cache(root, compiler)
    c.get_or_compile(SOURCE, "cubin")
    old, new = (only_entry(root).with_name(name) for name in ("a.1-x.tmp", "b.2-y.tmp"))
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    c.get_or_compile(SOURCE, "ptx")
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize("damage", [lambda b: b[:100], lambda b: b"", lambda b: b[:-1] + b"!", lambda b: b"junk" * 99])
def test_a_damaged_entry_is_put_aside_and_compiled_again_with_one_warning(root, compiler, damage):
    cache(root, compiler).get_or_compile(SOURCE, "cubin")
    path = only_entry(root)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(CacheWarning, match="damaged") as caught:
        image = cache(root, compiler).get_or_compile(SOURCE, "cubin")
    assert len(caught) == 1
    assert image.origin == "compiled"
    assert path.with_suffix(".damaged").exists()
    assert cache(root, compiler).get_or_compile(SOURCE, "cubin").origin == "disk"


def test_an_entry_of_another_arch_is_not_served(root, compiler):
    c = cache(root, compiler)
    c.get_or_compile(SOURCE, "cubin")
    other = KernelSource(text="text", entry="kernel", arch="sm_103a", options=("--std=c++17",))
    only_entry(root).rename(c.store.path(c.key(other, "cubin")))
    with pytest.warns(CacheWarning, match="damaged"):
        assert cache(root, compiler).get_or_compile(other, "cubin").arch == "sm_103a"


def link_to_file(root: Path) -> None:
    path = only_entry(root)
    path.rename(root / "elsewhere")
    path.symlink_to(root / "elsewhere")


def link_to_directory(root: Path) -> None:
    path = only_entry(root).parent
    path.rename(root / "elsewhere")
    path.symlink_to(root / "elsewhere")


def fifo(root: Path) -> None:
    path = only_entry(root)
    path.unlink()
    os.mkfifo(path, 0o600)


def directory(root: Path) -> None:
    path = only_entry(root)
    path.unlink()
    path.mkdir(mode=0o700)


def writable_file(root: Path) -> None:
    only_entry(root).chmod(0o666)


def writable_directory(root: Path) -> None:
    only_entry(root).parent.chmod(0o777)


@pytest.mark.parametrize("spoil", [link_to_file, link_to_directory, fifo, directory, writable_file, writable_directory])
def test_what_cannot_be_trusted_is_not_read(root, compiler, spoil):
    cache(root, compiler).get_or_compile(SOURCE, "cubin")
    spoil(root)
    with pytest.warns(CacheWarning):
        assert cache(root, compiler).get_or_compile(SOURCE, "cubin").origin == "compiled"
    assert compiler.calls == 2


def test_what_belongs_to_somebody_else_is_not_read(root, compiler, monkeypatch):
    cache(root, compiler).get_or_compile(SOURCE, "cubin")
    os_fstat = os.fstat

    def stranger(descriptor):
        status = list(os_fstat(descriptor))
        status[4] = 12345
        return os.stat_result(status)

    monkeypatch.setattr(disk_module.os, "fstat", stranger)
    with pytest.warns(CacheWarning, match="12345"):
        assert cache(root, compiler).get_or_compile(SOURCE, "cubin").origin == "compiled"


@pytest.mark.parametrize("call", ["mkdir", "open", "fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT])
def test_a_disk_that_fails_is_done_without_and_said_once(root, compiler, monkeypatch, call, code):
    def fail(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk_module.Path if call == "mkdir" else disk_module.os, call, fail)
    c = cache(root, compiler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        c.get_or_compile(SOURCE, "cubin")
        c.get_or_compile(SOURCE, "ptx")
    assert {w.category for w in caught} == {CacheWarning}
    assert 1 <= len(caught) <= 2  # reading and writing may fail apart
    assert compiler.calls == 2
    assert c.get_or_compile(SOURCE, "cubin")
    assert compiler.calls == 2
    monkeypatch.undo()
    assert not list(root.rglob("*.tmp"))


def test_a_file_in_the_place_of_the_directory(root, compiler):
    root.write_text("in the way")
    with pytest.warns(CacheWarning):
        assert cache(root, compiler).get_or_compile(SOURCE, "cubin").origin == "compiled"
    assert root.read_text() == "in the way"


def test_a_config_that_json_cannot_hold_does_not_fail_the_call(root, compiler):
    with pytest.warns(CacheWarning):
        assert cache(root, compiler).get_or_compile(SOURCE, "cubin", {"x": object()})
    assert compiler.calls == 1


def test_compile_errors_pass_and_are_not_kept(root):
    def fail(source, kind):
        raise CompileError("NVRTC_ERROR_COMPILATION", "log", "", "source", "sm_100a", [])

    c = cache(root, fail)
    for _ in range(2):
        with pytest.raises(CompileError):
            c.get_or_compile(SOURCE, "cubin")
    assert c.store.keys() == []


def test_an_error_of_the_compiler_that_is_an_oserror_is_the_callers(root):
    calls = []

    def fail(source, kind):
        calls.append(kind)
        raise OSError("from the compiler")

    with pytest.raises(OSError, match="from the compiler"):
        cache(root, fail).get_or_compile(SOURCE, "cubin")
    assert len(calls) == 1


@pytest.mark.parametrize("on_disk", [True, False])
def test_threads_share_one_compile(root, compiler, on_disk):
    compiler.delay = 0.05
    c = cache(root if on_disk else None, compiler)
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(lambda _: c.get_or_compile(SOURCE, "cubin"), range(8)))
    assert compiler.calls == 1
    assert all(image is images[0] for image in images)


def test_when_the_compiling_thread_is_interrupted_another_takes_over(compiler):
    started, go_on = threading.Event(), threading.Event()

    def interrupted_first(source, kind):
        if not started.is_set():
            started.set()
            go_on.wait(5)
            raise KeyboardInterrupt
        return compiler(source, kind)

    c = cache(None, interrupted_first)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(c.get_or_compile, SOURCE, "cubin")
        started.wait(5)
        second = pool.submit(c.get_or_compile, SOURCE, "cubin")
        time.sleep(0.02)
        go_on.set()
        with pytest.raises(KeyboardInterrupt):
            first.result(5)
        assert second.result(5).origin == "compiled"


WORKER = """
import sys, time
from umma_jit._image import KernelImage
from umma_jit._source import KernelSource
from umma_jit.cache import DiskStore, KernelCache

def compiler(source, kind):
    print("compiled", flush=True)
    time.sleep(0.5)
    return KernelImage(kind=kind, arch=source.arch, entry=source.entry, payload=b"\\x7fELF", options=(), compiler="1")

source = KernelSource(text="text", entry="kernel", arch="sm_100a", options=())
cache = KernelCache(DiskStore(sys.argv[1]), compiler=compiler, identity=lambda: "1")
cache.get_or_compile(source, "cubin")
"""


def start_worker(root) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WORKER, str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_processes_share_one_compile(root):
    workers = [start_worker(root) for _ in range(4)]
    outputs = [worker.communicate(timeout=30) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4, outputs
    assert sum(out.count("compiled") for out, _ in outputs) == 1


def test_a_killed_process_leaves_no_lock(root, compiler):
    worker = start_worker(root)
    assert worker.stdout.readline() == "compiled\n"
    worker.kill()
    worker.communicate()
    source = KernelSource(text="text", entry="kernel", arch="sm_100a", options=())
    c = KernelCache(DiskStore(root), compiler=compiler, identity=lambda: "1", lock_timeout=5)
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert c.get_or_compile(source, "cubin").origin == "compiled"
    assert time.monotonic() - start < 2


def test_a_lock_that_nobody_gives_up_is_waited_for_only_so_long(root, compiler):
    c = cache(root, compiler, lock_timeout=0.1)
    held = c.store.locked(c.key(SOURCE, "cubin"), 1)
    with held, pytest.warns(CacheWarning, match=f"process {os.getpid()} has held"):
        assert c.get_or_compile(SOURCE, "cubin").origin == "compiled"


def test_keys_of_a_directory_that_is_not_there(root):
    assert DiskStore(root).keys() == []
    assert not root.exists()


def test_the_settings_choose_the_directory_or_none(monkeypatch, root):
    from umma_jit._settings import settings

    for environment, expected in (({"UMMA_JIT_CACHE_DIR": str(root)}, root), ({"UMMA_JIT_DISK_CACHE": "0"}, None)):
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            settings.cache_clear()
            default_cache.cache_clear()
            store = default_cache().store
            assert (store and store.root) == expected
    settings.cache_clear()
    default_cache.cache_clear()


def test_a_user_without_a_home_gets_a_cache_in_memory(monkeypatch):
    from umma_jit import cache as cache_module
    from umma_jit._settings import settings

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("UMMA_JIT_CACHE_DIR", raising=False)
    monkeypatch.setattr(cache_module, "default_directory", homeless)
    settings.cache_clear()
    default_cache.cache_clear()
    with pytest.warns(CacheWarning, match="home"):
        assert default_cache().store is None
    default_cache.cache_clear()
