/**
 * Counts the instructions that the main thread of a gateway executes for a request, in user mode. The count hardly depends on
 * other work on the machine, so it shows differences that times on a busy machine cannot show.
 *
 *     node bench/instructions.ts [--only small,list] [--against DIR,DIR] [--warm 40000] [--requests 2000] [--starts 1]
 *     node bench/instructions.ts --of gateway,gateway-redis,gateway-forwarded --only small
 *     node bench/instructions.ts --of gateway,gateway-key,gateway-jwt,gateway-guarded --only small
 *
 * Needs valgrind (`apt-get install valgrind`). It slows the gateway down fifty-fold, so deadlines of 50 ms pass: few connections
 * keep the answers early enough. Of several replicas the sum is counted. System calls are not counted, nor the threads that compile and collect garbage.
 *
 * @see https://valgrind.org/docs/manual/cl-manual.html
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import { Check } from './check.ts';
import { readOrEnd } from './command-line.ts';
import { Conversation } from './conversation.ts';
import { gatewayCommand, type GatewayOptions, OWN_CHECKOUT } from './gateway-program.ts';
import { type Guard, GUARDS } from './guards.ts';
import { named } from './options.ts';
import { Program } from './program.ts';
import { startRedis } from './replicas.ts';
import { type Scenario, SCENARIOS } from './scenarios.ts';

const CONNECTIONS = 2;
const START_MS = 300_000;
const PREFIX = 'bench__';
const LEGACY = '2025-11-25';

const USAGE =
  'node bench/instructions.ts [--only small,list] [--of gateway,gateway-redis] [--against FOLDERS] [--warm 40000] [--requests 2000] [--starts 1]';

const { values: options } = readOrEnd(USAGE, () =>
  parseArgs({
    options: {
      only: { type: 'string', default: 'small,list,stdio,sse,modern' },
      against: { type: 'string', default: '' },
      warm: { type: 'string', default: '40000' },
      requests: { type: 'string', default: '2000' },
      starts: { type: 'string', default: '1' },
      of: { type: 'string', default: 'gateway' },
    },
  }),
);
const requests = Number(options.requests);
const run = promisify(execFile);

function beside(file: string): string {
  return fileURLToPath(new URL(file, import.meta.url));
}

/** Sends requests over some connections, each after the answer to the one before. */
class Load {
  readonly #conversations: readonly Conversation[];
  #left = 0;
  #due = 0;
  #isEnding = false;
  #done: () => void = () => undefined;

