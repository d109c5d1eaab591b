"""Plain pickle: the numbers, texts and containers of a pickle, built here from its opcodes, so that nothing in it can run.

`pickle.load` calls whatever a file names. A memory snapshot holds dicts, lists, tuples, texts and numbers alone, so only the
opcodes of these are known (protocols 0 to 5, as in `pickletools`); any other one ends the reading with an error that names it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from perfkit.core.units import MIB

MAX_OPCODES = 20_000_000
MAX_TEXT_BYTES = 64 * MIB
_INT4, _UINT2, _UINT4, _UINT8, _FLOAT8 = (struct.Struct(code) for code in ("<i", "<H", "<I", "<Q", ">d"))


class NotPlainError(ValueError):
    """The content is no pickle of plain values; the message says what was found, and where."""


def load_plain(data: bytes) -> Any:
    """The value that a pickle of plain containers holds. Raises NotPlainError if it is cut, damaged or holds anything else."""
    reader = _Reader(data)
    try:
        return reader.value()
    except (IndexError, struct.error):
        raise NotPlainError(f"the pickle ends early or is damaged at byte {reader.at}") from None
    except (TypeError, KeyError, ValueError, AttributeError, MemoryError, OverflowError) as error:
        if isinstance(error, NotPlainError):
            raise
        raise NotPlainError(f"the pickle is damaged at byte {reader.at}: {type(error).__name__}") from None


class _Reader:
    """A stack machine over the opcodes that build plain values."""

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._actions: list[Callable[[], None] | None] = [None] * 256
        for code, action in self._known().items():
            self._actions[code] = action

    def value(self) -> Any:
        data, actions = self._data, self._actions
        for _ in range(MAX_OPCODES):
            code = data[self.at]
            if code == 0x2E:  # STOP
                return self._stack.pop()
            action = actions[code]
            if action is None:
                raise NotPlainError(f"opcode {bytes([code])!r} at byte {self.at} makes more than plain values; nothing was run")
            self.at += 1
            action()
        raise NotPlainError(f"the pickle has more than {MAX_OPCODES} opcodes")

    def _known(self) -> dict[int, Callable[[], None]]:
        return (
            {0x80: self._skip(1), 0x95: self._skip(8), 0x28: self._mark, 0x30: self._pop, 0x31: self._pop_mark, 0x32: self._dup}
            | {0x4E: self._push(None), 0x88: self._push(True), 0x89: self._push(False)}
            | {0x49: self._int_line, 0x4C: self._int_line, 0x4A: self._number(_INT4), 0x4B: self._byte, 0x4D: self._number(_UINT2)}
            | {0x8A: self._long(1), 0x8B: self._long(4), 0x46: self._float_line, 0x47: self._number(_FLOAT8)}
            | {0x58: self._text(4), 0x8C: self._text(1), 0x8D: self._text(8), 0x56: self._text_line, 0x53: self._quoted_line}
            | {0x54: self._text(4), 0x55: self._text(1), 0x42: self._bytes(4), 0x43: self._bytes(1), 0x8E: self._bytes(8)}
            | {0x5D: self._new(list), 0x7D: self._new(dict), 0x29: self._push(()), 0x8F: self._new(set)}
            | {
                0x61: self._append,
                0x65: self._appends,
                0x6C: self._list,
                0x74: self._tuple,
                0x91: self._frozen,
                0x90: self._add_items,
            }
            | {0x85: self._short_tuple(1), 0x86: self._short_tuple(2), 0x87: self._short_tuple(3)}
            | {0x64: self._dict, 0x73: self._set_item, 0x75: self._set_items}
            | {0x94: self._memoize, 0x70: self._put_line, 0x71: self._put(1), 0x72: self._put(4)}
            | {0x67: self._get_line, 0x68: self._get(1), 0x6A: self._get(4)}
        )

    def _take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if size > MAX_TEXT_BYTES or self.at > len(self._data):
            raise IndexError
        return self._data[start : self.at]

    def _size(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _line(self) -> str:
        end = self._data.index(b"\n", self.at)
        start, self.at = self.at, end + 1
        return self._data[start:end].decode("latin-1")

    def _items(self) -> list[Any]:
        """What was pushed since the last mark."""
        items, self._stack = self._stack, self._below.pop()
        return items

    def _skip(self, size: int) -> Callable[[], None]:
        def action() -> None:
            self._take(size)

        return action

    def _push(self, value: Any) -> Callable[[], None]:
        return lambda: self._stack.append(value)

    def _new(self, kind: Callable[[], Any]) -> Callable[[], None]:
        return lambda: self._stack.append(kind())

    def _number(self, layout: struct.Struct) -> Callable[[], None]:
        def action() -> None:
            self._stack.append(layout.unpack_from(self._data, self.at)[0])
            self.at += layout.size

        return action

    def _long(self, width: int) -> Callable[[], None]:
        return lambda: self._stack.append(int.from_bytes(self._take(self._size(width)), "little", signed=True))

    def _text(self, width: int) -> Callable[[], None]:
        return lambda: self._stack.append(self._take(self._size(width)).decode("utf-8", "replace"))

    def _bytes(self, width: int) -> Callable[[], None]:
        return lambda: self._stack.append(self._take(self._size(width)))

    def _short_tuple(self, size: int) -> Callable[[], None]:
        def action() -> None:
            if len(self._stack) < size:
                raise IndexError
            self._stack[-size:] = [tuple(self._stack[-size:])]

        return action

    def _put(self, width: int) -> Callable[[], None]:
        def action() -> None:
            self._memo[self._size(width)] = self._stack[-1]

        return action

    def _get(self, width: int) -> Callable[[], None]:
        return lambda: self._stack.append(self._memo[self._size(width)])

    def _byte(self) -> None:
        self._stack.append(self._data[self.at])
        self.at += 1

    def _mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _pop(self) -> None:
        self._stack.pop()

    def _pop_mark(self) -> None:
        self._items()

    def _dup(self) -> None:
        self._stack.append(self._stack[-1])

    def _int_line(self) -> None:
        text = self._line().removesuffix("L")
        self._stack.append({"00": False, "01": True}.get(text) if text in ("00", "01") else int(text))

    def _float_line(self) -> None:
        self._stack.append(float(self._line()))

    def _text_line(self) -> None:
        self._stack.append(self._line().encode("latin-1", "replace").decode("raw-unicode-escape"))

    def _quoted_line(self) -> None:
        self._stack.append(self._line().strip("'\""))

    def _append(self) -> None:
        value = self._stack.pop()
        self._stack[-1].append(value)

    def _appends(self) -> None:
        items = self._items()
        self._stack[-1].extend(items)

    def _list(self) -> None:
        items = self._items()
        self._stack.append(items)

    def _tuple(self) -> None:
        items = self._items()
        self._stack.append(tuple(items))

    def _frozen(self) -> None:
        items = self._items()
        self._stack.append(frozenset(map(_key, items)))

    def _add_items(self) -> None:
        items = self._items()
        self._stack[-1].update(map(_key, items))

    def _dict(self) -> None:
        items = self._items()
        self._stack.append(dict(zip(map(_key, items[::2]), items[1::2], strict=True)))

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._stack[-1][_key(key)] = value

    def _set_items(self) -> None:
        items = self._items()
        self._stack[-1].update(zip(map(_key, items[::2]), items[1::2], strict=True))

    def _memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _put_line(self) -> None:
        self._memo[int(self._line())] = self._stack[-1]

    def _get_line(self) -> None:
        self._stack.append(self._memo[int(self._line())])


def _key(value: Any) -> Any:
    """A value that may be a key: hashing nested containers takes as much of the machine's stack as a file likes."""
    if isinstance(value, str | bytes | int | float | None):
        return value
    raise NotPlainError("a key, or a member of a set, is a container")
