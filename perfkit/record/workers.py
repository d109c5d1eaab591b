"""Workers: reads the ranks of a run in several processes, with results, their order and errors as in one.

Processes are started as `python -c` and spoken to through pipes, because those of `multiprocessing` run the user's script again and
forked ones may hang in threads of the columnar engine. A process that dies (often for want of memory) is replaced once an item.
With the setting PERFKIT_DASK the same function runs on that Dask cluster, which must see the files under the same paths.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from perfkit.core.confine import confine
from perfkit.core.errors import InputError
from perfkit.core.settings import dask_address, memory_limit_bytes, num_threads
from perfkit.core.units import GIB, MIB

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = Callable[[str, int], None]
"""Called with what is being read and the bytes read since the last call."""

MIN_ITEMS = 4
MIN_BYTES = 256 * MIB
"""Less is read sooner than processes start: each of them imports the columnar engine first."""
_WORKER_BYTES = 256 * MIB
"""What a process takes while it reads a large file."""
_START = "from perfkit.record.workers import serve; serve()"
_ATTEMPTS = 2
_LOOK_S = 1.0
"""How often a process looks whether the one that started it is there."""
_ONE_PROCESSOR = {"POLARS_MAX_THREADS": "1", "PERFKIT_THREADS": "1"}
_KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(GIB), "MALLOC_MMAP_THRESHOLD_": str(32 * MIB)}
"""Blocks of a file are freed and asked for again all the time. With these the C library (glibc; mallopt(3), the second at its
largest) keeps them, and half of the time in the kernel goes. Others do not look at these variables."""


def each(
    task: Callable[[Item, Report], Result],
    items: Sequence[Item],
    *,
    report: Report,
    name: Callable[[Item], str],
    num_bytes: int,
) -> Generator[Result, None, None]:
    """`task(item, report)` of every item in order; in several processes if there is enough to read (`num_bytes`) for it.

    `task` is a function of a module; items and results are pickled. Errors of the task are raised here; `name` tells a user which
    item it was when a process died. What `task` reports reaches `report` in this thread.
    """
    if not pays_off(len(items), num_bytes):
        for item in items:
            yield task(item, report)
    elif (address := dask_address()) is not None:
        yield from _on_dask(address, task, items, report)
    else:
        yield from _in_processes(task, items, report, name)


def aside(task: Callable[[Item, Callable[..., None]], Result], item: Item, *, report: Callable[..., None], name: str) -> Result:
    """`task(item, report)` in a process of its own, which may take all processors and leaves none of its memory here.

    Of use where this process has to answer meanwhile. As for `each` the task is a function of a module; what it reports, in any
    arguments, reaches `report` in this thread. If `report` raises, the process is ended.
    """
    with contextlib.closing(_in_processes(task, [item], report, lambda _: name, shared=False)) as results:
        return next(results)


def pays_off(num_items: int, num_bytes: int) -> bool:
    """Whether `each` reads so many items in other processes: if they are large enough, or a Dask cluster is there for them."""
    if dask_address() is not None:
        return num_items > 1
    return num_items >= MIN_ITEMS and num_bytes >= MIN_BYTES and num_threads() > 1 and bool(sys.executable)


def _in_processes(
    task: Callable[[Item, Report], Result],
    items: Sequence[Item],
    report: Report,
    name: Callable[[Item], str],
    *,
    shared: bool = True,
) -> Generator[Result]:
    """Threads hand items to a process each; their messages meet in this thread, which puts the results in order.

    Processes that are `shared` among many items take one processor each.
    """
    messages: queue.Queue[tuple[int, str, Any]] = queue.Queue()
    waiting = iter(range(len(items)))
    lock = threading.Lock()
    fitting = max(1, memory_limit_bytes() // _WORKER_BYTES)
    workers = [_Worker(task, _ONE_PROCESSOR if shared else {}) for _ in range(min(num_threads(), len(items), fitting))]

    def drive(worker: _Worker) -> None:
        while True:
            with lock:
                index = next(waiting, None)
            if index is None or worker.stopped:
                return
            try:
                for kind, content in worker.messages(items[index], name(items[index])):
                    messages.put((index, kind, content))
            except Exception as error:  # who waits for the result would wait for ever
                messages.put((index, "error", error))

    threads = [threading.Thread(target=drive, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        yield from _in_order(messages, len(items), report)
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join()
        for worker in workers:
            worker.end()


def _in_order(messages: queue.Queue[tuple[int, str, Any]], num_items: int, report: Report) -> Iterator[Any]:
    results: dict[int, Any] = {}
    for wanted in range(num_items):
        while wanted not in results:
            index, kind, content = messages.get()
            if kind == "error":
                raise content
            if kind == "report":
                report(*content)
            else:
                results[index] = content
        yield results.pop(wanted)


class _Worker:
    """One process, started when first needed and again when it died."""

    def __init__(self, task: Callable[..., Any], environment: Mapping[str, str]) -> None:
        self._task = task
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self.stopped = False

    def messages(self, item: object, name: str) -> Iterator[tuple[str, Any]]:
        """What the process says about an item; the last message is its result or an error."""
        told = 0  # reports of an attempt before, which are not repeated
        for _ in range(_ATTEMPTS):
            try:
                process = self._running()
                _send(process.stdin, item)
                for index in itertools.count():
                    kind, content = pickle.load(process.stdout)  # type: ignore[arg-type]  # a pipe
                    if index >= told:
                        told += 1
                        yield kind, content
                    if kind != "report":
                        return
            except (EOFError, OSError, pickle.UnpicklingError):
                status = self.end()
        yield (
            "error",
            InputError(
                name,
                [
                    f"the process that read it ended twice (exit status {status}; -9 is mostly a lack of memory); "
                    "set PERFKIT_THREADS=1 to read one file at a time"
                ],
            ),
        )

    def stop(self) -> None:
        """Give up the item that the process works on; may be called from any thread."""
        self.stopped = True
        if (process := self._process) is not None:
            process.kill()

    def end(self) -> int | None:
        """End the process, if it runs, and return its exit status."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            try:
                pipe.close()  # type: ignore[union-attr]  # both are pipes
            except OSError:
                continue  # what could not be sent is lost with the process
        return process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self.stopped:
            raise EOFError
        if self._process is None:
            paths = [os.path.abspath(path) for path in sys.path if path]  # noqa: PTH100  (strings as Python takes them)
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), **_KEPT_MEMORY, **self._environment}
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
            _send(self._process.stdin, self._task)
        return self._process


