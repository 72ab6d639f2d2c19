"""Controls clients by lines of JSON over TCP. Reports the outcome of each operation, and every notification.

Prints {"port": ...}. Each connection to that port is one client, in a process that is forked from this one once the SDK is
imported: a client costs no second import. The process ends when its parent or its connection does.

First line in: `kind` (stdio, http, sse), `url` or `command` and `args`, `mode` (legacy, modern), `declares`.
Then in: {"id": 1, "op": "call", "args": {...}}. Out: {"id": 1, "result": ...}, {"id": 1, "error": "..."},
{"notification": {"method": ..., "params": ...}}, and first {"connected": "<revision>"}.
"""

import json
import os
import select
import signal
import socket
import sys
import threading
import time

import anyio
import anyio.from_thread

MODERN = "2026-07-28"
# Longest time for the end of a client after its connection has ended.
END_SECONDS = 5
# Interval of the checks whether the parent still runs.
LOOK_SECONDS = 1

channel: socket.socket


def say(message) -> None:
    channel.sendall((json.dumps(message) + "\n").encode())


def notify(method, params) -> None:
    say({"notification": {"method": method, "params": params}})


def words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    code = getattr(getattr(error, "error", None), "code", getattr(error, "code", None))
    return f"{type(error).__name__}{'' if code is None else f' {code}'}: {error}"


async def perform(operations, scopes, message) -> None:
    number = message["id"]
    with anyio.CancelScope() as scope:
        scopes[number] = scope
        try:
            result = await operations[message["op"]](**message.get("args", {}))
            say({"id": number, "result": result})
        except Exception as error:
            say({"id": number, "error": words(error)})
    if scope.cancelled_caught:
        say({"id": number, "error": "cancelled"})
    scopes.pop(number, None)


async def serve(connect) -> None:
    lines = channel.makefile("r", encoding="utf-8")
    settings = json.loads(lines.readline())
    send, receive = anyio.create_memory_object_stream(1000)

    # In a thread of its own, because a blocking read cannot be cancelled.
    def read(portal) -> None:
        for line in lines:
            portal.call(send.send_nowait, json.loads(line))
        portal.call(send.close)
        time.sleep(END_SECONDS)
        os._exit(1)

    async with anyio.from_thread.BlockingPortal() as portal:
        threading.Thread(target=read, args=(portal,), daemon=True).start()
        async with connect(settings) as (revision, operations):
            say({"connected": revision})
            scopes = {}
            async with anyio.create_task_group() as group:
                async for message in receive:
                    if message["op"] == "close":
                        group.cancel_scope.cancel()
                        break
                    if message["op"] == "cancel":
                        scopes[message["args"]["target"]].cancel()
                    else:
                        group.start_soon(perform, operations, scopes, message)
        say({"closed": True})


def run(connect) -> None:
    try:
        anyio.run(serve, connect)
    except BaseException as error:
        say({"failed": words(error)})
    finally:
        # Otherwise the reading thread keeps the process alive.
        os._exit(0)


def reap(*_) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        return


def main(connect) -> None:
    global channel
    parent = os.getppid()
    listener = socket.create_server(("127.0.0.1", 0))
    signal.signal(signal.SIGCHLD, reap)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    while os.getppid() == parent:
        if not select.select([listener], [], [], LOOK_SECONDS)[0]:
            continue
        channel, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            run(connect)
        channel.close()
