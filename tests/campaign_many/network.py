"""The way from one machine to the database: connections pass through here, and can be cut, held up, or refused."""

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine

PIECE = 1 << 16


class Network:
    """A thread in which all ways run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def close(self) -> None:
        self.run(self._end_all())
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def _end_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Way:
    """From a port of its own to another one, both on this machine."""

    def __init__(self, network: Network, to: int):
        self.network, self.to = network, to
        self.connections: set[asyncio.StreamWriter] = set()
        self.refuses = False
        self.delay = 0.0
        self.loses_one_in = 0
        self.choice = random.Random(to)
        self.goes_on = asyncio.Event()
        self.server = network.run(self._open())
        self.port: int = self.server.sockets[0].getsockname()[1]

    # --- what tests do; all from other threads ---

    def cut(self) -> None:
        """All connections break at once."""
        self.network.run(self._cut())

    def be_gone(self) -> None:
        """Nobody gets through: connections break, new ones are refused."""
        self.refuses = True
        self.cut()

    def hold_up(self) -> None:
        """Nothing gets through, and nobody is told."""
        self.network.loop.call_soon_threadsafe(self.goes_on.clear)

    def lose_answers(self, one_in: int) -> None:
        """One answer in so many does not arrive: the connection breaks in its place, after the other end has done its work."""
        self.loses_one_in = one_in

    def slow_down(self, seconds: float) -> None:
        """All that passes takes so much longer."""
        self.delay = seconds

    def be_good(self) -> None:
        self.refuses, self.delay, self.loses_one_in = False, 0.0, 0
        self.network.loop.call_soon_threadsafe(self.goes_on.set)

    def close(self) -> None:
        self.be_gone()
        self.network.loop.call_soon_threadsafe(self.server.close)

    # --- in the thread of the network ---

    async def _open(self) -> asyncio.Server:
        self.goes_on.set()
        return await asyncio.start_server(self._connected, "127.0.0.1", 0)

    async def _cut(self) -> None:
        for writer in list(self.connections):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        self.connections.add(writer)
        other = None
        try:
            # Cancelled at the end of all.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                other_reader, other = await asyncio.open_connection("127.0.0.1", self.to)
                self.connections.add(other)
                # When one side ends, both do.
                there = asyncio.create_task(self._pass(reader, other, answers=False))
                back = asyncio.create_task(self._pass(other_reader, writer, answers=True))
                await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
                there.cancel()
                back.cancel()
        finally:
            for one in (writer, other):
                if one is not None:
                    self.connections.discard(one)
                    one.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE):
                await self.goes_on.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                if answers and self.loses_one_in and self.choice.randrange(self.loses_one_in) == 0:
                    return
                writer.write(data)
                await writer.drain()
            # What was written last must get there: a server says why it closes a connection.
            writer.write_eof()
            await asyncio.sleep(0.05)
