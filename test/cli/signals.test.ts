import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, watch } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { BOTH, initialize, messagesOf, rpc } from '../downstream/client.ts';
import { Child } from '../support/child.ts';
import { startGateway } from '../support/gateway.ts';
import { legacyUpstream } from '../support/http-upstream.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { startOnTerminal } from '../support/terminal.ts';
import { waitUntil } from '../support/wait-until.ts';
import { MAIN } from '../support/program.ts';

const BOUNDED = { timeout: 120_000 };

/** Resolves with the first line of a growing file that matches. */
async function lineOf(file: string, pattern: RegExp): Promise<string> {
  const found = (): string | undefined =>
    existsSync(file)
      ? readFileSync(file, 'utf8')
          .split('\n')
          .find((line) => pattern.test(line))
      : undefined;
  const changed = Promise.withResolvers<string>();
  const look = (): void => {
    const line = found();
    if (line !== undefined) changed.resolve(line);
  };
  const watcher = watch(join(file, '..'), look);
  const timer = setTimeout(() => changed.reject(new Error(`no ${String(pattern)} in ${file}`)), PATIENCE_MS);
  look();
  try {
    return await changed.promise;
  } finally {
    watcher.close();
    clearTimeout(timer);
  }
}

interface OnTerminal extends AsyncDisposable {
  readonly terminal: Child;
  readonly log: string;
  readonly pid: number;
  readonly url: string;
}

