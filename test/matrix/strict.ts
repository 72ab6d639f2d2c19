/**
 * The messages that a revision allows, written by hand from its schema. Each check returns a list of violations.
 *
 * Members that an older schema does not name and that its parsers ignore are allowed (`HARMLESS`): removing them
 * would lose more than it saves. Nothing is imported from `src`, so that one mistake cannot hide in both.
 */
import { array, isMembers, object, string, type Members } from './json.ts';
import { META, MODERN, REVISIONS, type Revision } from './words.ts';

/** The first and the last revision that defines a member. */
type Span = readonly [first: Revision, last: Revision];

const [R24, R25_03, R25_06, R25_11, R26] = REVISIONS;
const ALL: Span = [R24, R26];
const from = (first: Revision): Span => [first, R26];
const LEGACY: Span = [R24, R25_11];
const ONLY_25_11: Span = [R25_11, R25_11];

const META_ONLY = { _meta: ALL };
const RESULT = { ...META_ONLY, resultType: [R26, R26] as Span };
const CACHED = { ...RESULT, ttlMs: [R26, R26] as Span, cacheScope: [R26, R26] as Span };
const NAMED = { name: ALL, title: from(R25_06), description: ALL, icons: from(R25_11), _meta: from(R25_06) };

const SHAPES: Readonly<Record<string, Readonly<Record<string, Span>>>> = {
  tool: {
    ...NAMED,
    inputSchema: ALL,
    annotations: from(R25_03),
    outputSchema: from(R25_06),
    execution: ONLY_25_11,
  },
  prompt: { ...NAMED, arguments: ALL },
  resource: { ...NAMED, uri: ALL, mimeType: ALL, annotations: ALL, size: ALL },
  resourceTemplate: { ...NAMED, uriTemplate: ALL, mimeType: ALL, annotations: ALL },
  contents: { uri: ALL, mimeType: ALL, text: ALL, blob: ALL, _meta: from(R25_06) },
  'block text': { type: ALL, text: ALL, annotations: ALL, _meta: from(R25_06) },
  'block image': { type: ALL, data: ALL, mimeType: ALL, annotations: ALL, _meta: from(R25_06) },
  'block audio': {
    type: from(R25_03),
    data: from(R25_03),
    mimeType: from(R25_03),
    annotations: ALL,
    _meta: from(R25_06),
  },
  'block resource': { type: ALL, resource: ALL, annotations: ALL, _meta: from(R25_06) },
  'block resource_link': {
    ...NAMED,
    type: from(R25_06),
    uri: from(R25_06),
    mimeType: ALL,
    size: ALL,
    annotations: ALL,
  },
  'result initialize': {
    ...META_ONLY,
    protocolVersion: LEGACY,
    capabilities: LEGACY,
    serverInfo: LEGACY,
    instructions: LEGACY,
  },
  'result server/discover': { ...CACHED, supportedVersions: from(R26), capabilities: ALL, instructions: ALL },
  'result tools/list': { ...CACHED, tools: ALL, nextCursor: ALL },
  'result prompts/list': { ...CACHED, prompts: ALL, nextCursor: ALL },
  'result resources/list': { ...CACHED, resources: ALL, nextCursor: ALL },
  'result resources/templates/list': { ...CACHED, resourceTemplates: ALL, nextCursor: ALL },
  'result resources/read': { ...CACHED, contents: ALL },
  'result prompts/get': { ...RESULT, description: ALL, messages: ALL },
  'result completion/complete': { ...RESULT, completion: ALL },
  'result tools/call': { ...RESULT, content: ALL, isError: ALL, structuredContent: from(R25_06) },
  'result subscriptions/listen': RESULT,
  'params notifications/progress': {
    ...META_ONLY,
    progressToken: ALL,
    progress: ALL,
    total: ALL,
    message: from(R25_03),
  },
  'params notifications/message': { ...META_ONLY, level: ALL, logger: ALL, data: ALL },
  'params notifications/cancelled': { ...META_ONLY, requestId: ALL, reason: ALL },
  'params notifications/resources/updated': { ...META_ONLY, uri: ALL, title: ALL },
  'params notifications/subscriptions/acknowledged': { ...META_ONLY, notifications: from(R26) },
  'params notifications/elicitation/complete': { ...META_ONLY, elicitationId: ONLY_25_11 },
  'params sampling/createMessage': {
    messages: ALL,
    modelPreferences: ALL,
    systemPrompt: ALL,
    includeContext: ALL,
    temperature: ALL,
    maxTokens: ALL,
    stopSequences: ALL,
    metadata: ALL,
    tools: from(R25_11),
    toolChoice: from(R25_11),
    task: ONLY_25_11,
    _meta: LEGACY,
  },
  'params elicitation/create': {
    mode: from(R25_11),
    message: from(R25_06),
    requestedSchema: from(R25_06),
    url: from(R25_11),
    elicitationId: ONLY_25_11,
    task: ONLY_25_11,
    _meta: LEGACY,
  },
  'params roots/list': META_ONLY,
  'params tools/call': {
    ...META_ONLY,
    name: ALL,
    arguments: ALL,
    task: ONLY_25_11,
    inputResponses: from(R26),
    requestState: from(R26),
  },
  'params prompts/get': {
    ...META_ONLY,
    name: ALL,
    arguments: ALL,
    inputResponses: from(R26),
    requestState: from(R26),
  },
  'params resources/read': { ...META_ONLY, uri: ALL, inputResponses: from(R26), requestState: from(R26) },
  'params completion/complete': { ...META_ONLY, ref: ALL, argument: ALL, context: from(R25_06) },
};