def serve() -> None:
    """The life of a process: a task and then items from standard input, messages to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    confine()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that nothing else gets between the messages
    task = pickle.load(sys.stdin.buffer)
    while True:
        try:
            item = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            result = task(item, lambda *content: _send(replies, ("report", content)))
            message = pickle.dumps(("result", result), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            message = _error_message(error)
        replies.write(message)
        replies.flush()


def _end_with(parent: int) -> None:
    """End when the parent has: nobody waits for the result."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


def _error_message(error: Exception) -> bytes:
    try:
        message = pickle.dumps(("error", error))
        pickle.loads(message)
    except Exception:  # not every exception can be built again from its arguments
        message = pickle.dumps(("error", RuntimeError(repr(error))))
    return message


def _send(stream: Any, content: object) -> None:
    pickle.dump(content, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


def _on_dask(address: str, task: Callable[[Item, Report], Result], items: Sequence[Item], report: Report) -> Iterator[Result]:
    try:
        distributed: Any = importlib.import_module("distributed")  # an extra that only this function needs
    except ImportError as error:
        raise InputError("PERFKIT_DASK", ["is set, but Dask is not installed; install perfkit[dask]"]) from error
    try:
        client = distributed.Client(address, set_as_default=False)
    except OSError as error:
        raise InputError("PERFKIT_DASK", [f"no scheduler answers at {address!r}: {error}"]) from error
    with client:
        for future in client.map(functools.partial(_with_reports, task), items, pure=False):
            reports, result = future.result()
            for content in reports:
                report(*content)
            yield result


def _with_reports(task: Callable[[Item, Report], Result], item: Item) -> tuple[list[tuple[str, int]], Result]:
    reports: list[tuple[str, int]] = []
    return reports, task(item, lambda what, num_bytes: reports.append((what, num_bytes)))
