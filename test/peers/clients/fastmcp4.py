"""The client of FastMCP 4 for driver.py."""

from contextlib import AsyncExitStack, asynccontextmanager

import mcp_types as types
from driver import MODERN, main, notify
from fastmcp import Client
from mcp.client.subscriptions import listen
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport


async def elicit(message, response_type, params, context):
    return {"name": "Ada"}


async def sample(messages, params, context):
    return "Paris"


async def receive(message):
    if isinstance(message, types.ServerNotification):
        notify(message.method, message.params.model_dump(mode="json", by_alias=True) if message.params else {})


async def logged(message):
    """Ignores the message, which the message handler gets too."""


def transport(settings):
    if settings["kind"] == "stdio":
        return StdioTransport(command=settings["command"], args=settings["args"], keep_alive=False)
    return SSETransport(settings["url"]) if settings["kind"] == "sse" else StreamableHttpTransport(settings["url"])


@asynccontextmanager
async def connect(settings):
    declares = settings["declares"]
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(
                transport(settings),
                mode="auto" if settings["mode"] == "modern" else "legacy",
                timeout=20,
                elicitation_handler=elicit if "elicitation" in declares else None,
                sampling_handler=sample if "sampling" in declares else None,
                roots=["file:///peer"] if "roots" in declares else None,
                log_handler=logged,
                message_handler=receive,
                cache=False,
            )
        )
        is_modern = client.protocol_version == MODERN

        async def tools():
            return [tool.name for tool in await client.list_tools()]

        async def call(name, arguments, log_level=None):
            steps = []

            async def progressed(progress, total, message):
                steps.append(progress)

            meta = {"io.modelcontextprotocol/logLevel": log_level} if log_level is not None and is_modern else None
            result = await client.call_tool_mcp(name, arguments, progress_handler=progressed, meta=meta)
            text = "\n".join(getattr(block, "text", "") for block in result.content)
            return {
                "text": text,
                "structured": result.structured_content,
                "isError": result.is_error,
                "progress": steps,
            }

        async def resources():
            return [str(resource.uri) for resource in await client.list_resources()]

        async def templates():
            return [one.uri_template for one in await client.list_resource_templates()]

        async def read(uri):
            return "\n".join(content.text for content in await client.read_resource(uri))

        async def prompts():
            return [prompt.name for prompt in await client.list_prompts()]

        async def prompt(name, arguments):
            messages = (await client.get_prompt(name, arguments)).messages
            return "\n".join(message.content.text for message in messages)

        async def complete(ref, name, value):
            kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
            return (await client.complete(kind(**ref), {"name": name, "value": value})).values

        async def set_level(level):
            await client.set_logging_level(level)

        async def watch(uri=None):
            if not is_modern:
                if uri is not None:
                    await client.session.subscribe_resource(uri)
                return
            uris = [] if uri is None else [uri]
            listening = listen(client.session, tools_list_changed=uri is None, resource_subscriptions=uris)
            await stack.enter_async_context(listening)

        async def ping():
            await client.ping()

        yield (
            client.protocol_version,
            {
                "tools": tools,
                "call": call,
                "resources": resources,
                "templates": templates,
                "read": read,
                "prompts": prompts,
                "prompt": prompt,
                "complete": complete,
                "setLevel": set_level,
                "watch": watch,
                "ping": ping,
            },
        )


main(connect)
