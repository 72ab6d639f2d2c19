import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { longestBlockMs, type Sample, parseSamples } from './metrics-text.ts';
import { onEveryCore, pinned, Program } from './program.ts';

/** The checkout that this bench belongs to. */
export const OWN_CHECKOUT = fileURLToPath(new URL('..', import.meta.url));

export interface GatewayOptions {
  /** The name of its folder and its log. */
  readonly name: string;
  /** The folder of the checkout whose gateway is started. */
  readonly checkout: string;
  /** The folder of its configuration, state and log. */
  readonly dir: string;
  /** `every` allows it and its children all cores. */
  readonly core: number | 'every' | undefined;
  /** The entries of the configuration, by name. */
  readonly servers: Readonly<Record<string, object>>;
  /** The section `gateway` of the configuration, without addresses and state directory. */
  readonly settings?: object;
  readonly nodeArgs?: readonly string[];
  /** The program in the checkout: `src/main.ts`, unless given. */
  readonly program?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** A command that starts the one after it in its own process, such as one that enters a cgroup. */
  readonly wrapper?: readonly string[];
}

/** Returns the setting that makes a checkout's gateway log each request. Checkouts that do not know the setting always do so. */
async function requestLogging(checkout: string): Promise<object> {
  const schema = await readFile(join(checkout, 'config/linkspan.schema.json'), 'utf8');
  return schema.includes('"accessLog"') ? { accessLog: 'all' } : {};
}

/** Writes the configuration of a gateway, and returns the path of the file. */
export async function writeConfig(
  options: Pick<GatewayOptions, 'name' | 'checkout' | 'dir' | 'servers' | 'settings'>,
): Promise<string> {
  const { name, checkout, servers, settings } = options;
  const dir = join(options.dir, name);
  await mkdir(dir, { recursive: true });
  const config = {
    mcpServers: servers,
    gateway: {
      listen: '127.0.0.1:0',
      operator: '127.0.0.1:0',
      stateDir: join(dir, 'state'),
      logLevel: 'info',
      ...(await requestLogging(checkout)),
      ...settings,
    },
  };
  const file = join(dir, 'config.json');
  await writeFile(file, JSON.stringify(config));
  return file;
}

/** Returns the command that runs `verb` of a checkout's gateway; writes its configuration. */
export async function gatewayCommand(verb: 'run' | 'stdio', options: GatewayOptions): Promise<readonly string[]> {
  const { checkout, nodeArgs = [], core, program = 'src/main.ts', wrapper = [] } = options;
  const file = await writeConfig(options);
  const command = [...wrapper, process.execPath, ...nodeArgs, join(checkout, program), verb, '--config', file];
  return core === 'every' ? onEveryCore(command) : pinned(core, command);
}

/** Returns the built program of a checkout, relative to it, as the package has it; builds it if it is not there. @throws {Error} */
export function builtProgram(checkout: string): string {
  const program = 'dist/main.js';
  if (existsSync(join(checkout, program))) return program;
  const { status, stderr } = spawnSync(process.execPath, ['scripts/build.ts'], { cwd: checkout, encoding: 'utf8' });
  if (status !== 0) throw new Error(`the program cannot be built: ${stderr}`);
  return program;
}

/** A running gateway, with its endpoint and its operator's port. */
export class Gateway implements AsyncDisposable {
  readonly program: Program;
  /** The endpoint that merges all upstreams. */
  readonly url: string;
  /** The time from the start of the process until it listens. */
  readonly listeningMs: number;
  readonly #operator: string;

  private constructor(program: Program, url: string, operator: string, listeningMs: number) {
    this.program = program;
    this.url = url;
    this.#operator = operator;
    this.listeningMs = listeningMs;
  }

  /** Starts a gateway and waits until it listens. @throws {Error} with the end of its log. */
  static async start(options: GatewayOptions): Promise<Gateway> {
    const command = await gatewayCommand('run', options);
    const beganMs = performance.now();
    const program = await Program.start(options.name, command, options.dir, options.env);
    try {
      const url = await program.listening();
      const listeningMs = performance.now() - beganMs;
      const operator = /"operatorUrl":"([^"]+)"/.exec(await program.log())?.[1];
      if (operator === undefined) throw await program.failure('names no URL for its operator');
      return new Gateway(program, `${new URL(url).origin}/mcp`, operator, listeningMs);
    } catch (thrown) {
      await program[Symbol.asyncDispose]();
      throw thrown;
    }
  }

  get pid(): number {
    return this.program.pid;
  }

  /** Returns all metrics. @throws {Error} if the operator's port does not answer within `timeoutMs`. */
  async metrics(timeoutMs = 60_000): Promise<readonly Sample[]> {
    const response = await fetch(new URL('/metrics', this.#operator), { signal: AbortSignal.timeout(timeoutMs) });
    return parseSamples(await response.text());
  }

  /** Returns the longest block of the event loop since the last reading of the metrics. */
  async longestBlockMs(): Promise<number> {
    return longestBlockMs(await this.metrics());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.program[Symbol.asyncDispose]();
  }
}
