"""Serves an ASGI app on a free port of the loopback, and prints its URL as a line of JSON."""

import json
import socket

import uvicorn


def listen(app, path: str) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}{path}"}), flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])
