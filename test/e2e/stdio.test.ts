import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { rpc } from '../downstream/client.ts';
import { connectOver, type Human, type Sdk, SDKS, textOf } from '../support/either-sdk.ts';
import { PATIENT } from '../support/gateway.ts';
import { hostileStdio, Ledgers } from '../support/hostile.ts';
import { leftovers, marker } from '../support/leftovers.ts';
import { referenceServers } from '../support/reference-servers.ts';
import { childrenOf, isGone, until } from '../support/stdio.ts';
import { MAIN } from '../support/program.ts';

const TIMEOUT = { timeout: 120_000 };
let dir = '';
/** Config files: all four servers behind the gateway of one client, and smaller ones for the other tests. */
let whole = '';
let small = '';

async function configure(name: string, mcpServers: object): Promise<string> {
  const file = join(dir, `${name}.json`);
  const gateway = { stateDir: join(dir, name), logLevel: 'warn', lists: PATIENT.lists };
  await writeFile(file, JSON.stringify({ mcpServers, gateway }));
  return file;
}

before(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), 'linkspan-stdio-')));
  whole = await configure('whole', referenceServers(dir));
  const ledgers = new Ledgers(dir);
  const two = { one: hostileStdio('calm', ledgers), other: hostileStdio('calm', ledgers) };
  small = await configure('small', two);
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** Arguments of the gateway as a program that a client starts. */
const args = (file: string) => [MAIN, 'stdio', '--config', file];

function connect(sdk: Sdk, human?: Human) {
  const env = { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '', ...marker() };
  return connectOver(sdk, { kind: 'stdio', command: process.execPath, args: args(whole), env }, human);
}

/** Starts the program without an SDK, so that each line on stdout can be checked. */
function start() {
  const child = spawn(process.execPath, args(small), {
    stdio: ['pipe', 'pipe', 'ignore'],
    env: { ...process.env, ...marker() },
  });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (output += chunk));
  const send = (text: string) => child.stdin.write(`${text}\n`);
  const hello = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'raw', version: '1' } };
  send(rpc(0, 'initialize', hello));
  send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }));
  const answers = (): { id?: unknown; error?: { code: number } }[] =>
    output
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line));
  const answered = (id: string | number) =>
    until(() => answers().some((answer) => answer.id === id), `${id} is answered`);
  return { child, send, answers, answered, pid: child.pid ?? 0 };
}

suite('the gateway as a program', { concurrency: 1 }, () => {
  for (const sdk of SDKS) {
    test(`${sdk}: a client that can only start programs gets all four servers completely`, TIMEOUT, async () => {
      const human = { sampling: (prompt: string) => `heard ${prompt}`, elicitation: () => ({ name: 'Ada' }) };
      await using client = await connect(sdk, human);
      const owners = (await client.tools()).map(({ name }) => name.split('__')[0]);
      assert.deepEqual([...new Set(owners)], ['everything', 'filesystem', 'memory', 'sequential-thinking']);
      assert.equal(textOf(await client.call('everything__echo', { message: 'x' })), 'Echo: x');
      assert.match(textOf(await client.call('filesystem__list_allowed_directories')), new RegExp(dir));
      const uri = 'everything+demo://resource/static/document/features.md';
      assert.match((await client.read(uri))[0]?.text ?? '', /Features/);

      const progressed: number[] = [];
      const onprogress = ({ progress }: { progress: number }) => progressed.push(progress);
      await client.call('everything__trigger-long-running-operation', { duration: 0.8, steps: 4 }, { onprogress });
      // The SDK loses messages that arrive in one piece with the answer.
      assert.equal(progressed[0], 1);
      const sampled = await client.call('everything__trigger-sampling-request', { prompt: 'why' });
      assert.match(textOf(sampled), /heard .*why/);
      assert.match(textOf(await client.call('everything__trigger-elicitation-request')), /Name: Ada/);

      await client.setLevel('info');
      await client.subscribe(uri);
      await client.call('everything__toggle-subscriber-updates');
      const updated = await client.waitForNotification('notifications/resources/updated');
      assert.deepEqual(updated.params, { uri });
      await client.waitForNotification('notifications/message');
    });
  }

  // T-040
  test('nothing but messages is on stdout, and broken lines are answered', TIMEOUT, async () => {
    const { child, send, answers, answered } = start();
    send('not json');
    send(rpc('x', 'no/such/method'));
    send(rpc(1, 'tools/call', { name: 'one__fine', arguments: {} }));
    await answered(1);
    const codes = new Map(answers().map(({ id, error }) => [id, error?.code]));
    assert.equal(codes.get(null), -32700);
    assert.equal(codes.get('x'), -32601);
    child.stdin.end();
    await once(child, 'exit');
  });

  for (const [how, end] of [
    ['closes its end', ({ child }: ReturnType<typeof start>) => child.stdin.end()],
    ['sends SIGTERM', ({ child }: ReturnType<typeof start>) => child.kill('SIGTERM')],
  ] as const) {
    // R10
    test(`when the client ${how}, the gateway and every server end`, TIMEOUT, async () => {
      const gateway = start();
      const tools = ['one__fine', 'other__fine'];
      for (const tool of tools) gateway.send(rpc(tool, 'tools/call', { name: tool, arguments: {} }));
      for (const tool of tools) await gateway.answered(tool);
      const children = childrenOf(gateway.pid);
      assert.ok(children.length >= tools.length, String(children));
      end(gateway);
      const [code] = await once(gateway.child, 'exit');
      assert.equal(code, 0);
      await until(() => children.every(isGone), 'every server ended');
      assert.deepEqual(
        (await leftovers()).filter(({ pid }) => children.includes(pid)),
        [],
      );
    });
  }

  // R10
  test('SIGTERM ends the gateway of a client that reads nothing more', TIMEOUT, async (t) => {
    const { child, send, answered, pid } = start();
    t.after(() => child.kill('SIGKILL'));
    send(rpc(1, 'tools/call', { name: 'one__fine', arguments: {} }));
    await answered(1);
    const children = childrenOf(pid);
    child.stdout.pause();
    child.stdin.on('error', () => undefined);
    // More answers than all buffers on the way take.
    for (let n = 0; n < 4_000; n++) send(rpc(`${n} ${'i'.repeat(1_000)}`, 'ping'));
    await until(() => child.stdout.readableLength >= child.stdout.readableHighWaterMark, 'the client reads nothing');
    child.kill('SIGTERM');
    const [code] = await once(child, 'exit');
    assert.equal(code, 0);
    await until(() => children.every(isGone), 'every server ended');
  });

  // R11 REL-26
  test('nothing survives when the gateway is killed', TIMEOUT, async () => {
    const gateway = start();
    gateway.send(rpc(1, 'tools/call', { name: 'other__fine', arguments: {} }));
    await gateway.answered(1);
    const children = childrenOf(gateway.pid);
    gateway.child.kill('SIGKILL');
    await until(() => children.every(isGone), 'every server ended');
  });
});
