"""Targets for the tests of cas.workers; workers import it by name."""

import os
import sys
import time

from cas import errors
from cas.backends import Missing


def echo(init):
    def answer(message):
        return [init, message]

    return answer


def faulty(init):
    if init == "refuse":
        raise errors.RefusedError("no good", why="test")
    if init == "bug":
        raise AssertionError("a bug")

    def answer(message):
        match message:
            case "missing":
                raise Missing("thing not found", key="a/b", at=[1, b"x"])
            case "full":
                raise errors.DiskFullError("full", errno=28)
            case "os":
                raise PermissionError(13, "Permission denied", b"/x\xff")
            case "memory":
                raise MemoryError
            case "bug":
                raise AssertionError("a bug")
            case "exit":
                os._exit(7)
            case "sleep":
                time.sleep(600)
            case "print":
                print("stray")
                return sys.stdin.read()
            case "pid":
                return os.getpid()
            case "modules":
                return sorted(sys.modules)
        return message

    return answer
