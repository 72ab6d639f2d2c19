"""The client of the Python SDK 2.x for driver.py."""

from contextlib import AsyncExitStack, asynccontextmanager

import mcp.types as types
from driver import MODERN, main, notify
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client


async def elicit(context, params):
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def sample(context, params):
    content = types.TextContent(type="text", text="Paris")
    return types.CreateMessageResult(role="assistant", content=content, model="test")


async def list_roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///peer")])


async def receive(message):
    if isinstance(message, types.ServerNotification):
        notify(message.method, message.params.model_dump(mode="json", by_alias=True) if message.params else {})


async def logged(params):
    """Ignores the message, which the message handler gets too."""


def server(settings):
    if settings["kind"] == "stdio":
        return StdioServerParameters(command=settings["command"], args=settings["args"])
    return sse_client(settings["url"]) if settings["kind"] == "sse" else settings["url"]


@asynccontextmanager
async def connect(settings):
    declares = settings["declares"]
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(
                server(settings),
                mode="auto" if settings["mode"] == "modern" else "legacy",
                read_timeout_seconds=20,
                elicitation_callback=elicit if "elicitation" in declares else None,
                sampling_callback=sample if "sampling" in declares else None,
                list_roots_callback=list_roots if "roots" in declares else None,
                logging_callback=logged,
                message_handler=receive,
                cache=None,
            )
        )
        is_modern = client.protocol_version == MODERN

        async def tools():
            return [tool.name for tool in (await client.list_tools()).tools]

        async def call(name, arguments, log_level=None):
            steps = []

            async def progressed(progress, total, message):
                steps.append(progress)

            meta = {"io.modelcontextprotocol/logLevel": log_level} if log_level is not None and is_modern else None
            result = await client.call_tool(name, arguments, progress_callback=progressed, meta=meta)
            text = "\n".join(getattr(block, "text", "") for block in result.content)
            return {
                "text": text,
                "structured": result.structured_content,
                "isError": result.is_error,
                "progress": steps,
            }

        async def resources():
            return [str(resource.uri) for resource in (await client.list_resources()).resources]

        async def templates():
            return [one.uri_template for one in (await client.list_resource_templates()).resource_templates]

        async def read(uri):
            return "\n".join(content.text for content in (await client.read_resource(uri)).contents)

        async def prompts():
            return [prompt.name for prompt in (await client.list_prompts()).prompts]

        async def prompt(name, arguments):
            messages = (await client.get_prompt(name, arguments)).messages
            return "\n".join(message.content.text for message in messages)

        async def complete(ref, name, value):
            kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
            result = await client.complete(kind(**ref), {"name": name, "value": value})
            return result.completion.values

        async def set_level(level):
            await client.set_logging_level(level)

        async def watch(uri=None):
            if not is_modern:
                if uri is not None:
                    await client.subscribe_resource(uri)
                return
            uris = [] if uri is None else [uri]
            listening = client.listen(tools_list_changed=uri is None, resource_subscriptions=uris)
            await stack.enter_async_context(listening)

        async def ping():
            await client.send_ping()

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
