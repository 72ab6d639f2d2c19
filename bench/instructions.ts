/**
 * Counts the instructions that the main thread of a gateway executes for a request, in user mode. The count hardly depends on
 * other work on the machine, so it shows differences that times on a busy machine cannot show.
 *
 *     node bench/instructions.ts [--only small,list] [--against DIR,DIR] [--warm 40000] [--requests 2000] [--starts 1]
 *
 * Needs valgrind (`apt-get install valgrind`). It slows the gateway down fifty-fold, so deadlines of 50 ms pass: few connections
 * keep the answers early enough. System calls are not counted, nor the threads that compile and collect garbage.
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
import { Conversation } from './conversation.ts';
import { gatewayCommand, OWN_CHECKOUT } from './gateway-program.ts';
import { named } from './options.ts';
import { Program } from './program.ts';
import { type Scenario, SCENARIOS } from './scenarios.ts';

const CONNECTIONS = 2;
const START_MS = 300_000;
const PREFIX = 'bench__';
const LEGACY = '2025-11-25';

const { values: options } = parseArgs({
  options: {
    only: { type: 'string', default: 'small,list,stdio,sse,modern' },
    against: { type: 'string', default: '' },
    warm: { type: 'string', default: '40000' },
    requests: { type: 'string', default: '2000' },
    starts: { type: 'string', default: '1' },
  },
});
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

  constructor(url: URL, { client, ask }: Scenario) {
    const check = new Check(ask, PREFIX);
    this.#conversations = Array.from({ length: CONNECTIONS }, (_, index) => {
      return new Conversation({
        url,
        revision: client,
        ask,
        toolPrefix: PREFIX,
        check,
        index,
        count: CONNECTIONS,
        sessions: 1,
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

/** Returns the instructions of a request to a gateway that has just been started and warmed up. */
async function count(scenario: Scenario, checkout: string): Promise<number> {
  await using stack = new AsyncDisposableStack();
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-instructions-'));
  stack.defer(() => rm(dir, { recursive: true, force: true }));
  const servers = { bench: await serverOf(scenario, dir, stack) };
  const command = await gatewayCommand('run', { name: 'gateway', checkout, dir, core: undefined, servers });
  const counts = join(dir, 'counts');
  const valgrind = [
    '--tool=callgrind',
    '--instr-atstart=no',
    '--separate-threads=yes',
    `--callgrind-out-file=${counts}`,
  ];
  const program = stack.use(await Program.start('gateway', ['valgrind', ...valgrind, ...command], dir));
  const url = new URL('/mcp', await program.listening(START_MS));
  const load = new Load(url, scenario);
  stack.defer(() => load.end());
  await load.open();
  await load.play(Number(options.warm));
  const control = (...args: readonly string[]) => run('callgrind_control', [...args, String(program.pid)]);
  await control('-i', 'on');
  await load.play(Math.ceil(requests / 2));
  await control('-z');
  await load.play(requests);
  await control('-d');
  // The first dump, of the first thread.
  const [, total] = /^(?:summary|totals): (\d+)/m.exec(await readFile(`${counts}.1-01`, 'utf8')) ?? [];
  return Number(total) / requests;
}

const checkouts = [OWN_CHECKOUT, ...options.against.split(',').filter((folder) => folder !== '')].map((folder) =>
  resolve(folder),
);
for (const scenario of named(SCENARIOS, options.only, 'only')) {
  const [own, ...others] = await Promise.all(
    checkouts.map(async (checkout) => {
      const each: number[] = [];
      for (let start = 0; start < Number(options.starts); start++) each.push(await count(scenario, checkout));
      return { checkout, each, least: Math.min(...each) };
    }),
  );
  if (own === undefined) break;
  for (const { checkout, each, least } of [own, ...others]) {
    const ratio = checkout === own.checkout ? '' : `${(own.least / least).toFixed(2)} × less than this checkout`;
    const thousands = each.map((one) => (one / 1_000).toFixed(1)).join(' ');
    console.log(`${scenario.id.padEnd(16)} ${basename(checkout).padEnd(16)} ${thousands.padStart(8)} k  ${ratio}`);
  }
}