/** A gateway on a terminal of its own, with its log in a file. */
async function onTerminal(): Promise<OnTerminal> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-signal-'));
  const [config, log] = [join(dir, 'config.json'), join(dir, 'log')];
  const gateway = { listen: '127.0.0.1:0', operator: false, stateDir: join(dir, 'state') };
  await writeFile(config, JSON.stringify({ mcpServers: {}, gateway }));
  const command = `exec '${process.execPath}' '${MAIN}' run --config '${config}' 2> '${log}'`;
  const terminal = await startOnTerminal(command, join(dir, 'typescript'));
  const { pid, url } = JSON.parse(await lineOf(log, /"msg":"listening"/));
  return {
    terminal,
    log,
    pid,
    url,
    [Symbol.asyncDispose]: async () => {
      await terminal.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

// N-08
test('a gateway whose terminal is closed stops in order', BOUNDED, async () => {
  await using gateway = await onTerminal();
  gateway.terminal.kill('SIGKILL');
  await gateway.terminal.ended;
  assert.match(await lineOf(gateway.log, /"msg":"stopping"/), /"signal":"SIGHUP"/);
  assert.match(await lineOf(gateway.log, /"msg":"stopped"/), /"code":0/);
});

/** Resolves when the process has ended. It is no child of this one, so its end is no event here. */
async function ended(pid: number): Promise<void> {
  await waitUntil(() => {
    try {
      return !process.kill(pid, 0);
    } catch {
      return true;
    }
  });
}

for (const { format, up } of [
  { format: 'json', up: /"msg":"listening"/ },
  { format: 'pretty', up: /Ctrl-C stops it/ },
]) {
  // N-08
  test(`a gateway that logs to its terminal (${format}) ends when it is closed`, BOUNDED, async () => {
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-signal-'));
    try {
      const [config, typescript] = [join(dir, 'config.json'), join(dir, 'typescript')];
      const gateway = { listen: '127.0.0.1:0', operator: false, stateDir: join(dir, 'state') };
      await writeFile(config, JSON.stringify({ mcpServers: {}, gateway }));
      const run = `'${process.execPath}' '${MAIN}' run --config '${config}' --log-format ${format}`;
      const command = `echo "pid $$"; exec ${run}`;
      await using terminal = await startOnTerminal(command, typescript);
      const pid = Number(/pid (\d+)/.exec(await lineOf(typescript, /pid \d+/))?.[1]);
      await lineOf(typescript, up);
      terminal.kill('SIGKILL');
      await ended(pid);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });
}

// N-08
test('SIGHUP does not stop a gateway whose terminal is open', BOUNDED, async () => {
  await using gateway = await onTerminal();
  process.kill(gateway.pid, 'SIGHUP');
  await lineOf(gateway.log, /"cause":"signal".*config is unchanged/);
  assert.equal((await fetch(gateway.url)).status, 405);
  process.kill(gateway.pid, 'SIGTERM');
  assert.match(await lineOf(gateway.log, /"msg":"stopping"/), /"signal":"SIGTERM"/);
  await gateway.terminal.ended;
});

// N-08
test('SIGHUP does not stop a gateway that was started without a terminal', BOUNDED, async () => {
  await using gateway = await startGateway({ mcpServers: {} });
  process.kill(gateway.pid, 'SIGHUP');
  await gateway.waitForLog((line) => (/"cause":"signal".*config is unchanged/.test(line) ? true : undefined));
  assert.equal((await fetch(`${gateway.operatorUrl}/livez`)).status, 200);
});

/** Returns the environment of a process that sends itself signals as soon as it loads the code of `run`. */
function sendingEarly(...signals: NodeJS.Signals[]): { readonly NODE_OPTIONS: string } {
  const code = `import { registerHooks } from 'node:module';
let isSent = false;
registerHooks({
  resolve(specifier, context, next) {
    if (!isSent && /[/]run[.-]/.test(specifier)) {
      isSent = true;
      for (const signal of ${JSON.stringify(signals)}) process.kill(process.pid, signal);
    }
    return next(specifier, context);
  },
});
`;
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}` };
}

// N-08
test('SIGHUP and SIGUSR2 while the code is loaded have their effect later', BOUNDED, async () => {
  await using gateway = await startGateway({ mcpServers: {} }, { env: sendingEarly('SIGHUP', 'SIGUSR2') });
  await gateway.waitForLog((line) => (line.includes('sealing keys rotated') ? true : undefined));
  await gateway.waitForLog((line) => (/"cause":"signal".*config is unchanged/.test(line) ? true : undefined));
});

const AS_FIRST = ['--user', '--map-root-user', '--pid', '--fork', '--kill-child'];
const cannotBeFirst = spawnSync('unshare', [...AS_FIRST, 'true']).status !== 0 && 'no PID namespaces here';

// N-08
test('SIGTERM while the code is loaded stops PID 1', { ...BOUNDED, skip: cannotBeFirst }, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-signal-'));
  const config = join(dir, 'config.json');
  const settings = { listen: '127.0.0.1:0', operator: false, stateDir: join(dir, 'state') };
  await writeFile(config, JSON.stringify({ mcpServers: {}, gateway: settings }));
  const command = [...AS_FIRST, process.execPath, MAIN, 'run', '--config', config];
  const gateway = await Child.start('unshare', command, { env: sendingEarly('SIGTERM') });
  try {
    await gateway.waitForLine((line) => (line.includes('"msg":"stopped"') ? true : undefined));
    assert.equal((await gateway.ended).code, 0);
  } finally {
    await gateway.stop();
    await rm(dir, { recursive: true, force: true });
  }
});

/** More than the buffers of a connection take. */
const LARGE = 8 << 20;

// N-08
test('SIGTERM lets a client read the rest of an answer', BOUNDED, async () => {
  const tools = [{ name: 'large', inputSchema: { type: 'object' } }];
  const content = [{ type: 'text', text: 'x'.repeat(LARGE) }];
  await using upstream = await legacyUpstream({ tools, answers: { 'tools/call': () => ({ content }) } });
  await using gateway = await startGateway({ mcpServers: { up: { url: upstream.url } } });
  const session = await initialize(gateway.endpoint('up'));
  const answer = await fetch(gateway.endpoint('up'), {
    method: 'POST',
    body: rpc(1, 'tools/call', { name: 'large', arguments: {} }),
    headers: { 'content-type': 'application/json', accept: BOTH, 'mcp-session-id': session },
  });
  gateway.kill('SIGTERM');
  await gateway.waitForLog((line) => (line.includes('"msg":"stopping"') ? true : undefined));
  // The client reads on only after a gateway without anything to do would have ended.
  await sleep(1_000); // subject
  const headers = Object.fromEntries(answer.headers);
  const [message] = messagesOf({ status: answer.status, headers, text: await answer.text() }).slice(-1);
  assert.ok(JSON.stringify(message).length > LARGE);
  await gateway.ended;
});
