"""A server as a user of FastMCP 4 writes it. Usage: fastmcp4.py ID stdio|http|sse"""

import sys

import anyio
import mcp_types
from fastmcp import Context, FastMCP
from listen import listen
from pydantic import BaseModel

SERVER_ID, TRANSPORT = sys.argv[1], sys.argv[2]

mcp = FastMCP(f"peer-{SERVER_ID}", instructions="A peer of the tests.")
counts: dict[str, int] = {}
cancelled = 0


class Sum(BaseModel):
    sum: int


class Name(BaseModel):
    name: str


@mcp.tool
def echo(text: str) -> str:
    return text


@mcp.tool
def add(a: int, b: int) -> Sum:
    return Sum(sum=a + b)


@mcp.tool
def fail() -> str:
    raise ValueError("this tool fails on purpose")


@mcp.tool
async def progress(ctx: Context) -> str:
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3, f"step {step}")
    return "progressed"


@mcp.tool
async def log(ctx: Context) -> str:
    await ctx.info("a line of the log")
    return "logged"


@mcp.tool
async def ask_name(ctx: Context) -> str:
    answer = await ctx.elicit("What is your name?", Name)
    return f"Hello, {answer.data.name}" if answer.action == "accept" else answer.action


@mcp.tool
async def ask_name_by_result(ctx: Context) -> str | mcp_types.InputRequiredResult:
    answer = (ctx.input_responses or {}).get("name")
    if isinstance(answer, mcp_types.ElicitResult):
        return f"Hello, {answer.content['name']}" if answer.content else answer.action
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    params = mcp_types.ElicitRequestFormParams(message="What is your name?", requested_schema=schema)
    return mcp_types.InputRequiredResult(input_requests={"name": mcp_types.ElicitRequest(params=params)})


@mcp.tool
async def ask_model(ctx: Context) -> str:
    text = mcp_types.TextContent(type="text", text="the capital of France")
    message = mcp_types.SamplingMessage(role="user", content=text)
    answer = await ctx.session.create_message([message], max_tokens=10, related_request_id=ctx.request_id)
    return f"The model says {answer.content.text}"


@mcp.tool
async def ask_roots(ctx: Context) -> str:
    answer = await ctx.session.list_roots()
    return " ".join(str(root.uri) for root in answer.roots)


@mcp.tool
async def slow() -> str:
    global cancelled
    try:
        await anyio.sleep(30)
    except anyio.get_cancelled_exc_class():
        cancelled += 1
        raise
    return "slept"


@mcp.tool
def count_cancelled() -> str:
    return str(cancelled)


@mcp.tool
def count(ctx: Context) -> str:
    counts[ctx.session_id] = counts.get(ctx.session_id, 0) + 1
    return str(counts[ctx.session_id])


def added() -> str:
    return "added"


@mcp.tool
async def change(ctx: Context) -> str:
    mcp.add_tool(added)
    await ctx.send_notification(mcp_types.ToolListChangedNotification())
    return "changed"


@mcp.resource(f"peer://{SERVER_ID}/greeting", mime_type="text/plain")
def greeting() -> str:
    return "Good morning"


@mcp.resource(f"peer://{SERVER_ID}/users/{{name}}")
def user(name: str) -> str:
    return f"the user {name}"


@mcp.prompt
def greet(language: str) -> str:
    return f"Greet me in {language}"


if TRANSPORT == "stdio":
    mcp.run("stdio", show_banner=False)
elif TRANSPORT == "sse":
    listen(mcp.http_app(path="/sse", transport="sse"), "/sse")
else:
    listen(mcp.http_app(path="/mcp"), "/mcp")
