import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { messagesOf, post, rpc } from '../downstream/client.ts';
import { modernResult } from './modern-wire.ts';

const DUAL = join(import.meta.dirname, '../fixtures/servers/dual-stdio.ts');

/** Returns the config entry of a program of both eras. @param options as `dual-stdio.ts` names them. */
export const dual = (...options: readonly string[]) => ({
  command: process.execPath,
  args: [DUAL, ...options],
  timeouts: { start: '60s' },
});

/** Returns the config entry of a program of 2026-07-28 only, and a function after which it starts as one of 2025-11-25 only. */
export async function replaceable() {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-eras-'));
  const file = join(dir, 'era');
  await writeFile(file, 'modern');
  return {
    config: dual(`only=${file}`),
    replace: () => writeFile(file, 'legacy'),
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true }),
  };
}

type Headers = Readonly<Record<string, string>>;

/** Returns the names in a list of tools. */
export function namesIn(result: unknown): readonly string[] {
  const { tools }: { tools: readonly { name: string }[] } = JSON.parse(JSON.stringify(result));
  return tools.map(({ name }) => name);
}

/** Calls a tool in a session. Returns the text of its result. */
export async function sessionCall(url: string, session: string, name: string, headers: Headers = {}): Promise<string> {
  const got = await post(url, rpc(2, 'tools/call', { name, arguments: {} }), session, headers);
  return textIn(messagesOf(got).at(-1)?.['result']);
}

/** Calls a tool with a request of 2026-07-28. Returns the text of its result. */
export async function modernCall(url: string, name: string, headers: Headers = {}): Promise<string> {
  return textIn(await modernResult(url, 'tools/call', { name, arguments: {} }, { headers }));
}

/** Returns the text of a result. */
export function textIn(result: unknown): string {
  const { content }: { content: readonly { text: string }[] } = JSON.parse(JSON.stringify(result));
  return content.map(({ text }) => text).join('');
}
