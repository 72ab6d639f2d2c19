import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { ADMIN_PATH } from '../../src/operator/admin/routes.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { debianProgram } from '../support/programs.ts';
import { Prometheus } from '../support/prometheus.ts';
import { connectSdk1, type Sdk1 } from '../support/sdk-client.ts';

const SERVER = fileURLToPath(new URL('../fixtures/servers/misroutes-stdio.ts', import.meta.url));
const DASHBOARD = new URL('../../deploy/grafana/dashboards/linkspan.json', import.meta.url);
const QUERY = z.object({ expr: z.string() });
const FILE = z.object({
  panels: z.array(z.object({ targets: z.array(QUERY).default([]) })),
  annotations: z.object({ list: z.array(QUERY.partial()) }),
});

const PROGRAM = await debianProgram('prometheus', 'prometheus', 'usr/bin/prometheus');
const options = { timeout: 300_000, ...('missing' in PROGRAM ? { skip: PROGRAM.missing } : {}) };
const CALL = z.object({ content: z.tuple([z.object({ text: z.string() })]) });

/** Returns the queries of the panels and annotations of the dashboard, with its variables replaced. */
function dashboardQueries(): string[] {
  const { panels, annotations } = FILE.parse(JSON.parse(readFileSync(DASHBOARD, 'utf8')));
  const exprs = [...panels.flatMap(({ targets }) => targets), ...annotations.list].map(({ expr }) => expr ?? '');
  return exprs
    .filter((expr) => expr !== '')
    .map((expr) => expr.replaceAll('$__rate_interval', '1m').replaceAll(/\$(?:job|instance|upstream)\b/g, '.*'));
}

/** Calls a tool. Resolves with its text; undefined if the call failed. */
async function call({ client }: Sdk1, name: string): Promise<string | undefined> {
  const result = await client.callTool({ name }).catch(() => undefined);
  return CALL.safeParse(result).data?.content[0].text;
}

const HEADERS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };

/** Makes what each counter of the dashboard counts happen once more. */
async function misbehave(gateway: RunningGateway, session: Sdk1): Promise<void> {
  // A tool that fails; after the second call in a minute, a call that is refused.
  await call(session, 'own__fail');
  // A message of a connection for all clients, which names none of them.
  await call(session, 'shared__pid');
  // A wrong key.
  await fetch(`${gateway.operatorUrl}${ADMIN_PATH}/status`, { headers: { authorization: 'Bearer wrong' } });
  // A message that is nested too deep.
  const deep = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":${'['.repeat(100)}${']'.repeat(100)}}}`;
  await fetch(gateway.endpoint(), { method: 'POST', headers: HEADERS, body: deep });
  // A body beyond the half of bodyTotal that one principal may use.
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping', params: { a: 'x'.repeat(900_000) } });
  await fetch(gateway.endpoint(), { method: 'POST', headers: HEADERS, body }).catch(() => undefined);
  // A reload.
  process.kill(gateway.pid, 'SIGHUP');
  // A process that is lost under its session.
  const pid = await call(session, 'own__pid');
  if (pid !== undefined) process.kill(Number(pid), 'SIGKILL');
}

test('every query of the dashboard returns data of a gateway with every trouble', options, async () => {
  assert.ok('path' in PROGRAM);
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-dashboard-'));
  try {
    const server = { command: process.execPath, args: [SERVER], era: 'legacy' };
    await using gateway = await startGateway(
      {
        mcpServers: { own: server, shared: { ...server, isolation: 'shared' } },
        gateway: {
          limits: { bodyTotal: '1MiB' },
          repeats: { limit: 2, window: '1m', exceptTools: ['*__pid'] },
        },
      },
      { args: ['--warm'] },
    );
    const target = new URL(gateway.operatorUrl).host;
    await using scraper = await Prometheus.start(PROGRAM.path, join(dir, 'prometheus'), [target]);
    await using session = await connectSdk1(gateway.endpoint());
    const queries = dashboardQueries();
    assert.ok(queries.length >= 50, `${queries.length} queries were found in the dashboard`);

    let empty = queries;
    await scraper
      .until(async () => {
        await misbehave(gateway, session);
        const answers = await Promise.all(empty.map(async (query) => (await scraper.query(query)).length));
        empty = empty.filter((_query, i) => answers[i] === 0);
        return empty.length === 0;
      }, 240_000)
      .catch((thrown: unknown) => {
        assert.fail(`these queries return no data:\n${empty.join('\n')}\n${String(thrown)}`);
      });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
