import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import { GatewayError } from '../../../src/errors.ts';
import { RequestRecorder } from '../../../src/gateway/records/request-recorder.ts';
import { JsonTextError, RawObject } from '../../../src/json/json.ts';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import type { Answer } from '../../../src/protocol/jsonrpc.ts';
import { RequestLog } from '../../../src/telemetry/request-log.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const DONE: Answer = { kind: 'result', result: '{"content":[]}' };
const CALL = { name: 'up__echo', arguments: { secret: 'word' } };

/** A recorder with the lines of its logs, and requests of a session. */
function recording(t: TestContext) {
  const at = new GatewayParts({ up: { memory: memoryUpstream({}) } });
  t.after(() => at[Symbol.asyncDispose]());
  let texts = '';
  const destination = { write: (text: string) => void (texts += text) };
  const limits: LimitName[] = [];
  const requestLog = new RequestLog(destination, () => ',"time":1');
  const recorder = new RequestRecorder({
    metrics: at.metrics,
    log: pino({ level: 'info' }, destination),
    requestLog,
    tracing: undefined,
    audit: undefined,
    transport: 'tcp',
    clientOf: () => ({ name: 'app', version: '1' }),
    onLimit: (limit) => limits.push(limit),
  });
  const { session } = at.session();
  const { caller } = session;
  return {
    at,
    recorder,
    session,
    limits,
    /** The lines of both logs since the last look. */
    lines: (): Record<string, unknown>[] => {
      recorder.flush();
      const lines = texts.split('\n').filter((line) => line !== '');
      texts = '';
      return lines.map((line) => JSON.parse(line));
    },
    /** Records a request and its end: an answer, or the failure that it is answered with. */
    record: (end: Answer | Error, upstreamAnswer?: Answer, isAnsweredElsewhere = false): Answer => {
      const { exchange } = at.exchange(session, session, { params: CALL });
      const { request } = exchange;
      exchange.upstream = 'up';
      if (upstreamAnswer !== undefined) exchange.outcome = { answer: upstreamAnswer, error: 'rpc_error' };
      const span = recorder.begin(request, undefined);
      const answer = end instanceof Error ? recorder.fail(end, { request, principal: caller.principal }) : end;
      recorder.end({ caller, holder: session, request, exchange, answer, durationMs: 5, span, isAnsweredElsewhere });
      return answer;
    },
    /** The types of errors that the metrics count, in the order of their names. */
    counted: async () => {
      const labels = /^mcp_server_operation_duration_seconds_count\{.*error_type="([^"]*)".*\} \d+$/gm;
      return [...(await at.metrics.text()).matchAll(labels)].map(([, type = '']) => type).toSorted();
    },
  };
}

test('a request is in flight from its arrival to its answer', async (t) => {
  const { at, recorder, session } = recording(t);
  const { request } = at.exchange(session, session).exchange;
  const inFlight = async () => [
    recorder.inFlightCount,
    Number(/^linkspan_requests_in_flight (\d+)$/m.exec(await at.metrics.text())?.[1]),
  ];
  recorder.begin(request, undefined);
  recorder.beginUntraced();
  assert.deepEqual(await inFlight(), [2, 2]);
  const end = { holder: undefined, request, exchange: undefined, answer: DONE, durationMs: 1, span: undefined };
  recorder.end({ caller: session.caller, ...end });
  const { principal, view } = session.caller;
  recorder.end({ caller: { principal, view }, ...end });
  assert.deepEqual(await inFlight(), [0, 0]);
});

test('a request that another process has passed on is in flight, and counted there', async (t) => {
  const { at, recorder, session, counted } = recording(t);
  const { request } = at.exchange(session, session, { method: 'subscriptions/listen' }).exchange;
  const inFlight = async () => [
    recorder.inFlightCount,
    recorder.ownInFlightCount,
    Number(/^linkspan_requests_in_flight (\d+)$/m.exec(await at.metrics.text())?.[1]),
  ];
  recorder.begin(request, undefined);
  recorder.begin(request, undefined, true);
  assert.deepEqual(await inFlight(), [2, 1, 1]);
  const end = { holder: undefined, request, exchange: undefined, answer: DONE, durationMs: 1, span: undefined };
  recorder.end({ caller: session.caller, ...end, isPassedOn: true });
  assert.deepEqual([await inFlight(), await counted()], [[1, 1, 1], []]);
  recorder.end({ caller: session.caller, ...end });
  assert.deepEqual([await inFlight(), await counted()], [[0, 0, 0], ['']]);
});

