/** Drivers of content that is relayed whole if both revisions define it, and translated otherwise. */
import { listAll, newNonce, toolResult, type Driver, type Scene } from './features.ts';
import { array, object, same, string, without, type Members } from './json.ts';
import { instructions, prompts, resources, templates, tools, valuesResult } from './offering.ts';
import { degraded, HOW, mustEqual, type Outcome } from './outcome.ts';

/** Compares a tool with the expected one. Adds the ways in which it was reduced to `hows`. */
function mustBeTool(expected: Members, actual: Members, hows: Set<string>): void {
  let wanted = expected;
  const schema = expected['outputSchema'];
  if (schema !== undefined && actual['outputSchema'] === undefined) {
    hows.add(HOW.noOutputSchema);
    wanted = without(wanted, 'outputSchema');
  } else if (schema !== undefined && !same(schema, actual['outputSchema'])) {
    const wrapped = object(actual['outputSchema']);
    mustEqual('object', wrapped['type'], 'type of the wrapped outputSchema');
    mustEqual(schema, object(wrapped['properties'])['result'], 'wrapped outputSchema');
    hows.add(HOW.wrapped);
    wanted = { ...wanted, outputSchema: wrapped };
  }
  if (expected['execution'] !== undefined && actual['execution'] === undefined) {
    hows.add(HOW.noTaskSupport);
    wanted = without(wanted, 'execution');
  }
  mustEqual(wanted, actual, `tool ${string(expected['name'])}`);
}

/** Lists again when the lists change. */
async function list(scene: Scene): Promise<Outcome> {
  const since = scene.client.notifications.received.length;
  try {
    return await listOnce(scene);
  } catch (thrown) {
    await scene.client.notifications
      .wait('notifications/tools/list_changed', () => true, since)
      .catch(() => {
        throw thrown;
      });
    return await listOnce(scene);
  }
}

async function listOnce(scene: Scene): Promise<Outcome> {
  const { upstream, client } = scene;
  const hows = new Set<string>();
  mustEqual(instructions(upstream), client.instructions, 'instructions');
  const listed = await listAll(scene, 'tools/list', 'tools');
  const offered = tools(upstream, []);
  mustEqual(
    offered.map(({ name }) => name),
    listed.map(({ name }) => name),
    'tools',
  );
  for (const [i, tool] of offered.entries()) mustBeTool(tool, object(listed[i]), hows);
  mustEqual(prompts(upstream, []), await listAll(scene, 'prompts/list', 'prompts'), 'prompts');
  mustEqual(resources(upstream, []), await listAll(scene, 'resources/list', 'resources'), 'resources');
  const listedTemplates = await listAll(scene, 'resources/templates/list', 'resourceTemplates');
  mustEqual(templates(upstream), listedTemplates, 'templates');
  return degraded(...hows);
}

function mustBeBlock(expected: Members, actual: Members, hows: Set<string>): void {
  const { type } = expected;
  if (actual['type'] === 'text' && type === 'audio') hows.add(HOW.audioAsText);
  else if (actual['type'] === 'text' && type === 'resource_link') {
    mustEqual(true, string(actual['text']).includes(string(expected['uri'])), 'the link in the text');
    hows.add(HOW.linkAsText);
  } else mustEqual(expected, actual, `block ${string(type)}`);
}

async function call(scene: Scene): Promise<Outcome> {
  const nonce = newNonce();
  const args = { nonce, region: 'Köln 🥨', deep: { a: [1, null, { b: false }] }, count: 42 };
  const expected = valuesResult(scene.upstream, args);
  const actual = await toolResult(scene, 'values', args);
  const hows = new Set<string>();
  const blocks = array(expected['content']).map(object);
  const got = array(actual['content']).map(object);
  mustEqual(blocks.length, got.length, `blocks of ${JSON.stringify(got.map(({ type }) => type))}`);
  for (const [i, block] of blocks.entries()) mustBeBlock(block, object(got[i]), hows);
  const structured = expected['structuredContent'];
  if (!same(structured, actual['structuredContent'])) {
    if (actual['structuredContent'] === undefined) {
      const isThere = got.some(({ text }) => text === JSON.stringify(structured));
      mustEqual(true, isThere, 'structured content as text');
      hows.add(HOW.structuredAsText);
    } else {
      mustEqual({ result: structured }, actual['structuredContent'], 'structuredContent');
      hows.add(HOW.wrapped);
    }
  }
  mustEqual(
    without(expected, 'content', 'structuredContent'),
    without(actual, 'content', 'structuredContent'),
    'result',
  );
  return degraded(...hows);
}

export const CONTENT_DRIVERS: Readonly<Record<'list' | 'call', Driver>> = { list, call };
