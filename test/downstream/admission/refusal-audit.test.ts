import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { RefusalAudit } from '../../../src/downstream/admission/refusal-audit.ts';
import { GatewayError } from '../../../src/errors.ts';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import { openTestAudit, recordsIn } from '../../support/audit.ts';
import { modernUpstream } from '../../support/http-upstream.ts';
import { openGateway } from '../../support/open-gateway.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { getEvents, post, rpc, send } from '../client.ts';

test('limit auditedRefusalsPerSecond: further refusals are counted in one record', { timeout: 120_000 }, async () => {
  await using audit = await openTestAudit();
  const reached: LimitName[] = [];
  const refusals = new RefusalAudit(audit.trail, (limit) => reached.push(limit));
  const error = new GatewayError('unauthorized');
  const more = 7;
  for (let n = 0; n < LIMITS.auditedRefusalsPerSecond + more; n++) refusals.record({ error, view: '' }, 1_000);
  // The next second has room again.
  refusals.record({ error, view: 'files', address: '192.0.2.1' }, 2_000);
  await waitUntil(async () => (await recordsIn(audit.path)).some(({ suppressed }) => suppressed === more));
  const records = (await audit.records()).filter(({ suppressed }) => suppressed === undefined);
  assert.equal(records.length, LIMITS.auditedRefusalsPerSecond + 1);
  const { kind, endpoint, decision, status, address, executed } = records.at(-1) ?? assert.fail();
  assert.deepEqual(
    [kind, endpoint, decision, status, address, executed],
    ['refused', '/mcp/files', 'refused', 401, '192.0.2.1', 'no'],
  );
  assert.deepEqual(reached, ['auditedRefusalsPerSecond']);
});

test('the end of the audit log has the number of refusals without a record', async () => {
  await using audit = await openTestAudit();
  const refusals = new RefusalAudit(audit.trail, () => undefined);
  const error = new GatewayError('unauthorized');
  refusals.flush();
  for (let n = 0; n < LIMITS.auditedRefusalsPerSecond + 3; n++) refusals.record({ error }, 1_000);
  refusals.flush();
  refusals.flush();
  const records = await audit.records();
  assert.deepEqual([records.length, records.at(-1)?.['suppressed']], [LIMITS.auditedRefusalsPerSecond + 1, 3]);
});

// SEC-44
test('unknown sessions, unknown streams and broken messages have a record', { timeout: 120_000 }, async () => {
  await using upstream = await modernUpstream({});
  await using gateway = await openGateway({ up: { url: upstream.url } }, { audit: { file: 'audit.log' } });
  const { url } = gateway;
  const events = await getEvents(new URL('/sse', url).href, undefined);
  await events.until(({ seen }) => seen.length > 0);
  const messages = new URL(events.seen[0]?.data ?? '', url).href;
  const unknown = { accept: 'text/event-stream', 'mcp-session-id': 'unknown' };
  const statuses = [
    await post(url, rpc(1, 'ping'), 'unknown'),
    await send(url, { headers: unknown }),
    await send(url, { method: 'DELETE', headers: unknown }),
    await post(new URL('/messages?sessionId=unknown', url).href, rpc(1, 'ping')),
    await post(messages, '{"jsonrpc"'),
  ].map(({ status }) => status);
  assert.deepEqual(statuses, [404, 404, 404, 404, 400]);
  events.close();
  await gateway.stop();
  const refused = (await recordsIn(join(dirname(gateway.file), 'audit.log'))).filter(({ kind }) => kind === 'refused');
  assert.deepEqual(
    refused.map(({ error, label }) => [error, label]),
    ['session-unknown', 'session-unknown', 'session-unknown', 'session-unknown', 'parse-error'].map((error) => [
      error,
      'local',
    ]),
  );
});
