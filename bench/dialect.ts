import type { CalledTool } from './answers.ts';

/** The request that the load generator repeats. */
export type Ask = { readonly method: 'tools/list' } | { readonly method: 'tools/call'; readonly tool: CalledTool };

/** The messages and headers of a client of one revision. */
interface Dialect {
  /** Messages of the handshake, posted in this order before all others. */
  readonly opening: readonly string[];
  /** @param session the session id from the answer to the first message. */
  headers(session: string | undefined, ask: Ask | undefined, prefix: string): Readonly<Record<string, string>>;
  /** @param prefix the prefix of tool names. */
  request(id: number, ask: Ask, prefix: string): string;
}

const CLIENT_INFO = { name: 'bench-load', version: '1.0.0' };

/** The envelope of every request of 2026-07-28. */
const ENVELOPE = JSON.stringify({
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': CLIENT_INFO,
  'io.modelcontextprotocol/clientCapabilities': {},
});

function modernMeta(id: number, tool: CalledTool): string {
  return tool === 'progress' ? `${ENVELOPE.slice(0, -1)},"progressToken":${id}}` : ENVELOPE;
}

function callParams(id: number, tool: CalledTool, prefix: string): string {
  const meta = tool === 'progress' ? `,"_meta":{"progressToken":${id}}` : '';
  return `{"name":"${prefix}${tool}","arguments":{"city":"Oostende","days":3}${meta}}`;
}

/** One row per revision of clients. */
const DIALECTS = {
  '2025-11-25': {
    opening: [
      JSON.stringify({
        jsonrpc: '2.0',
        id: 0,
        method: 'initialize',
        params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: CLIENT_INFO },
      }),
      '{"jsonrpc":"2.0","method":"notifications/initialized"}',
    ],
    headers: (session) =>
      session === undefined ? {} : { 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' },
    request: (id, ask, prefix) =>
      ask.method === 'tools/list'
        ? `{"jsonrpc":"2.0","id":${id},"method":"tools/list","params":{}}`
        : `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${callParams(id, ask.tool, prefix)}}`,
  },
  '2026-07-28': {
    opening: [],
    headers: (_session, ask, prefix) => ({
      'mcp-protocol-version': '2026-07-28',
      ...(ask === undefined ? {} : { 'mcp-method': ask.method }),
      ...(ask?.method === 'tools/call' ? { 'mcp-name': `${prefix}${ask.tool}` } : {}),
    }),
    request: (id, ask, prefix) =>
      ask.method === 'tools/list'
        ? `{"jsonrpc":"2.0","id":${id},"method":"tools/list","params":{"_meta":${ENVELOPE}}}`
        : `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"${prefix}${ask.tool}",` +
          `"arguments":{"city":"Oostende","days":3},"_meta":${modernMeta(id, ask.tool)}}}`,
  },
} as const satisfies Readonly<Record<string, Dialect>>;

export type Revision = keyof typeof DIALECTS;

export const REVISIONS = ['2025-11-25', '2026-07-28'] as const satisfies readonly Revision[];

export function dialectOf(revision: Revision): Dialect {
  return DIALECTS[revision];
}
