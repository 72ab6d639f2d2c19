import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as z from 'zod';
import { Child } from './child.ts';
import { marker } from './leftovers.ts';
import { PATIENCE_MS } from './patience.ts';
import { MAIN } from './program.ts';

type Members = Readonly<Record<string, unknown>>;

/** A config file as a user writes it. Ports and the state directory are chosen by the test unless they are given. */
export interface GatewayFile extends Members {
  readonly mcpServers?: Readonly<Record<string, Members>>;
  readonly gateway?: Members;
}

interface GatewayOptions {
  /** Arguments after `run --config FILE`. */
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Folder with `config.json` and `state/`. `stop` does not remove it, so that a test can start a gateway twice. */
  readonly dir?: string;
  /** Longest time until the gateway listens. */
  readonly timeoutMs?: number;
  /** A command that starts the command after it, such as in a network namespace. */
  readonly via?: readonly string[];
  /** The path of another `main.ts`, such as that of an older version. */
  readonly program?: string | undefined;
}

const LISTENING = z.object({ msg: z.literal('listening'), url: z.url(), operatorUrl: z.url().optional() });
type Listening = z.infer<typeof LISTENING>;

function parseLine(line: string): Listening | undefined {
  try {
    return LISTENING.safeParse(JSON.parse(line)).data;
  } catch {
    // Node's own messages are plain text.
    return undefined;
  }
}

/** Returns the folder of Node's compile cache, so that all servers of a test run share compiled code. */
function compiledCode(): Members {
  const { NODE_COMPILE_CACHE } = process.env;
  return NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE };
}

/** Settings by which no answer depends on the speed of the machine. SDKs wait 60 s for an answer, such as a first list. */
export const PATIENT = { lists: { wait: '50s' }, overload: { loopDelay: false } };

/** Adds ports, the state directory, patience, and the mark that identifies leftover processes. */
export function complete(file: GatewayFile, dir: string): GatewayFile {
  const mcpServers = Object.entries(file.mcpServers ?? {}).map(([id, server]): [string, Members] => {
    if (!('command' in server)) return [id, server];
    const env = z.record(z.string(), z.unknown()).parse(server['env'] ?? {});
    return [id, { ...server, env: { ...marker(), ...compiledCode(), ...env } }];
  });
  const places = { listen: '127.0.0.1:0', operator: '127.0.0.1:0', stateDir: join(dir, 'state') };
  const ours = { ...places, ...PATIENT };
  return { ...file, mcpServers: Object.fromEntries(mcpServers), gateway: { ...ours, ...file.gateway } };
}

/** A gateway as a user runs it: its own process with a config file, on ports that the system chose. */
export class RunningGateway implements AsyncDisposable {
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  readonly pid: number;
  readonly configFile: string;
  readonly dir: string;
  readonly #child: Child;
  readonly #operatorUrl: string | undefined;
  readonly #keepDir: boolean;
  #killed = false;
  #stopped: Promise<void> | undefined;

  constructor(child: Child, listening: Listening, dir: string, configFile: string, keepDir: boolean) {
    this.#child = child;
    this.pid = child.pid;
    this.url = new URL(listening.url).origin;
    this.#operatorUrl = listening.operatorUrl === undefined ? undefined : new URL(listening.operatorUrl).origin;
    this.dir = dir;
    this.configFile = configFile;
    this.#keepDir = keepDir;
  }

  /** `http://127.0.0.1:<port>` of the operator's listener. */
  get operatorUrl(): string {
    if (this.#operatorUrl === undefined) throw new Error('this gateway has no operator port');
    return this.#operatorUrl;
  }

  /** Returns the URL of `/mcp`, or of `/mcp/<name>` for an upstream or profile. */
  endpoint(name?: string): string {
    return `${this.url}/mcp${name === undefined ? '' : `/${name}`}`;
  }

  /** Replaces the config file, as an editor does. */
  async configure(file: GatewayFile): Promise<void> {
    await writeFile(this.configFile, JSON.stringify(complete(file, this.dir), undefined, 2));
  }

  logs(): string {
    return this.#child.logs();
  }

  /** Resolves with the first value that `find` returns for a line of the log. @throws {Error} after `timeoutMs`. */
  waitForLog<T>(find: (line: string) => T | undefined, timeoutMs = PATIENCE_MS): Promise<T> {
    return this.#child.waitForLine(find, timeoutMs);
  }

  get ended(): Child['ended'] {
    return this.#child.ended;
  }

  get isRunning(): boolean {
    return this.#child.running;
  }

  /** Stops the process without ending it. */
  pause(): void {
    this.#child.kill('SIGSTOP');
  }

  resume(): void {
    this.#child.kill('SIGCONT');
  }

  kill(signal: NodeJS.Signals): void {
    this.#killed = true;
    this.#child.kill(signal);
  }

  /** @throws {Error} with the log, if the gateway had died by itself, or does not end on SIGTERM. */
  stop(patienceMs = PATIENCE_MS): Promise<void> {
    this.#stopped ??= this.#stop(patienceMs);
    return this.#stopped;
  }

  async #stop(patienceMs: number): Promise<void> {
    const died = !this.#child.running && !this.#killed;
    const ending = await this.#child.stop(patienceMs);
    if (!this.#keepDir) await rm(this.dir, { recursive: true, force: true });
    if (died) throw new Error(`the gateway died (${ending?.signal ?? ending?.code}); it said:\n${this.logs()}`);
    if (ending === undefined) {
      throw new Error(`the gateway did not end within ${patienceMs} ms of SIGTERM; it said:\n${this.logs()}`);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** @throws {Error} with the log, if the gateway does not listen in time. */
export async function startGateway(file: GatewayFile, options: GatewayOptions = {}): Promise<RunningGateway> {
  const dir = options.dir ?? (await mkdtemp(join(tmpdir(), 'linkspan-test-')));
  const configFile = join(dir, 'config.json');
  await writeFile(configFile, JSON.stringify(complete(file, dir), undefined, 2));
  const [command = process.execPath, ...args] = [
    ...(options.via ?? []),
    process.execPath,
    options.program ?? MAIN,
    'run',
    '--config',
    configFile,
    ...(options.args ?? []),
  ];
  const child = await Child.start(command, args, options.env === undefined ? {} : { env: options.env });
  try {
    const listening = await child.waitForLine(parseLine, options.timeoutMs ?? PATIENCE_MS);
    return new RunningGateway(child, listening, dir, configFile, options.dir !== undefined);
  } catch (error) {
    await child.stop();
    if (options.dir === undefined) await rm(dir, { recursive: true, force: true });
    throw error;
  }
}
