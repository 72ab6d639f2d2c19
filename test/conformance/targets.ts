import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { Child } from '../support/child.ts';
import { startGateway, type RunningGateway } from '../support/gateway.ts';
import { connectSdk1 } from '../support/sdk-client.ts';
import { offering } from './offering.ts';

const fixture = (name: string) => fileURLToPath(new URL(`../fixtures/conformance/${name}`, import.meta.url));
const SERVER = fixture('server.ts');
const OTHER = fixture('other.ts');

const READY_MS = 20_000;
const READY = z.object({ url: z.url() });

export const UPSTREAMS = ['http', 'stdio'] as const;
/** `single` is `/mcp/<upstream>`; `merged` is `/mcp` with an empty prefix and a second upstream beside it. */
export const ENDPOINTS = ['single', 'merged'] as const;

export type UpstreamKind = (typeof UPSTREAMS)[number];
export type Endpoint = (typeof ENDPOINTS)[number];

/** Something the suite can be pointed at. */
export interface Target extends AsyncDisposable {
  readonly url: string;
  logs(): string;
}

/** The fixture with nothing in front: what it cannot do itself, it cannot prove of a gateway. */
export async function direct(): Promise<Target> {
  const child = await Child.start(process.execPath, [SERVER, '--http']);
  const { url } = await child.saying((line) => READY.parse(JSON.parse(line)), READY_MS);
  return { url, logs: () => child.logs(), [Symbol.asyncDispose]: () => child[Symbol.asyncDispose]() };
}

async function front(conf: Readonly<Record<string, unknown>>, endpoint: Endpoint): Promise<RunningGateway> {
  const other = { command: process.execPath, args: [OTHER] };
  if (endpoint === 'single') return startGateway({ mcpServers: { conf } });
  return startGateway({ mcpServers: { conf: { ...conf, prefix: '' }, other } });
}

/**
 * A gateway in front of the fixture, once it lists what both upstreams have.
 *
 * @param cacheDir where the fixture keeps compiled code: over stdio each of some hundred sessions is a process.
 */
export async function gateway(upstream: UpstreamKind, endpoint: Endpoint, cacheDir: string): Promise<Target> {
  const stack = new AsyncDisposableStack();
  try {
    const stdio = { command: process.execPath, args: [SERVER, '--stdio'], env: { NODE_COMPILE_CACHE: cacheDir } };
    const conf = upstream === 'stdio' ? stdio : { url: stack.use(await direct()).url };
    const running = stack.use(await front(conf, endpoint));
    const url = running.endpoint(endpoint === 'single' ? 'conf' : undefined);
    const wanted = endpoint === 'single' ? ['test_simple_text'] : ['test_simple_text', 'other__other_tool'];
    await (await offering(() => connectSdk1(url), wanted, READY_MS))[Symbol.asyncDispose]();
    const owned = stack.move();
    return { url, logs: () => running.logs(), [Symbol.asyncDispose]: () => owned.disposeAsync() };
  } finally {
    await stack.disposeAsync();
  }
}
