/**
 * The program that the suite starts as the client under test: a gateway with the suite's scripted server as its only
 * upstream, and the official SDK as its client, which performs the scenario. So the suite checks the gateway as a
 * client.
 *
 *     node client-driver.ts [--direct] [--front 2025-11-25|2026-07-28] URL       --direct leaves the gateway out
 */
import { parseArgs } from 'node:util';
import { startGateway } from '../support/gateway.ts';
import { STEPS, type Step } from './client-steps.ts';
import { FRONTS, connectFront, type FrontRevision } from './front.ts';
import { offering } from './offering.ts';

const UPSTREAM_MS = 12_000;

const { values, positionals } = parseArgs({
  options: { direct: { type: 'boolean', default: false }, front: { type: 'string', default: '2025-11-25' } },
  allowPositionals: true,
});
const { direct } = values;

async function play(url: string, revision: FrontRevision, { tools, play: act, interrupt }: Step): Promise<void> {
  await using front = await offering(() => connectFront(revision, url, interrupt), tools, UPSTREAM_MS);
  await act(front, direct);
}

const [url] = positionals;
const scenario = process.env['MCP_CONFORMANCE_SCENARIO'] ?? '';
const step = STEPS[scenario];
const revision = FRONTS.find((one) => one === values.front);
if (url === undefined || step === undefined || revision === undefined) {
  throw new Error(`cannot play ${scenario} against ${url} as a client of ${values.front}`);
}

if (direct) await play(url, revision, step);
else {
  const auth = await step.auth?.(url);
  const conf = {
    url,
    ...(step.isModernOnly === true ? { era: 'modern' } : {}),
    ...(auth === undefined ? {} : { auth }),
  };
  await using gateway = await startGateway({ mcpServers: { conf } });
  try {
    await play(gateway.endpoint('conf'), revision, step);
  } catch (error) {
    console.error(gateway.logs());
    throw error;
  }
}