/** Newer members that older parsers ignore. */
const HARMLESS = new Set(['title', 'icons', 'annotations', '_meta', 'execution', 'message', 'size', 'mode']);

const METHODS: Readonly<Record<string, Span>> = {
  initialize: LEGACY,
  ping: LEGACY,
  'notifications/initialized': LEGACY,
  'notifications/cancelled': ALL,
  'notifications/progress': ALL,
  'notifications/message': ALL,
  'notifications/roots/list_changed': LEGACY,
  'notifications/tools/list_changed': ALL,
  'notifications/prompts/list_changed': ALL,
  'notifications/resources/list_changed': ALL,
  'notifications/resources/updated': ALL,
  'notifications/elicitation/complete': ONLY_25_11,
  'notifications/tasks/status': ONLY_25_11,
  'notifications/subscriptions/acknowledged': from(R26),
  'notifications/tasks': from(R26),
  'tools/list': ALL,
  'tools/call': ALL,
  'prompts/list': ALL,
  'prompts/get': ALL,
  'resources/list': ALL,
  'resources/templates/list': ALL,
  'resources/read': ALL,
  'resources/subscribe': LEGACY,
  'resources/unsubscribe': LEGACY,
  'completion/complete': ALL,
  'logging/setLevel': LEGACY,
  'server/discover': from(R26),
  'subscriptions/listen': from(R26),
  'sampling/createMessage': ALL,
  'elicitation/create': from(R25_06),
  'roots/list': ALL,
  'tasks/get': from(R25_11),
  'tasks/result': ONLY_25_11,
  'tasks/list': ONLY_25_11,
  'tasks/cancel': from(R25_11),
  'tasks/update': from(R26),
};

function within(revision: Revision, [first, last]: Span): boolean {
  return first <= revision && revision <= last;
}

/** Returns violations in `_meta`: keys that the specification reserves, by the revision that defines them. */
function metaProblems(revision: Revision, meta: unknown, what: string): string[] {
  const ours: Readonly<Record<string, Span>> = {
    [META.task]: ONLY_25_11,
    'io.modelcontextprotocol/model-immediate-response': ONLY_25_11,
  };
  return Object.keys(object(meta))
    .filter((key) => key.startsWith('io.modelcontextprotocol/'))
    .filter((key) => !within(revision, ours[key] ?? from(R26)))
    .map((key) => `${what} has _meta["${key}"], which ${revision} does not know`);
}

