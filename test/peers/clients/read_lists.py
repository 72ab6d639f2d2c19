"""Parses list results with the client of the installed Python SDK, 1.x or 2.x.

Each line on stdin is a JSON object: `revision`, `method`, and `message`, the text of the JSON-RPC response as it comes from
the wire. Each line on stdout is a JSON object: `keys`, the names or URIs of the items that the client lists, or `error`, or
`unknown` if the SDK does not support the revision.
"""

import json
import sys

KEYS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}

try:
    from mcp_types import jsonrpc
    from mcp_types.methods import parse_server_result
    from mcp_types.version import KNOWN_PROTOCOL_VERSIONS as REVISIONS

    def read(revision: str, method: str, message: str) -> object:
        response = jsonrpc.jsonrpc_message_adapter.validate_json(message, by_name=False)
        return parse_server_result(method, revision, response.result)

except ImportError:
    from mcp import types
    from mcp.shared.version import SUPPORTED_PROTOCOL_VERSIONS as REVISIONS

    MODELS = {
        "tools/list": types.ListToolsResult,
        "prompts/list": types.ListPromptsResult,
        "resources/list": types.ListResourcesResult,
        "resources/templates/list": types.ListResourceTemplatesResult,
    }

    def read(revision: str, method: str, message: str) -> object:
        response = types.JSONRPCMessage.model_validate_json(message)
        return MODELS[method].model_validate(response.root.result)


for line in sys.stdin:
    case = json.loads(line)
    if case["revision"] not in REVISIONS:
        print(json.dumps({"unknown": True}), flush=True)
        continue
    member, key = KEYS[case["method"]]
    try:
        result = read(case["revision"], case["method"], case["message"])
        listed = result.model_dump(by_alias=True, mode="json")[member]
        print(json.dumps({"keys": [item[key] for item in listed]}), flush=True)
    except Exception as error:  # every refusal is an answer
        print(json.dumps({"error": f"{type(error).__name__}: {str(error)[:500]}"}), flush=True)
