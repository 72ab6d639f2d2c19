import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Child } from '../support/child.ts';
import { goPrograms } from './install/go.ts';
import { pythonWith } from './install/python.ts';
import { typescriptConformanceServer } from './install/typescript.ts';
import { freePort } from '../support/free-port.ts';
import { listening } from './port.ts';

/** The conformance servers of the SDKs, unmodified. Each supports both eras. */
export const DUAL_SERVERS = ['python', 'typescript', 'go'] as const;
export type DualServer = (typeof DUAL_SERVERS)[number];

const LOOPBACK = fileURLToPath(new URL('../conformance/loopback.ts', import.meta.url));
const VENDOR = fileURLToPath(new URL('vendor/', import.meta.url));
const START_MS = 20_000;

interface Started {
  readonly child: Child;
  readonly path: string;
}

async function startPython(port: number): Promise<Started> {
  const args = ['-B', '-m', 'mcp_everything_server', '--port', String(port), '--log-level', 'WARNING'];
  return { child: await Child.start(await pythonWith('mcp2'), args, { cwd: VENDOR }), path: '/mcp' };
}

async function startTypescript(port: number): Promise<Started> {
  const args = ['--import', LOOPBACK, await typescriptConformanceServer()];
  return { child: await Child.start(process.execPath, args, { env: { PORT: String(port) } }), path: '/mcp' };
}

/** Starts the server with its default, which is without sessions. */
async function startGo(port: number): Promise<Started> {
  const program = join(await goPrograms(), 'everything-server');
  return { child: await Child.start(program, [`-http=127.0.0.1:${port}`]), path: '/' };
}

const STARTS: Readonly<Record<DualServer, (port: number) => Promise<Started>>> = {
  python: startPython,
  typescript: startTypescript,
  go: startGo,
};

/** A conformance server that is listening. */
export interface RunningDual extends AsyncDisposable {
  readonly url: string;
  logs(): string;
}

/** @throws {Error} with its log, if it does not listen in time. */
export async function startDual(server: DualServer): Promise<RunningDual> {
  const port = await freePort();
  const { child, path } = await STARTS[server](port);
  try {
    await listening(child, port, START_MS);
  } catch (thrown) {
    await child.stop();
    throw thrown;
  }
  return {
    url: `http://127.0.0.1:${port}${path}`,
    logs: () => child.logs(),
    [Symbol.asyncDispose]: () => child[Symbol.asyncDispose](),
  };
}
