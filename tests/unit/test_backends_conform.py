"""Both backends pass the shipped conformance suite, the local one on every kind of filesystem."""

from __future__ import annotations

import errno
import os

import pytest

from cas import fs
from cas.backends import Backend, LocalBackend, MemoryBackend
from cas.testing.backend_suite import BackendSuite


def refuse(code):
    def function(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    return function


class TestMemory(BackendSuite):
    @pytest.fixture
    def backend(self):
        backend: Backend = MemoryBackend()
        return backend


class TestLocal(BackendSuite):
    @pytest.fixture
    def backend(self, tmp_path):
        backend: Backend = LocalBackend(tmp_path / "store", create=True)
        yield backend
        backend.close()


class TestLocalOfAGroup(BackendSuite):
    @pytest.fixture
    def backend(self, tmp_path):
        backend = LocalBackend(tmp_path / "store", create=True, shared_gid=os.getgid())
        yield backend
        backend.close()


class TestLocalWithoutUnnamedFiles(TestLocal):
    @pytest.fixture(autouse=True)
    def _filesystem(self, monkeypatch):
        monkeypatch.setattr(fs, "open_tmpfile", lambda *args: None)


class TestLocalWithoutProc(TestLocal):
    @pytest.fixture(autouse=True)
    def _filesystem(self, monkeypatch):
        monkeypatch.setattr(fs, "can_link_fd", lambda: False)


class TestLocalWithoutHardLinks(TestLocal):
    @pytest.fixture(autouse=True)
    def _filesystem(self, monkeypatch):
        monkeypatch.setattr(fs, "open_tmpfile", lambda *args: None)
        monkeypatch.setattr(fs, "link", refuse(errno.EPERM))


class TestLocalWhereLinkingIsForbidden(TestLocal):
    @pytest.fixture(autouse=True)
    def _filesystem(self, monkeypatch):
        monkeypatch.setattr(fs, "link_fd", refuse(errno.EPERM))
        monkeypatch.setattr(fs, "link", refuse(errno.EPERM))
