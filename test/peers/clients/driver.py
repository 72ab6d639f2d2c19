"""Drives a client by lines of JSON on stdin, and says on stdout how each operation ended and what was notified.

argv[1] is a JSON object: `kind` (stdio, http, sse), `url` or `command` and `args`, `mode` (legacy, modern), `declares`.
In: {"id": 1, "op": "call", "args": {...}}. Out: {"id": 1, "result": ...}, {"id": 1, "error": "..."},
{"notification": {"method": ..., "params": ...}}, and first {"connected": "<revision>"}.
"""

import json
import os
import sys
import threading

import anyio
import anyio.from_thread

MODERN = "2026-07-28"


def say(message) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


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
    settings = json.loads(sys.argv[1])
    send, receive = anyio.create_memory_object_stream(1000)

    # A thread of its own, since a read of stdin cannot be cancelled.
    def read(portal) -> None:
        for line in sys.stdin:
            portal.call(send.send_nowait, json.loads(line))
        portal.call(send.close)

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


def main(connect) -> None:
    try:
        anyio.run(serve, connect)
    except BaseException as error:
        say({"failed": words(error)})
    # The thread that reads stdin would hold the process.
    os._exit(0)
