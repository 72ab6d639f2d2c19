import { TOOLS } from './tools.ts';

/** Tools of the fixture that are called, and how long the text of their answer is. */
const TEXT_BYTES = { small: 64, text_10kb: 10_000, text_100kb: 100_000, sse: 64, progress: 64 } as const;

export type CalledTool = keyof typeof TEXT_BYTES;

export const CALLED_TOOLS = [
  'small',
  'text_10kb',
  'text_100kb',
  'sse',
  'progress',
] as const satisfies readonly CalledTool[];

/** What a tool's answer says: lines of prose with a quote now and then, so that the JSON has escapes as real answers have. */
export function textOf(tool: CalledTool): string {
  const bytes = TEXT_BYTES[tool];
  let text = '';
  for (let line = 1; text.length < bytes; line++) {
    text += `${String(line).padStart(5, '0')}  the tide stood at "${(line * 37) % 97}" when the ferry left quay ${line % 9} for the island\n`;
  }
  return text.slice(0, bytes);
}

const LIST = Buffer.from(`${JSON.stringify({ tools: TOOLS })}}`);

const CALLS = new Map<unknown, Buffer>(
  CALLED_TOOLS.map((tool) => {
    const result = { content: [{ type: 'text', text: textOf(tool) }], isError: false };
    return [tool, Buffer.from(`${JSON.stringify(result)}}`)];
  }),
);

/** An answer in two pieces: its start, where the id is, and its end, which is the same each time. */
export interface Answer {
  readonly head: string;
  readonly tail: Buffer;
  /** It opens a session. */
  readonly opens?: true;
  /** Over HTTP it comes as an event. */
  readonly asEvent?: true;
  /** A notification that is sent before it. */
  readonly before?: string;
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}

function tailOf(value: object): Buffer {
  return Buffer.from(`${JSON.stringify(value)}}`);
}

const HELLO = tailOf({
  protocolVersion: '2025-11-25',
  capabilities: { tools: {} },
  serverInfo: { name: 'bench-upstream', version: '1.0.0' },
});
const PONG = tailOf({});

function called(start: string, params: unknown): Answer {
  const name = member(params, 'name');
  const tail = CALLS.get(name);
  if (tail === undefined) return { head: `${start}"error":`, tail: tailOf({ code: -32602, message: 'Unknown tool' }) };
  const head = `${start}"result":`;
  if (name === 'sse') return { head, tail, asEvent: true };
  const token = name === 'progress' ? member(member(params, '_meta'), 'progressToken') : undefined;
  if (token === undefined) return { head, tail };
  const progress = { progressToken: token, progress: 1, total: 2, message: 'casting off' };
  const before = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params: progress });
  return { head, tail, asEvent: true, before };
}

/**
 * What the fixture, an MCP server of revision 2025-11-25 with {@link TOOLS}, answers; undefined to what needs no answer.
 *
 * @throws {SyntaxError} where the message is not JSON.
 */
export function answerTo(text: string): Answer | undefined {
  const message: unknown = JSON.parse(text);
  const id = member(message, 'id');
  const method = member(message, 'method');
  if (id === undefined || typeof method !== 'string') return undefined;
  const start = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},`;
  switch (method) {
    case 'tools/call':
      return called(start, member(message, 'params'));
    case 'tools/list':
      return { head: `${start}"result":`, tail: LIST };
    case 'ping':
      return { head: `${start}"result":`, tail: PONG };
    case 'initialize':
      return { head: `${start}"result":`, tail: HELLO, opens: true };
    default:
      return { head: `${start}"error":`, tail: tailOf({ code: -32601, message: `Method not found: ${method}` }) };
  }
}
