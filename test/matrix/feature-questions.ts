/** Drivers of the questions of an upstream during a call. */
import { isOffered, listening, newNonce, toolAnswer, toolResult, type Driver, type Scene } from './features.ts';
import { array, object, string, without, type Members } from './json.ts';
import { formQuestion, ROOTS_QUESTION, samplingQuestion, shortSampling, textResult, urlQuestion } from './offering.ts';
import { degraded, HOW, LOSSLESS, mustEqual, NOT_DEFINED, type Outcome } from './outcome.ts';
import { defines, MODERN, type Feature } from './words.ts';

function sampled(text: string): Members {
  return { role: 'assistant', content: { type: 'text', text }, model: 'matrix-1', stopReason: 'endTurn' };
}

function rootsOf(nonce: string): Members {
  return { roots: [{ uri: `file:///home/${nonce}`, name: 'Home' }] };
}

/** Splits messages into one per block, as older revisions have it. */
function splitMessages(params: Members): Members {
  const messages = array(params['messages']).flatMap((raw) => {
    const { role, content } = object(raw);
    return (Array.isArray(content) ? content : [content]).map((block) => ({ role, content: block }));
  });
  return { ...params, messages };
}

async function sampling(scene: Scene): Promise<Outcome> {
  const { client, upstream } = scene;
  const nonce = newNonce();
  const { asked, listen } = listening(() => sampled(`answer ${nonce}`));
  const result = await toolResult(scene, 'samples', { nonce }, { asked: listen });
  const withTools = upstream >= '2025-11-25' && client.revision >= '2025-11-25';
  mustEqual({ nonce, withTools, sample: sampled(`answer ${nonce}`) }, toolAnswer(result), 'what the tool got');
  const { method, params } = samplingQuestion(upstream, nonce, withTools);
  const isSplit = upstream >= '2025-11-25' && client.revision < '2025-11-25';
  mustEqual([{ method, params: isSplit ? splitMessages(params) : params }], asked, 'question');
  return isSplit ? degraded(HOW.split) : LOSSLESS;
}

async function roots(scene: Scene): Promise<Outcome> {
  const nonce = newNonce();
  const { asked, listen } = listening(() => rootsOf(nonce));
  const result = await toolResult(scene, 'roots', { nonce }, { asked: listen });
  mustEqual({ nonce, roots: rootsOf(nonce) }, toolAnswer(result), 'what the tool got');
  mustEqual(
    ['roots/list'],
    asked.map(({ method }) => method),
    'questions',
  );
  const since = scene.ledger.entries.length;
  const isKnown = (await scene.client.rootsChanged()) && scene.upstream !== MODERN;
  if (isKnown) await scene.ledger.wait(['roots changed'], '', since);
  return LOSSLESS;
}

/** Returns the outcome if the asking tool is missing or cannot ask this client; undefined if all is as expected. */
async function missing(scene: Scene, feature: Feature, tool: string): Promise<Outcome | undefined> {
  const isKnown = defines(scene.client.revision, feature);
  if (!(await isOffered(scene, tool))) return isKnown ? degraded(HOW.upstreamCannot) : NOT_DEFINED;
  if (isKnown) return undefined;
  const { asked, listen } = listening(() => ({}));
  const result = await toolResult(scene, tool, { nonce: newNonce() }, { asked: listen });
  mustEqual([], asked, 'questions');
  mustEqual(true, result['isError'], 'isError');
  return degraded(HOW.clientCannot);
}

/** Returns a form whose titled choices are in the notation of 2025-06-18. */
function oldForm(params: Members): Members {
  const schema = object(params['requestedSchema']);
  const properties = object(schema['properties']);
  const { oneOf, ...colour } = object(properties['colour']);
  if (oneOf === undefined) return params;
  const options = array(oneOf).map(object);
  const old = {
    ...colour,
    enum: options.map((option) => option['const']),
    enumNames: options.map((option) => option['title']),
  };
  return { ...params, requestedSchema: { ...schema, properties: { ...properties, colour: old } } };
}

