import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { Child } from '../../support/child.ts';
import { pythonWith, type PythonSet } from '../install/python.ts';
import { CALLED, type ConnectOptions, NOTIFICATION, type PeerClient, type Place } from './client.ts';
import { Notifications } from './notifications.ts';

const FILES: Readonly<Record<PythonSet, string>> = {
  mcp1: 'python_mcp1.py',
  mcp2: 'python_mcp2.py',
  fastmcp: 'fastmcp4.py',
};

const START_MS = 45_000;
const CONNECT_MS = 45_000;
const CLOSE_MS = 5_000;

const PORT = z.object({ port: z.number() });
const LINE = z.union([
  z.object({ connected: z.string() }),
  z.object({ failed: z.string() }),
  z.object({ closed: z.literal(true) }),
  z.object({ notification: NOTIFICATION }),
  z.object({ id: z.number(), error: z.string() }),
  z.object({ id: z.number(), result: z.unknown() }),
]);

const NAMES = z.array(z.string());

/** A program that has imported a Python SDK, and creates a client for each connection. */
interface Driver {
  readonly child: Child;
  readonly port: number;
}

const drivers = new Map<PythonSet, Promise<Driver>>();

async function startDriver(set: PythonSet): Promise<Driver> {
  const program = fileURLToPath(new URL(FILES[set], import.meta.url));
  const child = await Child.start(await pythonWith(set), ['-B', '-W', 'ignore', program]);
  try {
    const { port } = await child.waitForLine((line) => PORT.safeParse(jsonOf(line)).data, START_MS);
    return { child, port };
  } catch (thrown) {
    await child.stop();
    throw thrown;
  }
}

function driverOf(set: PythonSet): Promise<Driver> {
  const driver = drivers.get(set) ?? startDriver(set);
  drivers.set(set, driver);
  return driver;
}

/** Ends the programs of the Python SDKs. Otherwise they run until this process ends. */
export async function closePythonDrivers(): Promise<void> {
  const started = await Promise.allSettled(drivers.values());
  drivers.clear();
  for (const one of started) if (one.status === 'fulfilled') await one.value.child.stop();
}

/** Connects a client of a Python SDK in a process of its own. @throws {Error} with its error text. */
export async function connectPython(set: PythonSet, place: Place, options: ConnectOptions): Promise<PeerClient> {
  const { child, port } = await driverOf(set);
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  return await connectDriven(socket, `the ${set} client`, () => child.logs(), { ...place, ...options });
}

/** Returns a client over a connection to a driver. */
async function connectDriven(socket: Socket, name: string, logs: () => string, settings: object): Promise<PeerClient> {
  const closed = new Promise<void>((resolve) => void socket.once('close', () => resolve()));
  const notifications = new Notifications();
  const pending = new Map<number, PromiseWithResolvers<unknown>>();
  const connecting = Promise.withResolvers<string>();
  let failure: Error | undefined;
  let lastId = 0;

  createInterface({ input: socket }).on('line', (line) => {
    const parsed = LINE.safeParse(jsonOf(line));
    if (!parsed.success) return fail(`the driver wrote ${line}`);
    const { data } = parsed;
    if ('connected' in data) connecting.resolve(data.connected);
    else if ('failed' in data) fail(data.failed);
    else if ('notification' in data) notifications.push(data.notification);
    else if ('error' in data) pending.get(data.id)?.reject(new Error(data.error));
    else if ('id' in data) pending.get(data.id)?.resolve(data.result);
  });
  function fail(why: string): void {
    failure ??= new Error(`${name}: ${why}\n${logs().split('\n').slice(-15).join('\n')}`);
    connecting.reject(failure);
    for (const one of pending.values()) one.reject(failure);
  }
  socket.on('error', ({ message }) => fail(message));
  void closed.then(() => fail('ended'));

  const write = (message: object) => socket.write(`${JSON.stringify(message)}\n`);
  async function request(op: string, args: object = {}, signal?: AbortSignal): Promise<unknown> {
    if (failure !== undefined) throw failure;
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
    if (socket.destroyed) return;
    write({ op: 'close' });
    const timer = setTimeout(() => socket.destroy(), CLOSE_MS);
    await closed;
    clearTimeout(timer);
  }

  const timer = setTimeout(() => fail(`did not connect within ${CONNECT_MS} ms`), CONNECT_MS);
  write(settings);
  try {
    const revision = await connecting.promise;
    const names = async (op: string) => NAMES.parse(await request(op));
    return {
      revision,
      waitForNotification: (method, limitMs, is) => notifications.waitForNotification(method, limitMs, is),
      tools: () => names('tools'),
      call: async (tool, args = {}, { logLevel, signal } = {}) =>
        CALLED.parse(await request('call', { name: tool, arguments: args, log_level: logLevel ?? null }, signal)),
      resources: () => names('resources'),
      templates: () => names('templates'),
      read: async (uri) => z.string().parse(await request('read', { uri })),
      prompts: () => names('prompts'),
      prompt: async (prompt, args) => z.string().parse(await request('prompt', { name: prompt, arguments: args })),
      complete: async (completion) => NAMES.parse(await request('complete', completion)),
      setLevel: async (level) => void (await request('setLevel', { level })),
      watch: async (uri) => void (await request('watch', { uri: uri ?? null })),
      ping: async () => void (await request('ping')),
      [Symbol.asyncDispose]: close,
    };
  } catch (thrown) {
    socket.destroy();
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
