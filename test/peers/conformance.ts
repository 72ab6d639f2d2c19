/**
 * Runs the conformance suite against the SDKs' own servers, directly and through the gateway, and compares.
 *
 *     node test/peers/conformance.ts [--server python|typescript|go]… [--revision 2025-06-18|…] [--endpoint single|merged]
 *                                    [--only SCENARIO] [--json FILE]
 *
 * A scenario that passes directly must pass through the gateway. One that fails directly is not counted.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { OTHER_PROGRAM, overStdio } from '../conformance/fixture.ts';
import { inLanes } from '../conformance/lanes.ts';
import type { Score } from '../conformance/score.ts';
import { SELECTIONS, serverLeg, type SelectionName } from '../conformance/suite.ts';
import { startGateway } from '../support/gateway.ts';
import { DUAL_SERVERS, startDual, type DualServer } from './conformance-servers.ts';

const { values: options } = parseArgs({
  options: {
    server: { type: 'string', multiple: true },
    revision: { type: 'string' },
    endpoint: { type: 'string' },
    only: { type: 'string' },
    json: { type: 'string' },
  },
});

const LANES = 2;
const ENDPOINTS = ['single', 'merged'] as const;
const UNTIMED: readonly SelectionName[] = SELECTIONS.filter((selection) => selection !== 'tasks');

/** The results of one selection, directly and through the gateway. */
interface Comparison {
  readonly server: DualServer;
  readonly selection: SelectionName;
  readonly endpoint: string;
  readonly direct: readonly Score[];
  readonly through: readonly Score[];
}

const picked = <T extends string>(all: readonly T[], wanted: string | undefined): readonly T[] =>
  wanted === undefined ? all : all.filter((one) => one === wanted);

const comparisons: Comparison[] = [];
const out = await mkdtemp(join(tmpdir(), 'linkspan-dual-'));

async function folder(...names: string[]): Promise<string> {
  const dir = join(out, ...names);
  await mkdir(dir, { recursive: true });
  return dir;
}

const lost = ({ direct, through }: Comparison): Score[] => {
  const able = new Set(direct.filter(({ passed }) => passed).map(({ scenario }) => scenario));
  return through.filter(({ scenario, passed }) => able.has(scenario) && !passed);
};

const able = ({ direct }: Comparison): number => direct.filter(({ passed }) => passed).length;

async function compare(server: DualServer): Promise<void> {
  await using upstream = await startDual(server);
  await using gateway = await startGateway({
    mcpServers: { dual: { url: upstream.url, prefix: '' }, other: overStdio(OTHER_PROGRAM) },
  });
  for (const selection of picked(UNTIMED, options.revision)) {
    const direct = await serverLeg(selection, upstream.url, options.only, await folder(server, selection, 'direct'));
    const unable = direct.filter(({ passed }) => !passed).map(({ scenario }) => scenario);
    if (unable.length > 0) console.log(`${server} fails directly at ${selection}, not counted: ${unable.join(', ')}`);
    for (const endpoint of picked(ENDPOINTS, options.endpoint)) {
      const url = gateway.endpoint(endpoint === 'single' ? 'dual' : undefined);
      const through = await serverLeg(selection, url, options.only, await folder(server, selection, endpoint));
      const comparison = { server, selection, endpoint, direct, through };
      comparisons.push(comparison);
      const kept = able(comparison) - lost(comparison).length;
      console.log(
        `${server.padEnd(12)}${selection.padEnd(12)}${endpoint.padEnd(8)}direct ${able(comparison)}/${direct.length}, kept ${kept}`,
      );
    }
  }
}

const servers = DUAL_SERVERS.filter((server) => options.server?.includes(server) ?? true);
await inLanes(
  servers.map((server) => () => compare(server)),
  LANES,
);

for (const comparison of comparisons) {
  for (const { scenario, reasons } of lost(comparison)) {
    const { server, selection, endpoint } = comparison;
    console.log(`LOST ${server} ${selection} ${endpoint} ${scenario}: ${reasons.join('; ')}`);
  }
}
const failed = comparisons.reduce((sum, comparison) => sum + lost(comparison).length, 0);
const passed = comparisons.reduce((sum, comparison) => sum + able(comparison), 0) - failed;
if (options.json !== undefined) await writeFile(options.json, JSON.stringify({ passed, failed }, undefined, 2));
if (failed === 0) await rm(out, { recursive: true });
else console.log(`logs: ${out}`);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
