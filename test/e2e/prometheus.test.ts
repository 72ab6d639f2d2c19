import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { startGateway } from '../support/gateway.ts';
import { debianProgram } from '../support/programs.ts';
import { Prometheus } from '../support/prometheus.ts';
import { connectSdk1 } from '../support/sdk-client.ts';

const SERVER = fileURLToPath(new URL('../fixtures/servers/may-refuse-stdio.ts', import.meta.url));

const PROGRAM = await debianProgram('prometheus', 'prometheus', 'usr/bin/prometheus');
const options = { timeout: 300_000, ...('missing' in PROGRAM ? { skip: PROGRAM.missing } : {}) };
const prometheus = 'path' in PROGRAM ? PROGRAM.path : '';
const WAIT_MS = 90_000;
/** Alerts that a busy machine raises: here they fire after a second instead of minutes. */
const OF_THE_MACHINE: ReadonlySet<string> = new Set(['LinkspanDown', 'LinkspanEventLoopSlow']);

/** Returns the firing alerts that the gateway alone can raise. */
async function firing(scraper: Prometheus): Promise<readonly string[]> {
  return [...(await scraper.firing())].filter((alert) => !OF_THE_MACHINE.has(alert));
}

const authority = (url: string): string => new URL(url).host;
const CALL = z.object({ content: z.tuple([z.object({ text: z.string() })]) });

test('a real Prometheus reads the gateway, and the alerts fire for its failures only', options, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-prometheus-'));
  const flag = join(dir, 'refuse');
  try {
    const file = {
      mcpServers: { files: { command: process.execPath, args: [SERVER, flag], required: true, era: 'legacy' } },
    };
    await using gateway = await startGateway(file, { args: ['--warm'] });
    await using scraper = await Prometheus.start(prometheus, join(dir, 'prometheus'), [authority(gateway.operatorUrl)]);
    const { client } = await connectSdk1(gateway.endpoint());
    const call = async (): Promise<number> =>
      Number(CALL.parse(await client.callTool({ name: 'files__pid' })).content[0].text);
    const pid = await call();

    await scraper.until(async () => {
      await call();
      return ((await scraper.query('count_over_time(up[1m])'))[0]?.value ?? 0) >= 8;
    }, WAIT_MS);
    assert.deepEqual(await firing(scraper), []);
    const calls = 'rate(mcp_server_operation_duration_seconds_count{gen_ai_tool_name="files__pid",error_type=""}[1m])';
    assert.ok(((await scraper.query(calls))[0]?.value ?? 0) > 0);
    assert.deepEqual(
      (await scraper.query('linkspan_upstream_processes')).map(({ metric, value }) => [metric['upstream'], value]),
      [['files', 1]],
    );
    assert.equal((await scraper.query('linkspan_catalog_tools{view="_merged",era="legacy"}'))[0]?.value, 1);

    // A file that cannot be used raises its alert alone, and a good one ends it.
    await writeFile(gateway.configFile, '{"mcpServers": ');
    await scraper.until(async () => (await scraper.firing()).has('LinkspanReloadFailed'), WAIT_MS);
    assert.deepEqual(await firing(scraper), ['LinkspanReloadFailed']);
    await gateway.configure(file);
    await scraper.until(async () => (await firing(scraper)).length === 0, WAIT_MS);
    assert.equal(await call(), pid, 'the upstream is untouched');

    // From here on the server does not start again.
    await writeFile(flag, '');
    process.kill(pid, 'SIGKILL');
    const expected = [
      'LinkspanStateLost files',
      'LinkspanRequiredUpstreamDown files',
      'LinkspanUpstreamFailed files',
      'LinkspanUpstreamRestartLoop files',
      'LinkspanNotReady',
    ];
    await scraper.until(async () => {
      await client.callTool({ name: 'files__pid' }).catch(() => undefined);
      const now = await scraper.firing();
      return expected.every((alert) => now.has(alert));
    }, WAIT_MS);
    const now = await firing(scraper);
    // The list of the upstream is kept, so the merged list is not empty.
    for (const alert of ['LinkspanNoTools', 'LinkspanReloadFailed', 'LinkspanStateNotWritten']) {
      assert.ok(!now.includes(alert), alert);
    }

    // The server starts again.
    await rm(flag);
    await scraper.until(async () => {
      await client.callTool({ name: 'files__pid' }).catch(() => undefined);
      const now = await scraper.firing();
      return !now.has('LinkspanRequiredUpstreamDown files') && !now.has('LinkspanNotReady');
    }, WAIT_MS);
    await client.close();
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('a gateway without offers and one that is gone raise their alerts', options, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-prometheus-'));
  const flag = join(dir, 'refuse');
  try {
    await writeFile(flag, '');
    const file = { mcpServers: { files: { command: process.execPath, args: [SERVER, flag], start: 'eager' } } };
    await using gateway = await startGateway(file);
    const unused = { mcpServers: { files: { command: process.execPath, args: [SERVER, flag] } } };
    await using idle = await startGateway(unused);
    const targets = [gateway, idle].map(({ operatorUrl }) => authority(operatorUrl));
    await using scraper = await Prometheus.start(prometheus, join(dir, 'prometheus'), targets);

    await scraper.until(async () => (await scraper.firing()).has('LinkspanNoTools'), WAIT_MS);
    const alerts = await scraper.query('ALERTS{alertname="LinkspanNoTools"}');
    assert.ok(alerts.every(({ metric }) => metric['instance'] === targets[0]));

    await idle.stop();
    const down = `ALERTS{alertname="LinkspanDown",alertstate="firing",instance="${targets[1]}"}`;
    await scraper.until(async () => (await scraper.query(down)).length > 0, WAIT_MS);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
