/** Tests that names which match nothing are told at a start and at a reload, by one process and by workers. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { legacyUpstream } from '../support/http-upstream.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };

const fileOf = (url: string, workers: number, ...tools: readonly string[]) => ({
  mcpServers: { up: { url } },
  gateway: {
    workers,
    access: { roles: { r: { tools } }, grants: [{ roles: ['r'], anyone: true }] },
  },
});

const isUnmatched = (name: string) => (line: string) =>
  line.includes(`tools \\"${name}\\" matches nothing in the last lists`) ? line : undefined;

/** Settings with a name that matches nothing, without an access policy. */
const ELSEWHERE = {
  rates: [{ name: 'r', to: { anyone: true }, tools: ['isue'], limit: 9, window: '1m' }],
  repeats: { limit: 9, window: '1m', tools: ['isue'] },
  profiles: { p: { renames: { isue: 'x' } } },
};
const WARNINGS = [
  String.raw`rate \"r\": tools \"isue\"`,
  String.raw`repeats: tools \"isue\"`,
  String.raw`profile \"p\": renames \"isue\"`,
  String.raw`upstream \"up\": excludeTools \"isue\"`,
];

for (const workers of [1, 2]) {
  test(`a rule that matches nothing is in the log of a reload and a start (${workers})`, TIMEOUT, async () => {
    await using upstream = await legacyUpstream({ tools: [{ name: 'get_issue', inputSchema: { type: 'object' } }] });
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-rules-'));
    try {
      {
        await using gateway = await startGateway(fileOf(upstream.url, workers, 'get_*'), { dir });
        const session = await initialize(gateway.endpoint());
        const list = async () => (await post(gateway.endpoint(), rpc(1, 'tools/list'), session)).text;
        await waitUntil(async () => (await list()).includes('get_issue'));
        await gateway.configure(fileOf(upstream.url, workers, 'get_*', 'get_isue'));
        await gateway.waitForLog(isUnmatched('get_isue'));
        const lines = gateway.logs().split('\n');
        assert.equal(lines.find(isUnmatched('get_*')), undefined, 'a rule that matches is not in the log');
        await gateway.stop();
      }
      await using gateway = await startGateway(fileOf(upstream.url, workers, 'get_isue'), { dir });
      await gateway.waitForLog(isUnmatched('get_isue'));
    } finally {
      await rm(dir, { recursive: true });
    }
  });

  test(`a name elsewhere that matches nothing is in the log of a start (${workers})`, TIMEOUT, async () => {
    await using upstream = await legacyUpstream({ tools: [{ name: 'get_issue', inputSchema: { type: 'object' } }] });
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-rules-'));
    try {
      const up = { url: upstream.url };
      {
        await using listed = await startGateway({ mcpServers: { up } }, { dir });
        const session = await initialize(listed.endpoint());
        const list = async () => (await post(listed.endpoint(), rpc(1, 'tools/list'), session)).text;
        await waitUntil(async () => (await list()).includes('get_issue'));
      }
      const mcpServers = { up: { ...up, excludeTools: ['isue'] } };
      await using gateway = await startGateway({ mcpServers, gateway: { workers, ...ELSEWHERE } }, { dir });
      for (const warning of WARNINGS) await gateway.waitForLog((line) => (line.includes(warning) ? line : undefined));
    } finally {
      await rm(dir, { recursive: true });
    }
  });
}