function shapeProblems(revision: Revision, shape: string, value: unknown): string[] {
  const spans = SHAPES[shape];
  if (!isMembers(value)) return [`${shape} is not an object`];
  if (spans === undefined) return shape.startsWith('block ') ? [`${shape}: no such kind of content`] : [];
  const found = metaProblems(revision, value['_meta'], shape);
  const type = SHAPES[shape]?.['type'];
  if (type !== undefined && !within(revision, type)) found.push(`${shape}, which ${revision} does not know`);
  for (const key of Object.keys(value)) {
    const span = spans[key];
    if (span !== undefined && within(revision, span)) continue;
    if (span !== undefined && revision < span[0] && HARMLESS.has(key)) continue;
    // A modern client ignores unknown members, except those that its revision has removed.
    if (key === 'execution' && revision !== MODERN) continue;
    found.push(`${shape} has "${key}", which ${revision} does not know`);
  }
  return found;
}

function blocksOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : value === undefined ? [] : [value];
}

function blockProblems(revision: Revision, content: unknown): string[] {
  return blocksOf(content).flatMap((block) => shapeProblems(revision, `block ${string(object(block)['type'])}`, block));
}

const ITEMS = [
  ['tools', 'tool'],
  ['prompts', 'prompt'],
  ['resources', 'resource'],
  ['resourceTemplates', 'resourceTemplate'],
  ['contents', 'contents'],
] as const;

const CACHEABLE = new Set([
  'server/discover',
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
]);

/** Returns violations in a final result for a client of the revision. */
export function resultProblems(revision: Revision, method: string, result: Members): string[] {
  const found = shapeProblems(revision, `result ${method}`, result);
  for (const [member, shape] of ITEMS) {
    for (const item of array(result[member])) found.push(...shapeProblems(revision, shape, item));
  }
  if (method === 'tools/call') {
    if (!Array.isArray(result['content'])) found.push('result tools/call has no "content"');
    found.push(...blockProblems(revision, result['content']));
    const structured = result['structuredContent'];
    if (structured !== undefined && revision !== MODERN && !isMembers(structured)) {
      found.push(`structuredContent is not an object, as ${revision} wants it`);
    }
  }
  for (const message of array(result['messages'])) {
    found.push(...blockProblems(revision, object(message)['content']));
  }
  if (revision !== MODERN) return found;
  if (result['resultType'] !== 'complete')
    found.push(`result ${method} has resultType ${string(result['resultType'])}`);
  if (CACHEABLE.has(method)) {
    const { ttlMs, cacheScope } = result;
    if (!Number.isInteger(ttlMs) || Number(ttlMs) < 0) found.push(`result ${method} has ttlMs ${String(ttlMs)}`);
    if (cacheScope !== 'public' && cacheScope !== 'private') found.push(`result ${method} has no cacheScope`);
  }
  return found;
}

/** Returns violations in a request or notification for its receiver. */
export function messageProblems(revision: Revision, method: string, params: unknown): string[] {
  const span = METHODS[method];
  if (span === undefined || !within(revision, span)) return [`${method}, which ${revision} does not know`];
  const found = params === undefined ? [] : shapeProblems(revision, `params ${method}`, params);
  if (SHAPES[`params ${method}`] === undefined) found.push(...metaProblems(revision, object(params)['_meta'], method));
  if (method !== 'sampling/createMessage') return found;
  for (const message of array(object(params)['messages'])) {
    const { content } = object(message);
    if (Array.isArray(content) && revision < R25_11) found.push(`a sampling message holds many blocks in ${revision}`);
    for (const block of blocksOf(content)) {
      const type = string(object(block)['type']);
      if (type === 'tool_use' || type === 'tool_result') continue;
      found.push(...shapeProblems(revision, `block ${type}`, block));
    }
  }
  return found;
}

/** Returns violations of an error code that only some revisions may use. */
export function errorProblems(revision: Revision, code: unknown): string[] {
  if (revision === MODERN && (code === -32002 || code === -32042)) return [`error ${code} in ${revision}`];
  if (revision !== MODERN && typeof code === 'number' && code <= -32020 && code >= -32099 && code !== -32042) {
    return [`error ${code} in ${revision}`];
  }
  return revision < R25_11 && code === -32042 ? [`error ${code} in ${revision}`] : [];
}
