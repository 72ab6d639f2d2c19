import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { runCli } from '../../support/cli.ts';
import { complete } from '../../support/gateway.ts';
import { legacyUpstream } from '../../support/http-upstream.ts';
import { modernResult } from '../../support/modern-wire.ts';
import { openGateway } from '../../support/open-gateway.ts';

const BOUNDED = { timeout: 120_000 };

// P-002
test('policy diff tells of conditions that read the groups of a key if these differ', BOUNDED, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-diff-'));
  await using cleanup = new AsyncDisposableStack();
  cleanup.defer(() => rm(dir, { recursive: true, force: true }));
  const tools = ['move', 'get'].map((name) => ({ name, inputSchema: { type: 'object' } }));
  const upstream = cleanup.use(await legacyUpstream({ tools }));
  const mcpServers = { teams: { type: 'http', url: upstream.url } };
  const stateDir = join(dir, 'state');
  {
    await using gateway = await openGateway(mcpServers, { stateDir });
    await modernResult(gateway.url, 'tools/list');
  }
  const access = {
    roles: {
      mover: { tools: ['move'], when: 'args.team in principal.groups' },
      getter: { tools: ['get'], when: 'args.n == 1' },
    },
    grants: [{ roles: ['mover', 'getter'], anyone: true }],
  };
  const write = async (name: string, groups: readonly string[]) => {
    const auth = { apiKeys: [{ name: 'bot', sha256: 'a1'.repeat(32), groups }] };
    const file = join(dir, name);
    await writeFile(file, JSON.stringify(complete({ mcpServers, gateway: { stateDir, auth, access } }, dir)));
    return file;
  };
  const [red, blue] = [await write('red.json', ['red']), await write('blue.json', ['blue'])];
  const diff = (...files: readonly string[]) => runCli(['policy', 'diff', ...files], dir, { HOME: dir }, 30_000);
  const { code, stdout } = await diff(red, blue);
  assert.equal(
    stdout,
    '~ key bot at /mcp: tool teams__move, some calls by other conditions\n' +
      '~ key bot at /mcp/teams: tool move, some calls by other conditions\n',
  );
  assert.equal(code, 1);
  assert.equal((await diff(red, red)).code, 0);
});
