import { textResult, toolNamed } from '../fixture-server.ts';
import { member } from '../mcp-client.ts';

function resultFor(method: string, params: unknown): object | undefined {
  switch (method) {
    case 'initialize':
      return {
        protocolVersion: '2024-11-05',
        capabilities: { tools: {} },
        serverInfo: { name: 'echo', version: '1.0.0' },
      };
    case 'tools/list':
      return { tools: [toolNamed('echo')] };
    case 'tools/call':
      return textResult(String(member(member(params, 'arguments'), 'nonce')));
    case 'ping':
      return {};
    default:
      return undefined;
  }
}

/** Returns the answer of a server with the tool `echo`; undefined for a notification or a response. */
export function echoAnswer(message: unknown): object | undefined {
  const id = member(message, 'id');
  const method = member(message, 'method');
  if (id === undefined || typeof method !== 'string') return undefined;
  const result = resultFor(method, member(message, 'params'));
  if (result !== undefined) return { jsonrpc: '2.0', id, result };
  return { jsonrpc: '2.0', id, error: { code: -32601, message: `Method not found: ${method}` } };
}
