/**
 * Starts the processes behind the gateway in advance. A client with new capabilities gets a process of its own, and
 * the suite
 * allows 600 ms for the first event, which is too short for the start of Node on a busy machine.
 */
export async function warm(url: string): Promise<void> {
  for (const capabilities of [{}, { elicitation: {} }]) {
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'warm', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': capabilities,
    };
    const params = { name: 'test_simple_text', arguments: {}, _meta };
    const response = await fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'tools/call',
        'mcp-name': params.name,
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
      signal: AbortSignal.timeout(20_000),
    });
    await response.text();
  }
}
