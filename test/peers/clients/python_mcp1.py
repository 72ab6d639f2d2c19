"""The client of the Python SDK 1.x for driver.py."""

from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import mcp.types as types
from driver import main, notify
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl


async def elicit(context, params):
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def sample(context, params):
    content = types.TextContent(type="text", text="Paris")
    return types.CreateMessageResult(role="assistant", content=content, model="test")


async def list_roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///peer")])


async def receive(message):
    if isinstance(message, types.ServerNotification):
        root = message.root
        notify(root.method, root.params.model_dump(mode="json", by_alias=True) if root.params else {})


def transport(settings):
    if settings["kind"] == "stdio":
        return stdio_client(StdioServerParameters(command=settings["command"], args=settings["args"]))
    if settings["kind"] == "sse":
        return sse_client(settings["url"])
    return streamablehttp_client(settings["url"])


@asynccontextmanager
async def connect(settings):
    declares = settings["declares"]
    async with AsyncExitStack() as stack:
        read, write, *_ = await stack.enter_async_context(transport(settings))
        session = await stack.enter_async_context(
            ClientSession(
                read,
                write,
                read_timeout_seconds=timedelta(seconds=20),
                elicitation_callback=elicit if "elicitation" in declares else None,
                sampling_callback=sample if "sampling" in declares else None,
                list_roots_callback=list_roots if "roots" in declares else None,
                message_handler=receive,
            )
        )
        greeting = await session.initialize()

        async def tools():
            return [tool.name for tool in (await session.list_tools()).tools]

        async def call(name, arguments, log_level=None):
            steps = []

            async def progressed(progress, total, message):
                steps.append(progress)

            result = await session.call_tool(name, arguments, progress_callback=progressed)
            text = "\n".join(getattr(block, "text", "") for block in result.content)
            return {
                "text": text,
                "structured": result.structuredContent,
                "isError": result.isError,
                "progress": steps,
            }

        async def resources():
            return [str(resource.uri) for resource in (await session.list_resources()).resources]

        async def templates():
            return [one.uriTemplate for one in (await session.list_resource_templates()).resourceTemplates]

        async def read_one(uri):
            return "\n".join(content.text for content in (await session.read_resource(AnyUrl(uri))).contents)

        async def prompts():
            return [prompt.name for prompt in (await session.list_prompts()).prompts]

        async def prompt(name, arguments):
            messages = (await session.get_prompt(name, arguments)).messages
            return "\n".join(message.content.text for message in messages)

        async def complete(ref, name, value):
            kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
            result = await session.complete(kind(**ref), {"name": name, "value": value})
            return result.completion.values

        async def set_level(level):
            await session.set_logging_level(level)

        async def watch(uri=None):
            if uri is not None:
                await session.subscribe_resource(AnyUrl(uri))

        async def ping():
            await session.send_ping()

        yield (
            greeting.protocolVersion,
            {
                "tools": tools,
                "call": call,
                "resources": resources,
                "templates": templates,
                "read": read_one,
                "prompts": prompts,
                "prompt": prompt,
                "complete": complete,
                "setLevel": set_level,
                "watch": watch,
                "ping": ping,
            },
        )


main(connect)
