import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { Child } from '../support/child.ts';
import type { Place } from './clients/client.ts';
import { goPrograms } from './install/go.ts';
import { pythonWith } from './install/python.ts';

const file = (name: string) => fileURLToPath(new URL(`servers/${name}`, import.meta.url));

const READY_MS = 45_000;
const READY = z.object({ url: z.url() });

/** A command: the program, and the arguments before the id and the transport. */
type Program = readonly [string, ...string[]];

async function goPeer(): Promise<Program> {
  return [join(await goPrograms(), 'peer')];
}

const python = async (set: 'mcp1' | 'mcp2' | 'fastmcp', name: string): Promise<Program> => [
  await pythonWith(set),
  '-B',
  '-W',
  'ignore',
  file(name),
];

/** The program and transports of each SDK. Go serves HTTP either with sessions (`http-sessions`) or in both eras. */
const PROGRAMS = {
  python1: { program: () => python('mcp1', 'python_mcp1.py'), transports: ['stdio', 'http', 'sse'] },
  python2: { program: () => python('mcp2', 'python_mcp2.py'), transports: ['stdio', 'http', 'sse'] },
  fastmcp4: { program: () => python('fastmcp', 'fastmcp4.py'), transports: ['stdio', 'http', 'sse'] },
  typescript1: {
    program: (): Promise<Program> => Promise.resolve([process.execPath, file('sdk1.ts')]),
    transports: ['stdio', 'http', 'sse'],
  },
  typescript2: {
    program: (): Promise<Program> => Promise.resolve([process.execPath, file('sdk2.ts')]),
    transports: ['stdio', 'http'],
  },
  go: { program: goPeer, transports: ['stdio', 'http', 'http-sessions', 'sse'] },
} as const satisfies Record<
  string,
  { program: () => Promise<Program>; transports: readonly ('stdio' | 'http' | 'http-sessions' | 'sse')[] }
>;

type ServerName = keyof typeof PROGRAMS;

/** One server over one transport. Its id is the id of the upstream, and part of its resource URIs. */
export interface ServerCell {
  readonly id: string;
  readonly server: ServerName;
  readonly transport: 'stdio' | 'http' | 'http-sessions' | 'sse';
}

const SERVER_NAMES: readonly ServerName[] = ['python1', 'python2', 'fastmcp4', 'typescript1', 'typescript2', 'go'];

export const SERVER_CELLS: readonly ServerCell[] = SERVER_NAMES.flatMap((server) =>
  PROGRAMS[server].transports.map((transport) => ({ id: `${server}-${transport}`, server, transport })),
);

/** A running server. Over stdio each connection starts a process of its own. */
export interface RunningServer extends AsyncDisposable {
  readonly cell: ServerCell;
  readonly place: Place;
  /** The entry in the config file. */
  readonly config: Readonly<Record<string, unknown>>;
  logs(): string;
}

/** @param lateSeconds how long a server over stdio sleeps before it starts at the gateway. */
export async function startServer(cell: ServerCell, lateSeconds = 0): Promise<RunningServer> {
  const { id, server, transport } = cell;
  const [command, ...words] = await PROGRAMS[server].program();
  const args = [...words, id, transport];
  if (transport === 'stdio') {
    const script = `sleep ${lateSeconds}; exec "$0" "$@"`;
    const late = lateSeconds === 0 ? { command, args } : { command: 'sh', args: ['-c', script, command, ...args] };
    return {
      cell,
      place: { kind: 'stdio', command, args },
      config: late,
      logs: () => '',
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
  }
  const child = await Child.start(command, args);
  try {
    const { url } = await child.waitForLine((line) => READY.safeParse(jsonOf(line)).data, READY_MS);
    const kind = transport === 'sse' ? ('sse' as const) : ('http' as const);
    return {
      cell,
      place: { kind, url },
      config: kind === 'sse' ? { type: 'sse', url } : { url },
      logs: () => child.logs(),
      [Symbol.asyncDispose]: () => child[Symbol.asyncDispose](),
    };
  } catch (thrown) {
    await child.stop();
    throw thrown;
  }
}

function jsonOf(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
