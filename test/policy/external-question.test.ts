import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Item, NO_HINTS } from '../../src/policy/decide.ts';
import { externalQuestion } from '../../src/policy/external-question.ts';
import { LOCAL } from '../../src/policy/principal.ts';
import { keyOf, tokenOf } from './policies.ts';

const NOW = new Date('2026-01-30T09:00:00Z');
const ACCESS = { claims: [{ name: 'teams', path: 'teams', type: 'list' } as const], groupClaims: ['teams'] };
const GET: Item = { kind: 'tool', upstream: 'repo', name: 'get', hints: NO_HINTS };

function questionOf(principal = LOCAL, item = GET, args?: string) {
  const request = { principal, view: '', method: 'x', item, args };
  const question: { subject: object; resource: { properties: object }; context: object } = JSON.parse(
    externalQuestion(ACCESS, request, NOW),
  );
  return question;
}

// P-012
test('a question names its subject by kind, with groups and declared claims', () => {
  const ada = tokenOf('ada', { teams: 'eng', email: 'ada@example.com' });
  const subjects = [keyOf('ci', ['bots']), ada, LOCAL].map((principal) => questionOf(principal).subject);
  assert.deepEqual(subjects, [
    { type: 'key', id: 'ci', properties: { groups: ['bots'], scopes: [], claims: {} } },
    {
      type: 'user',
      id: 'ada',
      properties: {
        issuer: 'https://issuer.test',
        clientId: 'app',
        groups: ['eng'],
        scopes: [],
        claims: { teams: ['eng'] },
      },
    },
    { type: 'anonymous', id: 'local', properties: { groups: [], scopes: [], claims: {} } },
  ]);
});

// P-012
test('a question has the own name of its item, and a URI in both forms', () => {
  const item = (kind: Item['kind'], name: string): Item => ({ kind, upstream: 'repo', name, hints: NO_HINTS });
  const items = [
    item('prompt', 'review'),
    item('resource', 'FILE:///a/../b'),
    item('resource', 'file:///a?x=/../'),
    item('template', 'file:///{name}'),
  ];
  assert.deepEqual(
    items.map((one) => questionOf(LOCAL, one).resource),
    [
      { type: 'prompt', id: 'repo/review', properties: { upstream: 'repo', name: 'review' } },
      {
        type: 'resource',
        id: 'FILE:///a/../b',
        properties: { upstream: 'repo', name: 'FILE:///a/../b', canonicalUri: 'file:/b' },
      },
      { type: 'resource', id: 'file:///a?x=/../', properties: { upstream: 'repo', name: 'file:///a?x=/../' } },
      { type: 'template', id: 'file:///{name}', properties: { upstream: 'repo', name: 'file:///{name}' } },
    ],
  );
});

// P-012
test('a question has the endpoint, the time, and the arguments digit by digit', () => {
  const args = '{"n":12345678901234567890}';
  const text = externalQuestion(ACCESS, { principal: LOCAL, view: 'repo', method: 'x', item: GET, args }, NOW);
  assert.ok(text.includes(`"arguments":${args}`), text);
  assert.ok(text.endsWith('"context":{"endpoint":"/mcp/repo","time":"2026-01-30T09:00:00.000Z"}}'), text);
  assert.deepEqual(questionOf().resource.properties, { upstream: 'repo', name: 'get', hints: NO_HINTS });
});
