import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { RawObject } from '../../../src/json/json.ts';
import { Connection } from '../../../src/upstream/rpc/connection.ts';
import { ProcessGuard } from '../../../src/upstream/stdio/process-guard.ts';
import { stdioTransport } from '../../../src/upstream/stdio/stdio.ts';
import { marker } from '../../support/leftovers.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { UNBOUNDED } from '../../support/receiving.ts';

/** The server's program: writes a flood of messages, then its answer, and exits if configured. */
const SERVER = `
process.stdin.once('data', (chunk) => {
  const { id, params } = JSON.parse(chunk);
  const { text } = params;
  const last = JSON.stringify({ jsonrpc: '2.0', id, result: {} });
  process.stdout.write((text + '\\n').repeat(params.count) + last + '\\n', () => params.exits && process.exit());
});
`;

const SAID = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}';
const UNKNOWN = '{"jsonrpc":"2.0","id":123456789,"result":{}}';
const STRAY_PROGRESS =
  '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":123456789,"progress":1}}';

for (const { what, text, exits } of [
  { what: 'notifications', text: SAID, exits: false },
  { what: 'notifications', text: SAID, exits: true },
  { what: 'answers to unknown requests', text: UNKNOWN, exits: false },
  { what: 'progress of no request', text: STRAY_PROGRESS, exits: false },
  { what: 'empty lines', text: '', exits: false },
]) {
  // N-29
  test(
    `limit notificationsPerSecond: a stdio flood of ${what} is paused, exits: ${exits}`,
    { timeout: 120_000 },
    async () => {
      const log = pino({ level: 'silent' });
      await using guard = new ProcessGuard(log);
      let pauses = 0;
      let received = 0;
      const start = stdioTransport(
        { kind: 'stdio', command: process.execPath, args: ['-e', SERVER], env: marker(), cwd: undefined },
        { upstream: 'up', messageBytes: 4_194_304, receiving: UNBOUNDED, log, guard, onLimit: () => pauses++ },
      );
      const events = { onNotification: () => received++, onServerRequest: () => undefined, onClose: () => undefined };
      const connection = await Connection.open('up', start, events, new AbortController().signal, { audience: '' });
      const limits = { timeoutMs: PATIENCE_MS, maxMs: PATIENCE_MS, progress: false, context: undefined } as const;
      const count = 5_000;
      const answering = connection.call('tools/call', RawObject.of({ text, count, exits }), limits).answer;
      const answer = await answering;
      assert.ok(!(answer instanceof Error) && answer.kind === 'result');
      assert.equal(received, text === SAID ? count : 0);
      assert.ok(exits || pauses > 0);
      await connection.close();
    },
  );
}
