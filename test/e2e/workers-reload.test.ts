import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, messagesOf, post, rpc, send } from '../downstream/client.ts';
import { freePort } from '../support/free-port.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { modernResult } from '../support/modern-wire.ts';
import { waitUntil } from '../support/wait-until.ts';
import { limitFiles } from '../support/limit-files.ts';
import { askEachWorker, workersOf } from '../support/workers.ts';

const OPTIONS = { timeout: 180_000 };
const PROGRAM = join(import.meta.dirname, '../fixtures/servers/pid-stdio.ts');
const OPERATOR = 'a-key-of-op-0123456789abcdef';
const asOperator = { authorization: `Bearer ${OPERATOR}`, 'content-type': 'application/json' };
const FEW_FILES = 4;

/** A config whose upstream is another one for each argument. */
function fileOf(argument: string, own: object = {}) {
  const gateway = {
    workers: 2,
    reload: { watch: false },
    operatorKeys: [{ name: 'op', sha256: hash('sha256', OPERATOR) }],
    ...own,
  };
  return { mcpServers: { pid: { command: process.execPath, args: [PROGRAM, argument] } }, gateway };
}

/** Returns the process that serves a session. */
async function processOf(gateway: RunningGateway, session: string, headers = {}): Promise<number> {
  const call = rpc(1, 'tools/call', { name: 'pid__pid', arguments: {} });
  const text = JSON.stringify(messagesOf(await post(gateway.endpoint(), call, session, headers)));
  const pid = Number(/"text":"(\d+) /.exec(text)?.[1]);
  assert.ok(pid > 0, text);
  return pid;
}

async function reload({ operatorUrl }: RunningGateway): Promise<string> {
  const answer = await send(`${operatorUrl}/admin/v1/config/reload`, { method: 'POST', headers: asOperator });
  return answer.text;
}

test('a reload that one worker cannot prepare changes nothing at the others', OPTIONS, async () => {
  await using gateway = await startGateway(fileOf('one'));
  const sessions = await Promise.all(Array.from({ length: 8 }, () => initialize(gateway.endpoint())));
  const processes = () => Promise.all(sessions.map((session) => processOf(gateway, session)));
  const before = await processes();
  const keyFile = join(gateway.dir, 'keys.json');
  await writeFile(keyFile, JSON.stringify({ version: 1, keys: [] }), { mode: 0o600 });
  await gateway.configure(fileOf('two', { auth: { keyFile } }));
  for (const worker of await workersOf(gateway)) {
    const files = limitFiles(worker, String(FEW_FILES));
    const answer = await reload(gateway);
    limitFiles(worker, files);
    assert.match(answer, /"rejected"/);
    assert.match(answer, /EMFILE/);
    assert.deepEqual(await processes(), before, 'no upstream was replaced, not even for a moment');
  }
  await gateway.configure(fileOf('two'));
  assert.match(await reload(gateway), /"applied"/);
  const after = await processes();
  assert.ok(after.every((pid) => !before.includes(pid)));
});

test('workers that are killed during reloads have the last config', OPTIONS, async () => {
  await using gateway = await startGateway(fileOf('one'));
  const seen = new Set<number>();
  for (const name of ['two', 'three', 'four']) {
    const file = fileOf('one');
    const mcpServers = { ...file.mcpServers, [name]: file.mcpServers.pid };
    await gateway.configure({ ...file, mcpServers });
    const [worker = 0] = (await workersOf(gateway)).filter((pid) => !seen.has(pid));
    seen.add(worker);
    const reloaded = reload(gateway);
    process.kill(worker, 'SIGKILL');
    assert.match(await reloaded, /"applied"/);
    await waitUntil(async () => (await (await fetch(`${gateway.operatorUrl}/readyz`)).text()).includes('"reasons":[]'));
    for (let n = 0; n < 12; n++) {
      const session = await initialize(gateway.endpoint());
      const tools = JSON.stringify(messagesOf(await post(gateway.endpoint(), rpc(1, 'tools/list'), session)));
      assert.match(tools, new RegExp(`"${name}__pid"`));
    }
  }
});

test('the status has the address to which a reload has moved the workers', OPTIONS, async () => {
  await using gateway = await startGateway(fileOf('one'));
  const endpoint = async (): Promise<string> => {
    const answer = await send(`${gateway.operatorUrl}/admin/v1/status`, { headers: asOperator });
    return JSON.parse(answer.text).endpoint;
  };
  assert.equal(await endpoint(), gateway.endpoint());
  const listen = `127.0.0.1:${await freePort()}`;
  await gateway.configure(fileOf('one', { listen }));
  assert.match(await reload(gateway), /"applied"/);
  assert.equal(await endpoint(), `http://${listen}/mcp`);
});

test('a reload with a larger limit of bodies holds for requests that cross workers', OPTIONS, async () => {
  await using gateway = await startGateway(fileOf('one', { limits: { body: '64KiB' } }));
  await gateway.configure(fileOf('one', { limits: { body: '4MiB' } }));
  assert.match(await reload(gateway), /"applied"/);
  const call = { name: 'pid__pid', arguments: { text: 'x'.repeat(2_500_000) } };
  const answers = await askEachWorker(gateway, () => modernResult(gateway.endpoint(), 'tools/call', call));
  const pids = answers.map((answer) => /"text":"(\d+) /.exec(JSON.stringify(answer))?.[1]);
  assert.ok(pids.length === 2 && pids[0] !== undefined && pids[0] === pids[1], pids.join());
});
