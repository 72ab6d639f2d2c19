import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { pythonWith, type PythonSet } from '../install/python.ts';
import { CALLED, type ConnectOptions, HEARD, type PeerClient, type Place } from './client.ts';
import { Hearing } from './hearing.ts';

const FILES: Readonly<Record<PythonSet, string>> = {
  mcp1: 'python_mcp1.py',
  mcp2: 'python_mcp2.py',
  fastmcp: 'fastmcp4.py',
};

const CONNECT_MS = 45_000;
const CLOSE_MS = 5_000;

const LINE = z.union([
  z.object({ connected: z.string() }),
  z.object({ failed: z.string() }),
  z.object({ closed: z.literal(true) }),
  z.object({ notification: HEARD }),
  z.object({ id: z.number(), error: z.string() }),
  z.object({ id: z.number(), result: z.unknown() }),
]);

const NAMES = z.array(z.string());

/** A client of a Python SDK in a process of its own. @throws {Error} with its words, where it cannot connect. */
export async function connectPython(set: PythonSet, place: Place, options: ConnectOptions): Promise<PeerClient> {
  const program = fileURLToPath(new URL(FILES[set], import.meta.url));
  const settings = JSON.stringify({ ...place, ...options });
  const { NODE_TEST_CONTEXT: _inherited, ...env } = process.env;
  const child = spawn(await pythonWith(set), ['-B', '-W', 'ignore', program, settings], {
    env,
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const exited = once(child, 'exit');
  const complaints: string[] = [];
  const hearing = new Hearing();
  const pending = new Map<number, PromiseWithResolvers<unknown>>();
  const connected = Promise.withResolvers<string>();
  let lastId = 0;

  createInterface({ input: child.stderr }).on('line', (line) => complaints.push(line));
  createInterface({ input: child.stdout }).on('line', (line) => {
    const parsed = LINE.safeParse(jsonOf(line));
    if (!parsed.success) return void complaints.push(line);
    const { data } = parsed;
    if ('connected' in data) connected.resolve(data.connected);
    else if ('failed' in data) fail(data.failed);
    else if ('notification' in data) hearing.push(data.notification);
    else if ('error' in data) pending.get(data.id)?.reject(new Error(data.error));
    else if ('id' in data) pending.get(data.id)?.resolve(data.result);
  });
  function fail(why: string): void {
    const error = new Error(`the ${set} client: ${why}\n${complaints.slice(-15).join('\n')}`);
    connected.reject(error);
    for (const one of pending.values()) one.reject(error);
  }
  void exited.then(() => fail('ended'));

  const write = (message: object) => child.stdin.write(`${JSON.stringify(message)}\n`);
  async function request(op: string, args: object = {}, signal?: AbortSignal): Promise<unknown> {
    const id = ++lastId;
    const answer = Promise.withResolvers<unknown>();
    pending.set(id, answer);
    const cancel = () => void write({ op: 'cancel', args: { target: id } });
    signal?.addEventListener('abort', cancel);
    write({ id, op, args });
    try {
      return await answer.promise;
    } finally {
      signal?.removeEventListener('abort', cancel);
      pending.delete(id);
    }
  }
  async function close(): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    write({ op: 'close' });
    const timer = setTimeout(() => child.kill('SIGKILL'), CLOSE_MS);
    await exited;
    clearTimeout(timer);
  }

  const timer = setTimeout(() => fail(`did not connect within ${CONNECT_MS} ms`), CONNECT_MS);
  try {
    const revision = await connected.promise;
    const names = async (op: string) => NAMES.parse(await request(op));
    return {
      revision,
      hear: (method, limitMs, is) => hearing.hear(method, limitMs, is),
      tools: () => names('tools'),
      call: async (name, args = {}, { logLevel, signal } = {}) =>
        CALLED.parse(await request('call', { name, arguments: args, log_level: logLevel ?? null }, signal)),
      resources: () => names('resources'),
      templates: () => names('templates'),
      read: async (uri) => z.string().parse(await request('read', { uri })),
      prompts: () => names('prompts'),
      prompt: async (name, args) => z.string().parse(await request('prompt', { name, arguments: args })),
      complete: async (completion) => NAMES.parse(await request('complete', completion)),
      setLevel: async (level) => void (await request('setLevel', { level })),
      watch: async (uri) => void (await request('watch', { uri: uri ?? null })),
      ping: async () => void (await request('ping')),
      [Symbol.asyncDispose]: close,
    };
  } catch (thrown) {
    child.kill('SIGKILL');
    throw thrown;
  } finally {
    clearTimeout(timer);
  }
}

function jsonOf(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
