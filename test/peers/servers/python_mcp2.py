"""A server as a user of the Python SDK 2.x writes it: the SDK supports both eras. Usage: python_mcp2.py ID stdio|http|sse"""

import sys

import anyio
from listen import listen
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    Completion,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmptyResult,
    InputRequiredResult,
    PromptReference,
    ResourceTemplateReference,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    UnsubscribeRequestParams,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

SERVER_ID, TRANSPORT = sys.argv[1], sys.argv[2]
WATCHED = f"peer://{SERVER_ID}/watched"

mcp = MCPServer(f"peer-{SERVER_ID}", instructions="A peer of the tests.")
counts: dict[str, int] = {}
cancelled = 0
watched = 0


class Sum(BaseModel):
    sum: int


class Name(BaseModel):
    name: str


@mcp.tool()
def echo(text: str) -> str:
    return text


@mcp.tool()
def add(a: int, b: int) -> Sum:
    return Sum(sum=a + b)


@mcp.tool()
def fail() -> str:
    raise ValueError("this tool fails on purpose")


@mcp.tool()
async def progress(ctx: Context) -> str:
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3, f"step {step}")
    return "progressed"


@mcp.tool()
async def log(ctx: Context) -> str:
    await ctx.info("a line of the log")
    return "logged"


@mcp.tool()
async def ask_name(ctx: Context) -> str:
    """Asks by a request, which works only in sessions."""
    answer = await ctx.elicit("What is your name?", Name)
    return f"Hello, {answer.data.name}" if answer.action == "accept" else answer.action


@mcp.tool()
async def ask_name_by_result(ctx: Context) -> str | InputRequiredResult:
    """Asks by its result, which works only in 2026-07-28."""
    answer = (ctx.input_responses or {}).get("name")
    if isinstance(answer, ElicitResult):
        return f"Hello, {answer.content['name']}" if answer.content else answer.action
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    params = ElicitRequestFormParams(message="What is your name?", requested_schema=schema)
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=params)})


@mcp.tool()
async def ask_model(ctx: Context) -> str:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="the capital of France"))
    answer = await ctx.session.create_message([message], max_tokens=10, related_request_id=ctx.request_id)
    return f"The model says {answer.content.text}"


@mcp.tool()
async def ask_roots(ctx: Context) -> str:
    answer = await ctx.session.list_roots()
    return " ".join(str(root.uri) for root in answer.roots)


@mcp.tool()
async def slow() -> str:
    global cancelled
    try:
        await anyio.sleep(30)
    except anyio.get_cancelled_exc_class():
        cancelled += 1
        raise
    return "slept"


@mcp.tool()
def count_cancelled() -> str:
    return str(cancelled)


@mcp.tool()
def era(ctx: Context) -> str:
    """Returns the revision of the request."""
    return str(ctx.protocol_version)


@mcp.tool()
def count(ctx: Context) -> str:
    """Counts the calls of one session. Over stdio the process is the session."""
    key = (ctx.headers or {}).get("mcp-session-id", "process")
    counts[key] = counts.get(key, 0) + 1
    return str(counts[key])


@mcp.tool()
async def touch(ctx: Context) -> str:
    global watched
    watched += 1
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        await ctx.notify_resource_updated(WATCHED)
    else:
        await ctx.session.send_resource_updated(WATCHED)
    return "touched"


def added() -> str:
    return "added"


@mcp.tool()
async def change(ctx: Context) -> str:
    if "added" not in [tool.name for tool in await mcp.list_tools()]:
        mcp.add_tool(added)
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        await ctx.notify_tools_changed()
    else:
        await ctx.session.send_tool_list_changed()
    return "changed"


@mcp.resource(f"peer://{SERVER_ID}/greeting", mime_type="text/plain")
def greeting() -> str:
    return "Good morning"


@mcp.resource(WATCHED, mime_type="text/plain")
def watched_resource() -> str:
    return f"touched {watched} times"


@mcp.resource(f"peer://{SERVER_ID}/users/{{name}}")
def user(name: str) -> str:
    return f"the user {name}"


@mcp.prompt()
def greet(language: str) -> str:
    return f"Greet me in {language}"


@mcp.completion()
async def complete(ref, argument, context):
    if isinstance(ref, PromptReference):
        return Completion(values=[value for value in ("french", "german") if value.startswith(argument.value)])
    if isinstance(ref, ResourceTemplateReference):
        return Completion(values=[value for value in ("ada", "grace") if value.startswith(argument.value)])
    return None


async def accept(ctx, params) -> EmptyResult:
    return EmptyResult()


for method, params in (
    ("resources/subscribe", SubscribeRequestParams),
    ("resources/unsubscribe", UnsubscribeRequestParams),
    ("logging/setLevel", SetLevelRequestParams),
):
    mcp._lowlevel_server.add_request_handler(method, params, accept)

if TRANSPORT == "stdio":
    mcp.run("stdio")
elif TRANSPORT == "sse":
    listen(mcp.sse_app(), "/sse")
else:
    listen(mcp.streamable_http_app(), "/mcp")
