import { TOOLS } from './tools.ts';

/** The tools of the fixture that are called, and the length of the text in their answers. */
const TEXT_BYTES = { small: 64, text_10kb: 10_000, text_100kb: 100_000, sse: 64, progress: 64 } as const;

export type CalledTool = keyof typeof TEXT_BYTES;

export const CALLED_TOOLS = [
  'small',
  'text_10kb',
  'text_100kb',
  'sse',
  'progress',
] as const satisfies readonly CalledTool[];

/**
 * Returns the text of a tool's answer: lines of prose with some quotes, so that the JSON has escapes as real answers
 * do.
 */
export function textOf(tool: CalledTool): string {
  const bytes = TEXT_BYTES[tool];
  let text = '';
  for (let line = 1; text.length < bytes; line++) {
    text += `${String(line).padStart(5, '0')}  the tide stood at "${(line * 37) % 97}" when the ferry left quay ${line % 9} for the island\n`;
  }
  return text.slice(0, bytes);
}

const SERVER_INFO = { name: 'bench-upstream', version: '1.0.0' };

function tailOf(value: object): Buffer {
  return Buffer.from(`${JSON.stringify(value)}}`);
}

/** The revisions that the fixture supports. */
export type Speaks = '2025-11-25' | '2026-07-28';

const MODERN = { resultType: 'complete', _meta: { 'io.modelcontextprotocol/serverInfo': SERVER_INFO } };
const CACHED = { ttlMs: 300_000, cacheScope: 'public' };

function listTail(speaks: Speaks): Buffer {
  return tailOf(speaks === '2026-07-28' ? { tools: TOOLS, ...MODERN, ...CACHED } : { tools: TOOLS });
}

const LISTS = { '2025-11-25': listTail('2025-11-25'), '2026-07-28': listTail('2026-07-28') };

function callTails(speaks: Speaks): ReadonlyMap<unknown, Buffer> {
  return new Map(
    CALLED_TOOLS.map((tool) => {
      const result = { content: [{ type: 'text', text: textOf(tool) }], isError: false };
      return [tool, tailOf(speaks === '2026-07-28' ? { ...result, ...MODERN } : result)];
    }),
  );
}

const CALLS = { '2025-11-25': callTails('2025-11-25'), '2026-07-28': callTails('2026-07-28') };

/** An answer in two parts: the first one has the id, the second one is the same each time. */
export interface Answer {
  readonly head: string;
  readonly tail: Buffer;
  /** True if the answer opens a session. */
  readonly opens?: true;
  /** True if the answer is an event, over HTTP. */
  readonly asEvent?: true;
  /** A notification that precedes the answer. */
  readonly before?: string;
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}

const HELLO = tailOf({ protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: SERVER_INFO });
const DISCOVERED = tailOf({
  supportedVersions: ['2026-07-28'],
  capabilities: { tools: {} },
  ...MODERN,
  ...CACHED,
});
const PONG = tailOf({});

function called(start: string, params: unknown, speaks: Speaks): Answer {
  const name = member(params, 'name');
  const tail = CALLS[speaks].get(name);
  if (tail === undefined) return { head: `${start}"error":`, tail: tailOf({ code: -32602, message: 'Unknown tool' }) };
  const head = `${start}"result":`;
  if (name === 'sse') return { head, tail, asEvent: true };
  const token = name === 'progress' ? member(member(params, '_meta'), 'progressToken') : undefined;
  if (token === undefined) return { head, tail };
  const progress = { progressToken: token, progress: 1, total: 2, message: 'casting off' };
  const before = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params: progress });
  return { head, tail, asEvent: true, before };
}

function unknown(start: string, method: string): Answer {
  return { head: `${start}"error":`, tail: tailOf({ code: -32601, message: `Method not found: ${method}` }) };
}

/**
 * Returns the answer of the fixture, an MCP server of one revision with {@link TOOLS}; undefined if no answer is
 * due.
 *
 * @throws {SyntaxError} if the message is not JSON.
 */
export function answerTo(text: string, speaks: Speaks = '2025-11-25'): Answer | undefined {
  const message: unknown = JSON.parse(text);
  const id = member(message, 'id');
  const method = member(message, 'method');
  if (id === undefined || typeof method !== 'string') return undefined;
  const start = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},`;
  switch (method) {
    case 'tools/call':
      return called(start, member(message, 'params'), speaks);
    case 'tools/list':
      return { head: `${start}"result":`, tail: LISTS[speaks] };
    case 'ping':
      return { head: `${start}"result":`, tail: PONG };
    case 'server/discover':
      if (speaks !== '2026-07-28') return unknown(start, method);
      return { head: `${start}"result":`, tail: DISCOVERED };
    case 'initialize':
      if (speaks !== '2025-11-25') return unknown(start, method);
      return { head: `${start}"result":`, tail: HELLO, opens: true };
    default:
      return unknown(start, method);
  }
}
