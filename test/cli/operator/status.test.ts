import assert from 'node:assert/strict';
import { test } from 'node:test';
import { upstreamTable } from '../../../src/cli/operator/status.ts';
import { callsAnswer, upstreamAnswer } from '../../../src/operator/admin/answers.ts';

test('the state of an upstream shows its calls that have waited for more than a minute', () => {
  const era = { speaks: 'yes', tools: 1, prompts: 0, resources: 0, listProblems: [] };
  const [files, mail] = ['files', 'mail'].map((id) =>
    upstreamAnswer.parse({
      id,
      title: id,
      transport: 'http',
      state: 'ready',
      since: '2026-11-29T03:00:00.000Z',
      isDisabled: false,
      isRequired: false,
      connections: 1,
      requestsInFlight: 3,
      eras: { legacy: era, modern: era },
      isListed: true,
      isForCallers: false,
      tools: 1,
      filteredTools: 0,
      prompts: 0,
      resources: 0,
      listProblems: [],
      emptyAt: [],
    }),
  );
  assert.ok(files !== undefined && mail !== undefined);
  const call = { state: 'in-flight', method: 'tools/call', session: 's', principal: 'ann' };
  const { calls } = callsAnswer.parse({
    calls: [
      { ...call, state: 'parked', upstream: 'mail', seconds: 900 },
      { ...call, upstream: 'files', seconds: 240 },
      { ...call, upstream: 'files', seconds: 61 },
      { ...call, upstream: 'mail', seconds: 59 },
    ],
    isCut: false,
  });
  assert.equal(
    upstreamTable([files, mail], calls),
    'files  ready  http  1 tool  1 connection\n' +
      '    2 requests under way for longer than a minute, the oldest for 4 min. See: linkspan ls calls\n' +
      'mail   ready  http  1 tool  1 connection\n',
  );
});
