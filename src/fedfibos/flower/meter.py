"""A relay that counts: what really crosses the connection between a SuperNode and the SuperLink."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field

from fedfibos.flower.launch import HOST, free_port


@dataclass
class Meter:
    """Forwards one port of the loopback to another and counts the bytes each way; use as a context manager.

    Attributes:
        target: Port of the SuperLink.
        port: Port that the SuperNode is given.
        down: Bytes from the SuperLink so far: payloads, Flower's own messages, HTTP (and TLS) around them.
        up: Bytes to it so far.
    """

    target: int
    port: int = field(default_factory=free_port)
    down: int = 0
    up: int = 0

    def __enter__(self) -> Meter:
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"meter {self.port}", daemon=True)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.closing(self._loop) as loop:
            loop.run_until_complete(self._listen())

    async def _listen(self) -> None:
        self._stop = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._relay, HOST, self.port)
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            there_reader, there_writer = await asyncio.open_connection(HOST, self.target)
            await asyncio.gather(self._copy(reader, there_writer, "up"), self._copy(there_reader, writer, "down"))
        except (OSError, asyncio.CancelledError):
            pass  # either side hung up, or the meter stops
        finally:
            self._open.discard(task)
            writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        try:
            while data := await reader.read(1 << 16):
                setattr(self, way, getattr(self, way) + len(data))
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
