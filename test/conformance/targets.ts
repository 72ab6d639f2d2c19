import { startGateway } from '../support/gateway.ts';
import { Replicas } from '../support/replicas.ts';
import { connectSdk2 } from '../support/sdk-client.ts';
import {
  OTHER_PROGRAM,
  TASKS_PROGRAM,
  conformanceProgram,
  overHttp,
  overStdio,
  type Served,
  type TransportKind,
} from './fixture.ts';
import { offering } from './offering.ts';
import type { Behind, Endpoint } from './plan.ts';

const READY_MS = 20_000;

/** A server that the suite tests. */
export interface Target extends AsyncDisposable {
  url(endpoint: Endpoint): string;
  logs(): string;
}

const programOf = (behind: Behind) => (behind === 'tasks' ? TASKS_PROGRAM : conformanceProgram(behind));

/** Returns a tool that is listed once the upstream is up. */
const known = (behind: Behind): string => (behind === 'tasks' ? 'greet' : 'test_simple_text');

/** Starts the fixture alone: what it cannot do itself, it cannot prove of a gateway. */
export async function direct(behind: Behind): Promise<Target> {
  const served = await overHttp(programOf(behind));
  return {
    url: () => served.url,
    logs: () => served.logs(),
    [Symbol.asyncDispose]: () => served[Symbol.asyncDispose](),
  };
}

async function connectAny(url: string) {
  const sdk = await connectSdk2(url, { mode: 'auto' });
  return {
    async tools() {
      if (sdk.client.getServerCapabilities()?.tools === undefined) return [];
      return (await sdk.client.listTools()).tools;
    },
    [Symbol.asyncDispose]: () => sdk[Symbol.asyncDispose](),
  };
}

async function awaitTools(url: string, wanted: readonly string[]): Promise<void> {
  await (await offering(() => connectAny(url), wanted, READY_MS))[Symbol.asyncDispose]();
}

/**
 * Starts a gateway in front of the fixture and a second upstream. Resolves when it lists their tools.
 *
 * @param cacheDir the folder of compiled code: over stdio each of some hundred sessions is a process.
 * @param processes of the gateway: replicas, to any of which a balancer sends each request, or workers of one.
 */
export async function gateway(
  behind: Behind,
  transport: TransportKind,
  cacheDir: string,
  { replicas, workers }: { readonly replicas: number; readonly workers: number },
): Promise<Target> {
  const stack = new AsyncDisposableStack();
  try {
    const program = programOf(behind);
    const served: Served | undefined = transport === 'http' ? stack.use(await overHttp(program)) : undefined;
    const reached =
      served === undefined ? { ...overStdio(program), env: { NODE_COMPILE_CACHE: cacheDir } } : { url: served.url };
    const mcpServers = { conf: { ...reached, prefix: '' }, other: overStdio(OTHER_PROGRAM) };
    const running = stack.use(
      replicas === 1
        ? await startGateway({ mcpServers, gateway: { workers } })
        : await Replicas.start(replicas, { mcpServers }, {}, 'at random'),
    );
    const url = (endpoint: Endpoint) => running.endpoint(endpoint === 'single' ? 'conf' : undefined);
    await awaitTools(url('single'), [known(behind)]);
    await awaitTools(url('merged'), [known(behind), 'other__other_tool']);
    const owned = stack.move();
    const logs = () => [running.logs(), served?.logs()].join('\n');
    return { url, logs, [Symbol.asyncDispose]: () => owned.disposeAsync() };
  } finally {
    await stack.disposeAsync();
  }
}
