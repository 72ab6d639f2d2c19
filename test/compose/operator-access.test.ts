import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { OperatorAccess } from '../../src/compose/operator-access.ts';
import { loadConfig } from '../../src/config/load.ts';
import { readOperatorFile } from '../../src/store/disk/operator-file.ts';
import { stopTime } from '../support/stopped-time.ts';
import { waitUntil } from '../support/wait-until.ts';

interface Opened {
  readonly stateDir: string;
  readonly lines: string[];
  /** Returns the access of another start with this state directory. */
  readonly start: () => OperatorAccess;
}

async function openIn(t: TestContext, folder: string): Promise<Opened> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-operator-access-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const stateDir = join(dir, folder);
  const file = join(dir, 'config.json');
  await writeFile(file, JSON.stringify({ mcpServers: {}, gateway: { stateDir } }));
  const { config } = await loadConfig(file, { env: { HOME: dir } });
  const lines: string[] = [];
  const log = pino({}, { write: (line: string) => void lines.push(line) });
  return {
    stateDir,
    lines,
    start: () => new OperatorAccess(config, { startedAtMs: Date.now(), ownsState: true, log }),
  };
}

test('the file for commands is written as soon as its directory can be', async (t) => {
  const time = stopTime(t);
  const { stateDir, lines, start } = await openIn(t, 'place/state');
  const place = join(stateDir, '..');
  await writeFile(place, 'no directory');
  const access = start();
  await access.announce('http://127.0.0.1:1');
  for (let n = 0; n < 3; n++) time.pass(10_000);
  await rm(place);
  await waitUntil(async () => {
    time.pass(10_000);
    return (await readOperatorFile(stateDir))?.url === 'http://127.0.0.1:1';
  });
  assert.equal(lines.filter((line) => line.includes('cannot find this gateway')).length, 1);
  await access.withdraw();
  time.pass(20_000);
  assert.equal(await readOperatorFile(stateDir), undefined);
});

test('commands find a replica after another one with its directory has stopped', async (t) => {
  const time = stopTime(t);
  const { stateDir, start } = await openIn(t, 'state');
  const [first, second] = [start(), start()];
  await first.announce('http://127.0.0.1:1');
  await second.announce('http://127.0.0.1:2');
  time.pass(10_000);
  assert.equal((await readOperatorFile(stateDir))?.url, 'http://127.0.0.1:2');
  await second.withdraw();
  await waitUntil(async () => {
    time.pass(10_000);
    return (await readOperatorFile(stateDir))?.url === 'http://127.0.0.1:1';
  });
  await first.withdraw();
  assert.equal(await readOperatorFile(stateDir), undefined);
});
