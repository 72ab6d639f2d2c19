/** Tests a decision point beside the whole program: with workers, real clients of both eras, a reload and the command line. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { initialize, post, rpc } from '../downstream/client.ts';
import { runCli } from '../support/cli.ts';
import { connect, SDKS, textOf } from '../support/either-sdk.ts';
import { type GatewayFile, type RunningGateway, startGateway } from '../support/gateway.ts';
import { legacyUpstream, modernUpstream } from '../support/http-upstream.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { DENY, replyWith, startDecisionPoint, type TestDecisionPoint } from '../support/test-decision-point.ts';
import { waitUntil } from '../support/wait-until.ts';
import { askEachWorker, metricOf } from '../support/workers.ts';

const OPTIONS = { timeout: 180_000 };
const CLI_MS = 60_000;
const TOOLS = [{ name: 'get', inputSchema: { type: 'object' } }];
const CONTENT = { content: [{ type: 'text', text: 'done' }] };

function accessWith({ config }: TestDecisionPoint) {
  const { url, headers } = config;
  return {
    roles: { all: { upstreams: ['*'] } },
    grants: [{ roles: ['all'], anyone: true }],
    external: { url, headers, timeout: '5s' },
  };
}

async function upstreams() {
  const old = await legacyUpstream({ tools: TOOLS, answers: { 'tools/call': () => CONTENT } });
  const fresh = await modernUpstream({
    tools: TOOLS,
    answers: { 'tools/call': () => ({ resultType: 'complete', ...CONTENT }) },
  });
  return {
    mcpServers: { old: { url: old.url, isolation: 'principal' }, new: { url: fresh.url } },
    [Symbol.asyncDispose]: async () => void (await Promise.all([old, fresh].map((one) => one[Symbol.asyncDispose]()))),
  };
}

async function explained({ configFile, dir }: RunningGateway, ...more: readonly string[]): Promise<unknown> {
  const args = ['explain', 'tool', 'old__get', '--as', '{"sub":"ada"}', '--json', '--config', configFile];
  const { stdout, stderr } = await runCli([...args, ...more], dir, { PATH: process.env['PATH'], HOME: dir }, CLI_MS);
  assert.ok(stdout.startsWith('{'), stderr);
  const { effect, reasons }: { effect: string; reasons: readonly object[] } = JSON.parse(stdout);
  return [effect, reasons.at(-1)];
}

// P-012
test('with workers a request is asked about once, wherever it arrives', OPTIONS, async () => {
  await using point = await startDecisionPoint();
  await using servers = await upstreams();
  const { mcpServers } = servers;
  await using gateway = await startGateway({ mcpServers, gateway: { workers: 2, access: accessWith(point) } });
  const modern = await askEachWorker(gateway, () =>
    modernPost(gateway.endpoint(), 'tools/call', { name: 'old__get', arguments: {} }),
  );
  for (const got of modern) assert.equal(answerOf(got).error, undefined);
  assert.equal(point.asked.length, modern.length);
  const session = (await initialize(gateway.endpoint())) ?? '';
  const before = point.asked.length;
  const legacy = await askEachWorker(gateway, () =>
    post(gateway.endpoint(), rpc(2, 'tools/call', { name: 'old__get', arguments: {} }), session),
  );
  for (const { status } of legacy) assert.equal(status, 200);
  assert.equal(point.asked.length - before, legacy.length);
  const series = /^linkspan_external_decisions_total\{outcome="allowed"/;
  assert.equal(await metricOf(gateway, series), modern.length + legacy.length);
  const answer = { about: 'external', text: 'the external decision allows it' };
  assert.deepEqual(await explained(gateway), ['allow', answer]);
  assert.equal(point.asked.length, before + legacy.length + 1);
  assert.equal(point.asked.at(-1)?.subject.id, 'ada');
});

// P-012
test('the line of a denied request says who has denied it', OPTIONS, async () => {
  await using point = await startDecisionPoint();
  point.reply = DENY;
  await using servers = await upstreams();
  const access = accessWith(point);
  const roles = { all: { ...access.roles.all, deny: [{ upstreams: ['new'] }] } };
  const gateway = { accessLog: 'errors', access: { ...access, roles } };
  await using running = await startGateway({ mcpServers: servers.mcpServers, gateway });
  const lines: unknown[] = [];
  for (const name of ['old__get', 'new__get', 'none__get']) {
    const { error } = answerOf(await modernPost(running.endpoint(), 'tools/call', { name, arguments: {} }));
    assert.equal(error?.message, `Unknown tool: ${name}`);
    const line = await running.waitForLog((one) => (one.includes(`Unknown tool: ${name}`) ? one : undefined));
    lines.push(Object(JSON.parse(line)).denied);
  }
  assert.deepEqual(lines, ['the external decision denies it', 'rule "all deny 1" denies it', undefined]);
});

for (const sdk of SDKS) {
  // P-012
  test(`a client (${sdk}) gets decisions at once after a start and a reload`, OPTIONS, async () => {
    await using point = await startDecisionPoint();
    await using servers = await upstreams();
    const file: GatewayFile = { mcpServers: servers.mcpServers, gateway: { access: accessWith(point) } };
    await using gateway = await startGateway(file);
    await using client = await connect(sdk, gateway.endpoint());
    const call = () => client.call('new__get');
    assert.equal(textOf(await call()), 'done');
    point.reply = DENY;
    await assert.rejects(call(), /Unknown tool/);
    point.reply = replyWith(503, '');
    await assert.rejects(call(), /Access cannot be decided now/);
    const offline = { about: 'external', text: 'the external decision is not asked offline' };
    assert.deepEqual(await explained(gateway, '--offline'), ['allow', offline]);
    const failed = { about: 'external', text: 'there is no external decision: it answered with HTTP 503' };
    assert.deepEqual(await explained(gateway), ['deny', failed]);
    const { external: _external, ...rules } = accessWith(point);
    await gateway.configure({ ...file, gateway: { access: rules } });
    await waitUntil(() =>
      call().then(
        () => true,
        () => false,
      ),
    );
    const asked = point.asked.length;
    await gateway.configure(file);
    await waitUntil(async () => {
      await call().catch(() => undefined);
      return point.asked.length > asked;
    });
    assert.match(gateway.logs(), /no external decision about a request/);
    assert.doesNotMatch(gateway.logs(), /point-secret|secret of the point/);
  });
}