test('each message is one line, without arguments and results', (t) => {
  const { recorder, session, record, lines } = recording(t);
  record(DONE);
  recorder.message(session.caller, session, { kind: 'result', id: '7', result: '{"word":1}' });
  recorder.message(session.caller, undefined, {
    kind: 'notification',
    method: 'notifications/x',
    params: RawObject.EMPTY,
  });
  const written = lines();
  assert.doesNotMatch(JSON.stringify(written), /word|secret|content/);
  const [request, response, notification] = written;
  const { upstream, method, principal, client, error } = request ?? {};
  assert.deepEqual([upstream, method, principal, client, error], ['up', 'tools/call', 'local', 'app', undefined]);
  assert.deepEqual([written.length, response?.['requestId'], notification?.['method']], [3, 7, 'notifications/x']);
});

test('an error counts as that of the upstream, or by the code of the gateway', async (t) => {
  const { record, counted, lines } = recording(t);
  // The data of an upstream may look like that of the gateway. Its answer is translated, and thus another object.
  const error = { code: -32_000, message: 'no', data: { code: 'unauthorized' } };
  record({ kind: 'error', error: { ...error } }, { kind: 'error', error });
  record(new GatewayError('upstream-protocol'), { kind: 'error', error });
  record(new GatewayError('unknown-tool'));
  record({ kind: 'result', result: '{"isError":true}' });
  const expected = ['rpc_error', 'upstream-protocol', 'unknown-tool', 'tool_error'];
  assert.deepEqual(await counted(), expected.toSorted());
  assert.deepEqual(
    lines().map((line) => line['error']),
    expected,
  );
});

test('a refusal has its reason in the line of its request, a fault has one of its own', (t) => {
  const { record, lines } = recording(t);
  record(new GatewayError('unknown-tool', { message: 'up__none' }));
  const [line, ...others] = lines();
  assert.deepEqual([line?.['error'], line?.['reason'], others], ['unknown-tool', 'Unknown tool: up__none', []]);
  const answer = record(new Error('a bug in our code'));
  assert.doesNotMatch(JSON.stringify(answer), /bug/);
  const [fault, request] = lines();
  assert.match(JSON.stringify(fault), /a bug in our code/);
  assert.deepEqual([request?.['error'], request?.['reason']], ['internal-error', undefined]);
  const late = record(new JsonTextError('not JSON', 3));
  assert.ok(late.kind === 'error' && late.error.code === -31_012, 'an upstream’s text that turns out malformed late');
});

test('refusals beyond the limit have no line, calls that may have run do', async (t) => {
  const { at, record, lines, limits } = recording(t);
  const most = LIMITS.refusalLinesPerSecond;
  for (let n = 0; n < most + 2; n++) record(new GatewayError('overloaded'));
  record(new GatewayError('upstream-timeout'));
  const written = lines();
  const errors = written.map((line) => line['error']);
  assert.equal(errors.filter((one) => one === 'overloaded').length, most);
  assert.ok(errors.includes('upstream-timeout'));
  assert.deepEqual(
    [written.find((line) => line['suppressed'] !== undefined)?.['suppressed'], limits],
    [2, ['refusalLinesPerSecond']],
  );
  assert.match(await at.metrics.text(), new RegExp(`linkspan_shed_total\\{reason="overloaded"\\} ${most + 2}\n`));
});

test('a request that another process has answered is counted and logged there only', async (t) => {
  const { record, recorder, lines, counted } = recording(t);
  record(DONE, undefined, true);
  assert.deepEqual([recorder.inFlightCount, lines(), await counted()], [0, [], []]);
});