async function elicitationForm(scene: Scene): Promise<Outcome> {
  const without = await missing(scene, 'elicitation form', 'elicits');
  if (without !== undefined) return without;
  const answers = [
    { action: 'accept', content: { mail: 'a@example.org', age: 7, sure: false, colour: 'r' } },
    { action: 'decline' },
    { action: 'cancel' },
  ];
  for (const answer of answers) {
    const nonce = newNonce();
    const { asked, listen } = listening(() => answer);
    const result = await toolResult(scene, 'elicits', { nonce }, { asked: listen });
    mustEqual({ nonce, form: answer }, toolAnswer(result), 'what the tool got');
    const { params } = formQuestion(scene.upstream, nonce);
    const wanted = scene.client.revision === '2025-06-18' ? oldForm(params) : params;
    mustEqual(
      [modeless(wanted)],
      asked.map(({ params: got }) => modeless(object(got))),
      'question',
    );
  }
  return LOSSLESS;
}

/** Returns a form without `mode`, which is the default. */
function modeless(params: Members): Members {
  return params['mode'] === 'form' ? without(params, 'mode') : params;
}

/** The alternative of 2025-11-25: an error names the URL that must be opened before the call is repeated. */
async function urlFirst(scene: Scene): Promise<void> {
  const { client, upstream } = scene;
  const nonce = newNonce();
  const { asked, listen } = listening(() => ({ action: 'accept' }));
  const { params } = urlQuestion(upstream, nonce);
  if (client.revision === '2025-11-25') {
    const call = { name: 'needs_url', arguments: { nonce } };
    const { error } = await client.call('tools/call', call).reply;
    mustEqual([-32042, { elicitations: [params] }], [error?.['code'], error?.['data']], 'error');
    const id = params['elicitationId'];
    await client.notifications.wait('notifications/elicitation/complete', (params) => params['elicitationId'] === id);
  }
  const result = await toolResult(scene, 'needs_url', { nonce }, { asked: listen });
  mustEqual(textResult(`visited: ${nonce}`), result, 'result');
  const questions = client.revision === '2025-11-25' ? [] : [without(params, 'elicitationId')];
  mustEqual(
    questions,
    asked.map((one) => one['params']),
    'questions',
  );
}

async function elicitationUrl(scene: Scene): Promise<Outcome> {
  const gap = await missing(scene, 'elicitation url', 'elicits_url');
  if (gap !== undefined) return gap;
  const { client, upstream } = scene;
  if (upstream === '2025-11-25') await urlFirst(scene);
  const nonce = newNonce();
  const { asked, listen } = listening(() => ({ action: 'accept' }));
  const result = await toolResult(scene, 'elicits_url', { nonce }, { asked: listen });
  mustEqual({ nonce, visit: { action: 'accept' } }, toolAnswer(result), 'what the tool got');
  const { params } = urlQuestion(upstream, nonce);
  const [question] = asked.map((one) => object(one['params']));
  mustEqual(1, asked.length, 'questions');
  mustEqual(without(params, 'elicitationId'), without(object(question), 'elicitationId'), 'question');
  const id = question?.['elicitationId'];
  if (client.revision !== '2025-11-25') {
    mustEqual(undefined, id, 'elicitationId');
    return upstream === '2025-11-25' ? degraded(HOW.noCompletion) : LOSSLESS;
  }
  mustEqual('string', typeof id, 'type of elicitationId');
  if (upstream !== '2025-11-25') return degraded(HOW.noCompletion);
  await client.notifications.wait('notifications/elicitation/complete', (params) => params['elicitationId'] === id);
  return LOSSLESS;
}

async function rounds(scene: Scene): Promise<Outcome> {
  const nonce = newNonce();
  let count = 0;
  const { asked, listen } = listening((method) => (method === 'roots/list' ? rootsOf(nonce) : sampled(`n${++count}`)));
  const result = await toolResult(scene, 'rounds', { nonce }, { asked: listen });
  mustEqual(
    { nonce, roots: rootsOf(nonce), sample: sampled('n1'), last: sampled('n2') },
    toolAnswer(result),
    'the tool got',
  );
  const first = asked
    .slice(0, 2)
    .toSorted((one, other) => string(one['method']).localeCompare(string(other['method'])));
  mustEqual(
    ['roots/list', shortSampling(`one ${nonce}`).params],
    [first[0]?.['method'], first[1]?.['params']],
    'round 1',
  );
  mustEqual([shortSampling(`two ${nonce} after n1`)], asked.slice(2), 'round 2');
  mustEqual(ROOTS_QUESTION.method, first[0]?.['method'], 'first question');
  return LOSSLESS;
}

export const QUESTION_DRIVERS: Partial<Record<Feature, Driver>> = {
  sampling,
  roots,
  'elicitation form': elicitationForm,
  'elicitation url': elicitationUrl,
  'multi-round input': rounds,
};
