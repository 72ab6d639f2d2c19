import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { META } from '../../src/protocol/meta.ts';
import { Ledger } from '../matrix/ledger.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { modernEvents } from '../support/modern-wire.ts';

const TIMEOUT = { timeout: 120_000 };
const UPSTREAM = fileURLToPath(new URL('../matrix/upstream.ts', import.meta.url));
/** Longer than a test may take, so that no call is cancelled by its timeout. */
const PATIENT = { call: '10m', max: '10m' };

suite('a modern client over HTTP, and a server of 2025-11-25 over stdio', { concurrency: 1 }, () => {
  let dir = '';
  let ledger: Ledger;
  let gateway: RunningGateway;
  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'linkspan-bridge-'));
    await mkdir(join(dir, 'up'));
    ledger = new Ledger(join(dir, 'up'));
    const up = {
      command: process.execPath,
      args: [UPSTREAM, '2025-11-25', 'stdio', join(dir, 'up')],
      timeouts: PATIENT,
    };
    gateway = await startGateway({ mcpServers: { up } });
  });
  after(async () => {
    await gateway.stop();
    await rm(dir, { recursive: true, force: true });
  });

  //
  test('a disconnect of the client cancels the call at the server', TIMEOUT, async () => {
    const params = { name: 'up__waits', arguments: { nonce: 'w' } };
    const options = { meta: { progressToken: 'p' } };
    const events = await modernEvents(gateway.endpoint(), 'tools/call', params, options);
    await events.until(({ numbers }) => numbers.length > 0);
    await ledger.wait(['started'], 'w');
    events.close();
    await ledger.wait(['cancelled'], 'w');
  });

  //
  test('a gateway that stops answers open listen requests', TIMEOUT, async () => {
    const uri = 'up+test://note/1';
    const notifications = { resourceSubscriptions: [uri], toolsListChanged: true };
    const options = { id: 'the one' };
    const events = await modernEvents(gateway.endpoint(), 'subscriptions/listen', { notifications }, options);
    await events.until(({ messages }) => messages.length === 1);
    assert.partialDeepStrictEqual(events.messages, [
      { method: 'notifications/subscriptions/acknowledged', params: { notifications } },
    ]);
    await ledger.wait(['subscribed'], 'test://note/1');
    gateway.kill('SIGTERM');
    await events.ended();
    assert.partialDeepStrictEqual(events.messages.at(-1), {
      id: 'the one',
      result: { resultType: 'complete', _meta: { [META.subscriptionId]: 'the one' } },
    });
    await gateway.ended;
    assert.deepEqual(
      ledger.entries.filter(({ kind }) => kind === 'violation'),
      [],
    );
  });
});