  constructor(url: URL, askUrl: URL | undefined, { client, ask }: Scenario, authorization: string | undefined) {
    const check = new Check(ask, PREFIX);
    this.#conversations = Array.from({ length: CONNECTIONS }, (_, index) => {
      return new Conversation({
        url,
        askUrl,
        revision: client,
        ask,
        toolPrefix: PREFIX,
        check,
        index,
        count: CONNECTIONS,
        sessions: 1,
        authorization,
        onRefusal: undefined,
        onAnswer: (conversation) => this.#onAnswer(conversation),
        onFailure: (failure) => {
          if (!this.#isEnding) throw failure;
        },
      });
    });
  }

  async open(): Promise<void> {
    await Promise.all(this.#conversations.map((conversation) => conversation.open()));
  }

  /** Resolves when this many requests are answered. */
  async play(count: number): Promise<void> {
    const { promise, resolve: done } = Promise.withResolvers<void>();
    this.#done = done;
    this.#due = count;
    this.#left = count - this.#conversations.length;
    for (const conversation of this.#conversations) conversation.ask();
    await promise;
  }

  end(): void {
    this.#isEnding = true;
  }

  #onAnswer(conversation: Conversation): void {
    if (--this.#due === 0) this.#done();
    else if (this.#left-- > 0) conversation.ask();
  }
}

/** Returns the configuration's entry for the fixture of a scenario, and starts the fixture if it listens. */
async function serverOf({ upstream, speaks = LEGACY }: Scenario, dir: string, stack: AsyncDisposableStack) {
  if (upstream.kind === 'stdio') {
    return {
      command: process.execPath,
      args: [beside('upstream-stdio.ts'), speaks],
      isolation: upstream.isolation,
    };
  }
  const program = stack.use(
    await Program.start('upstream-http', [process.execPath, beside('upstream-http.ts'), speaks], dir),
  );
  return { url: await program.listening() };
}

/** A gateway under valgrind, which counts its instructions. */
class CountedGateway {
  readonly program: Program;
  readonly url: URL;
  readonly #counts: string;

  private constructor(program: Program, url: URL, counts: string) {
    this.program = program;
    this.url = url;
    this.#counts = counts;
  }

  static async start(name: string, options: Omit<GatewayOptions, 'name'>, stack: AsyncDisposableStack) {
    const command = await gatewayCommand('run', { ...options, name });
    const counts = join(options.dir, `${name}-counts`);
    const valgrind = [
      '--tool=callgrind',
      '--instr-atstart=no',
      '--separate-threads=yes',
      `--callgrind-out-file=${counts}`,
    ];
    const program = stack.use(await Program.start(name, ['valgrind', ...valgrind, ...command], options.dir));
    return new CountedGateway(program, new URL('/mcp', await program.listening(START_MS)), counts);
  }

  async control(...args: readonly string[]): Promise<void> {
    await run('callgrind_control', [...args, String(this.program.pid)]);
  }

  /** Returns the instructions of the main thread since they were set to zero. */
  async total(): Promise<number> {
    await this.control('-d');
    // The first dump, of the first thread.
    const [, total] = /^(?:summary|totals): (\d+)/m.exec(await readFile(`${this.#counts}.1-01`, 'utf8')) ?? [];
    return Number(total);
  }
}

/**
 * The gateways that can be counted: one process, without and with checks of its clients, or two replicas of which the first or the second
 * gets the requests.
 */
const SUBJECTS: readonly { readonly id: string; readonly guard?: Guard }[] = [
  { id: 'gateway' },
  ...GUARDS,
  { id: 'gateway-redis' },
  { id: 'gateway-forwarded' },
];

/** Returns the instructions of a request to gateways that have just been started and warmed up. */
async function count(scenario: Scenario, { id, guard }: (typeof SUBJECTS)[number], checkout: string): Promise<number> {
  await using stack = new AsyncDisposableStack();
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-instructions-'));
  stack.defer(() => rm(dir, { recursive: true, force: true }));
  const servers = { bench: await serverOf(scenario, dir, stack) };
  const gateways: CountedGateway[] = [];
  const guarded = await guard?.(dir, undefined);
  if (guarded?.program !== undefined) stack.use(guarded.program);
  if (id === 'gateway' || guarded !== undefined) {
    const options = {
      checkout,
      dir,
      core: undefined,
      servers,
      ...(guarded === undefined ? {} : { settings: guarded.settings }),
    };
    gateways.push(await CountedGateway.start(id, options, stack));
  } else {
    const redis = await startRedis('redis', dir, undefined);
    stack.use(redis.program);
    const options = { checkout, dir, core: undefined, servers, settings: redis.settings };
    for (const name of ['a', 'b']) gateways.push(await CountedGateway.start(name, options, stack));
  }
  const [owner, other] = gateways;
  if (owner === undefined) throw new Error('no gateway');
  const load = new Load(
    owner.url,
    id === 'gateway-forwarded' ? other?.url : undefined,
    scenario,
    guarded?.authorization,
  );
  stack.defer(() => load.end());
  await load.open();
  await load.play(Number(options.warm));
  const each = (act: (gateway: CountedGateway) => Promise<void>) => Promise.all(gateways.map(act));
  await each((gateway) => gateway.control('-i', 'on'));
  await load.play(Math.ceil(requests / 2));
  await each((gateway) => gateway.control('-z'));
  await load.play(requests);
  const totals = await Promise.all(gateways.map((gateway) => gateway.total()));
  return totals.reduce((sum, total) => sum + total, 0) / requests;
}

const checkouts = [OWN_CHECKOUT, ...options.against.split(',').filter((folder) => folder !== '')].map((folder) =>
  resolve(folder),
);
const subjects = named(SUBJECTS, options.of, 'of');
const counted = checkouts.flatMap((checkout) => subjects.map((subject) => ({ subject, checkout })));
for (const scenario of named(SCENARIOS, options.only, 'only')) {
  const [own, ...others] = await Promise.all(
    counted.map(async ({ subject, checkout }) => {
      const each: number[] = [];
      for (let start = 0; start < Number(options.starts); start++) each.push(await count(scenario, subject, checkout));
      return { name: `${basename(checkout)} ${subject.id}`, each, least: Math.min(...each) };
    }),
  );
  if (own === undefined) break;
  for (const one of [own, ...others]) {
    const ratio = one === own ? '' : `${(one.least / own.least).toFixed(2)} × the first one`;
    const thousands = one.each.map((count) => (count / 1_000).toFixed(1)).join(' ');
    console.log(`${scenario.id.padEnd(16)} ${one.name.padEnd(32)} ${thousands.padStart(8)} k  ${ratio}`);
  }
}
