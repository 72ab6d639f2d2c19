import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { RawObject } from '../../../src/json/json.ts';
import { Connection } from '../../../src/upstream/rpc/connection.ts';
import { httpTransport } from '../../../src/upstream/http/http.ts';
import { modernHttpTransport } from '../../../src/upstream/http/http-modern.ts';
import { WireOpeners } from '../../../src/upstream/http/http-wire.ts';
import { event, result, serve, stream, TIMEOUTS } from '../../fixtures/servers/http-harness.ts';

const COUNT = 5_000;
const SAID = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}';

for (const [era, transport] of [
  ['legacy', httpTransport],
  ['modern', modernHttpTransport],
] as const) {
  test(
    `N-29 limit notificationsPerSecond: a flood over HTTP is paused, not lost, ${era}`,
    { timeout: 30_000 },
    async () => {
      await using server = await serve((request, response) => {
        if (request.rpc !== 'tools/call') response.writeHead(202).end();
        else stream(response, event(SAID).repeat(COUNT), event(result(request.id)));
      });
      const target = { kind: 'http', url: server.url, headers: {} } as const;
      const timeouts = { ...TIMEOUTS, callMs: 20_000, maxMs: 20_000 };
      const wire = new WireOpeners().open(target, timeouts);
      let pauses = 0;
      let heard = 0;
      const start = transport(target, {
        upstream: 'up',
        timeouts,
        messageBytes: 4_194_304,
        log: pino({ level: 'silent' }),
        wire,
        userAgent: 'linkspan/test',
        onLimit: () => pauses++,
      });
      const events = { onNotification: () => heard++, onServerRequest: () => undefined, onClose: () => undefined };
      const connection = await Connection.open('up', start, events, new AbortController().signal, { audience: '' });
      const limits = { timeoutMs: 20_000, maxMs: 20_000, progress: false, context: undefined } as const;
      const answer = await connection.call('tools/call', RawObject.of({ name: 'x' }), limits).answer;
      assert.ok(answer.kind === 'result');
      assert.equal(heard, COUNT);
      assert.ok(pauses > 0);
      await connection.close();
      await wire.destroy();
    },
  );
}
