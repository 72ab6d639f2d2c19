import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import { pino } from 'pino';
import { Connection } from '../../../src/upstream/rpc/connection.ts';
import { ProcessGuard } from '../../../src/upstream/stdio/process-guard.ts';
import { stdioTransport } from '../../../src/upstream/stdio/stdio.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { UNBOUNDED } from '../../support/receiving.ts';
import { Stdio, until } from '../../support/stdio.ts';

/** Runs a shell script with the id of each call in `$id`, and messages of at most 1000 bytes. */
async function connect(t: TestContext, script: string): Promise<Connection<undefined>> {
  const read = String.raw`next() { read -r line; id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/'); }`;
  const log = pino({ level: 'silent' });
  const parts = { upstream: 'files', messageBytes: 1_000, receiving: UNBOUNDED, log, guard: new ProcessGuard(log) };
  const args = ['-c', `large=$(printf '%03000d' 0); ${read}; ${script}`];
  const start = stdioTransport({ kind: 'stdio', command: '/bin/sh', args, env: {}, cwd: undefined }, parts);
  const events = { onServerRequest: () => undefined, onNotification: () => undefined, onClose: () => undefined };
  const connection = await Connection.open<undefined>('files', start, events, new AbortController().signal, {
    audience: '',
  });
  t.after(() => connection.close());
  return connection;
}

const CALL = { timeoutMs: PATIENCE_MS, maxMs: PATIENCE_MS, progress: false, context: undefined };

for (const [what, request] of [
  ['the id first', '{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"a":"\'$large\'"}}'],
  ['the id last', '{"method":"sampling/createMessage","params":{"a":"\'$large\'"},"jsonrpc":"2.0","id":"q"}'],
] as const) {
  test(`a request of the upstream beyond the limit gets an error: ${what}`, { timeout: 120_000 }, async (t) => {
    const answer = `echo '{"jsonrpc":"2.0","id":'$id',"result":{"got":'"$answer"'}}'`;
    const connection = await connect(t, `next; echo '${request}'; read -r answer; ${answer}; read -r line`);
    const { result } = Object(await connection.call('tools/call', undefined, CALL).answer);
    const got = JSON.parse(result).got;
    assert.deepEqual([got.id, got.error.code], ['q', -32600]);
  });
}

test('a call whose answer is beyond the limit is over for its upstream', { timeout: 120_000 }, async (t) => {
  const large = String.raw`echo '{"jsonrpc":"2.0","id":'$id',"result":{"got":"'$large'"}}'`;
  const connection = await connect(t, `next; ${large}; read -r line`);
  const sender = { senderKey: 'ann' };
  const failed = { code: 'too-large' };
  await assert.rejects(connection.call('tools/call', undefined, { ...CALL, sender }).answer, failed);
  assert.equal(connection.hasAbandoned('question'), false);
});

// N-27
test('an answer that exceeds a bound fails its request and is counted', { timeout: 120_000 }, async () => {
  const deep = `${'['.repeat(LIMITS.jsonDepth + 1)}${']'.repeat(LIMITS.jsonDepth + 1)}`;
  const script = `read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"a":${deep}}}'; read -r line; :`;
  const limits: LimitName[] = [];
  await using stdio = await Stdio.start('/bin/sh', ['-c', script], { onLimit: (limit) => limits.push(limit) });
  assert.equal(stdio.send('ping'), 1);
  await until(() => stdio.failed.has(1), 'the request has failed');
  assert.equal(stdio.failed.get(1)?.code, 'upstream-protocol');
  assert.deepEqual(limits, ['jsonDepth']);
});
