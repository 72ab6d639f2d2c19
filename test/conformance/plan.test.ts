import assert from 'node:assert/strict';
import { test } from 'node:test';
import { choose, clientPlans, serverPlans } from './plan.ts';

/** Returns `<transport> <endpoint> <behind> <selection>[ again]` for each row of the table. */
function lines(options: Parameters<typeof choose>[0]): string[] {
  return serverPlans(choose(options)).flatMap(({ behind, transport, cells }) =>
    cells.map(({ endpoint, selection, times }) =>
      [transport, endpoint, behind, selection, ...(times > 1 ? ['again'] : [])].join(' '),
    ),
  );
}

function clients(options: Parameters<typeof choose>[0]): string[] {
  return clientPlans(choose(options)).map(
    ({ front, revision, scenarios }) => `${front} ${revision} ${scenarios.length}`,
  );
}

test('every revision runs with every era, transport and endpoint', () => {
  const all = lines({});
  for (const transport of ['http', 'stdio']) {
    for (const endpoint of ['single', 'merged']) {
      for (const era of ['legacy', 'modern', 'both']) {
        for (const revision of ['2025-06-18', '2025-11-25', '2026-07-28']) {
          const line = `${transport} ${endpoint} ${era} ${revision}`;
          assert.equal(all.filter((one) => one === line).length, 1, line);
        }
      }
      assert.ok(all.includes(`${transport} ${endpoint} tasks tasks`));
    }
  }
});

test('clients of both eras are in front of scripted servers of both eras', () => {
  assert.deepEqual(clients({}), [
    '2025-11-25 2025-11-25 7',
    '2026-07-28 2025-11-25 7',
    '2025-11-25 2026-07-28 8',
    '2026-07-28 2026-07-28 8',
  ]);
});

test('directly, a fixture gets only clients and scenarios of its own revisions', () => {
  const dated = lines({ direct: true }).filter((line) => !line.endsWith('again'));
  assert.deepEqual(dated, [
    'http single legacy 2025-06-18',
    'http single legacy 2025-11-25',
    'http single legacy 0.1.16',
    'http single modern 2026-07-28',
    'http single both 2025-06-18',
    'http single both 2025-11-25',
    'http single both 2026-07-28',
    'http single tasks tasks',
  ]);
  assert.deepEqual(clients({ direct: true }), ['2025-11-25 2025-11-25 5', '2026-07-28 2026-07-28 8']);
});

const narrowed = [
  { options: { era: 'modern' }, servers: 2 * 2 * (3 + 1), clients: 0 },
  { options: { leg: 'tasks' }, servers: 4, clients: 0 },
  { options: { leg: 'tasks', upstream: 'stdio' }, servers: 2, clients: 0 },
  { options: { leg: 'client' }, servers: 0, clients: 4 },
  { options: { leg: 'server', revision: '2025-06-18' }, servers: 2 * 2 * 3, clients: 0 },
  { options: { revision: '2026-07-28', leg: 'server' }, servers: 2 * 2 * (3 + 2), clients: 0 },
  { options: { only: 'sse-retry', leg: 'client' }, servers: 0, clients: 2 },
] as const;

for (const { options, servers, clients: fronts } of narrowed) {
  test(`${JSON.stringify(options)} is ${servers} lines of servers and ${fronts} of clients`, () => {
    assert.equal(lines(options).length, servers);
    assert.equal(clients(options).length, fronts);
  });
}

for (const option of ['upstream', 'era', 'revision', 'endpoint', 'leg']) {
  test(`an unknown value of --${option} is refused by name`, () => {
    assert.throws(() => choose({ [option]: 'nonsense' }), new RegExp(`--${option} is one of `));
  });
}
