/**
 * The lists, results and questions of an upstream of a revision, with every member that the revision defines. The
 * upstream sends
 * them, and the client compares the received content with them.
 */
import type { Members } from './json.ts';
import { MODERN, TASKS_EXTENSION, type Revision } from './words.ts';

/** Returns the members from a revision on, otherwise none. */
function since(revision: Revision, first: Revision, members: Members): Members {
  return revision >= first ? members : {};
}

const ICONS = { icons: [{ src: 'data:image/png;base64,iVBORw0KGgo=', mimeType: 'image/png', sizes: ['48x48'] }] };
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB';
const SOUND = 'UklGRiQAAABXQVZFZm10IBAAAAA=';

export function instructions(revision: Revision): string {
  return `Offers what ${revision} knows.`;
}

const NONCE_ONLY = { type: 'object', properties: { nonce: { type: 'string' } }, required: ['nonce'] };

function simpleTool(name: string): Members {
  return { name, description: `Does what its name says: ${name}.`, inputSchema: NONCE_ONLY };
}

function valuesTool(revision: Revision): Members {
  const region = { type: 'string', ...since(revision, MODERN, { 'x-mcp-header': 'Region' }) };
  const properties = { nonce: { type: 'string' }, region, deep: { type: 'object' }, count: { type: 'integer' } };
  const rows = { type: 'array', items: { type: 'object' } };
  return {
    name: 'values',
    description: 'Every kind of content its revision knows.',
    inputSchema: {
      ...since(revision, '2025-11-25', { $schema: 'https://json-schema.org/draft/2020-12/schema' }),
      type: 'object',
      properties,
      required: ['nonce'],
    },
    ...since(revision, '2025-03-26', { annotations: { title: 'Values', readOnlyHint: true, openWorldHint: false } }),
    ...since(revision, '2025-06-18', {
      title: 'All values',
      outputSchema: revision === MODERN ? rows : { type: 'object', properties: { rows }, required: ['rows'] },
      _meta: { 'example.org/kept': { as: ['it', 'is'] } },
    }),
    ...since(revision, '2025-11-25', ICONS),
  };
}

const PLAIN_TOOLS = [
  'fails',
  'refuses',
  'progresses',
  'waits',
  'release',
  'logs',
  'touch',
  'grow',
  'shrink',
  'samples',
  'roots',
  'rounds',
];

export function tools(revision: Revision, grown: Iterable<string>): readonly Members[] {
  return [
    valuesTool(revision),
    ...PLAIN_TOOLS.map(simpleTool),
    ...(revision >= '2025-06-18' ? [simpleTool('elicits')] : []),
    ...(revision >= '2025-11-25' ? [simpleTool('elicits_url')] : []),
    ...(revision === '2025-11-25' ? [simpleTool('needs_url')] : []),
    ...(revision >= '2025-11-25'
      ? [{ ...simpleTool('task'), ...(revision === '2025-11-25' ? { execution: { taskSupport: 'required' } } : {}) }]
      : []),
    ...[...grown].map((nonce) => simpleTool(`grown_${nonce}`)),
  ];
}

export function prompts(revision: Revision, grown: Iterable<string>): readonly Members[] {
  return [
    {
      name: 'greet',
      description: 'Greets somebody.',
      arguments: [
        {
          name: 'who',
          description: 'Whom.',
          required: true,
          ...since(revision, '2025-06-18', { title: 'Who' }),
        },
        { name: 'tone', required: false },
      ],
      ...since(revision, '2025-06-18', { title: 'Greet', _meta: { 'example.org/prompt': 1 } }),
      ...since(revision, '2025-11-25', ICONS),
    },
    ...[...grown].map((nonce) => ({ name: `grown_${nonce}` })),
  ];
}

export function resources(revision: Revision, grown: Iterable<string>): readonly Members[] {
  const annotations = {
    audience: ['user'],
    priority: 0.5,
    ...since(revision, '2025-06-18', { lastModified: '2025-01-12T15:00:58Z' }),
  };
  return [
    {
      uri: 'test://static/text',
      name: 'text',
      description: 'Text and bytes.',
      mimeType: 'text/plain',
      annotations,
      size: 12,
      ...since(revision, '2025-06-18', { title: 'A text', _meta: { 'example.org/resource': true } }),
      ...since(revision, '2025-11-25', ICONS),
    },
    ...[...grown].map((nonce) => ({ uri: `test://grown/${nonce}`, name: `grown ${nonce}` })),
  ];
}

export function templates(revision: Revision): readonly Members[] {
  return [
    {
      uriTemplate: 'test://note/{id}',
      name: 'note',
      description: 'One note.',
      mimeType: 'text/plain',
      ...since(revision, '2025-06-18', { title: 'Note', _meta: { 'example.org/template': null } }),
      ...since(revision, '2025-11-25', ICONS),
    },
  ];
}

export function staticContents(revision: Revision): readonly Members[] {
  const meta = since(revision, '2025-06-18', { _meta: { 'example.org/contents': [1, 2] } });
  return [
    { uri: 'test://static/text', mimeType: 'text/plain', text: 'zwölf Boxkämpfer 🥊', ...meta },
    { uri: 'test://static/text', mimeType: 'application/octet-stream', blob: 'AAECAw==' },
  ];
}

export function noteContents(uri: string): readonly Members[] {
  return [{ uri, mimeType: 'text/plain', text: `note ${uri}` }];
}

/** Returns the result of the tool `values` for the arguments that it received. */
export function valuesResult(revision: Revision, args: Members): Members {
  const rows = [{ nonce: args['nonce'], n: 0.1 }, { deep: { list: [null, true, 'ü'] } }];
  const structured = revision === MODERN ? rows : { rows };
  const annotations = { audience: ['assistant'], priority: 1 };
  return {
    content: [
      { type: 'text', text: JSON.stringify({ arguments: args }), annotations },
      ...(revision >= '2025-06-18' ? [{ type: 'text', text: JSON.stringify(structured) }] : []),
      { type: 'image', data: PIXEL, mimeType: 'image/png' },
      {
        type: 'resource',
        resource: { uri: 'test://static/text', mimeType: 'text/plain', text: 'embedded' },
        annotations,
      },
      ...(revision >= '2025-03-26' ? [{ type: 'audio', data: SOUND, mimeType: 'audio/wav' }] : []),
      ...(revision >= '2025-06-18'
        ? [
            {
              type: 'resource_link',
              uri: 'test://note/linked',
              name: 'linked',
              title: 'A link',
              mimeType: 'text/plain',
              annotations,
            },
          ]
        : []),
    ],
    ...since(revision, '2025-06-18', { structuredContent: structured }),
    _meta: { 'example.org/result': { nonce: args['nonce'] } },
  };
}

/** Returns a result with these texts. */
export function textResult(...texts: readonly string[]): Members {
  return { content: texts.map((text) => ({ type: 'text', text })) };
}

export function failedResult(nonce: string): Members {
  return { ...textResult(`failed on purpose: ${nonce}`), isError: true };
}

/** Returns the error of the tool `refuses`. Its code is outside the range that the specification reserves. */
export function refusalError(nonce: string): Members {
  return { code: 7001, message: `refused on purpose: ${nonce}`, data: { nonce, reasons: [1, { deep: 'ß' }] } };
}

export const PROGRESS_STEPS = 3;

/** Returns the params of a progress notification without the token, which the client chooses. */
export function progress(revision: Revision, nonce: string, step: number): Members {
  return {
    progress: step * 1.5,
    total: PROGRESS_STEPS * 1.5,
    ...since(revision, '2025-03-26', { message: `step ${step} of ${nonce}` }),
  };
}

export const LOGGED = ['debug', 'warning', 'info', 'error'] as const;

export function logged(level: string, nonce: string): Members {
  return { level, logger: 'matrix', data: { nonce, level, list: [1, 'zwei'] } };
}

export function completed(
  argument: Members,
  ref: Members,
  context: Members | undefined,
): { readonly values: readonly string[]; readonly total: number; readonly hasMore: boolean } {
  const chosen = context === undefined ? [] : [JSON.stringify(context)];
  return { values: [`${String(argument['value'])}-1`, JSON.stringify(ref), ...chosen], total: 7, hasMore: true };
}

/** Returns the result of the tool `task`. */
export function taskResult(nonce: string): Members {
  return textResult(`task done: ${nonce}`);
}

/** A question of an upstream during a call. */
export interface Question {
  readonly method: string;
  readonly params: Members;
}

export function samplingQuestion(revision: Revision, nonce: string, withTools: boolean): Question {
  const blocks = [
    { type: 'text', text: `first of ${nonce}` },
    { type: 'image', data: PIXEL, mimeType: 'image/png' },
  ];
  const [first, second] = blocks;
  const lookup = { name: 'lookup', description: 'Looks up.', inputSchema: { type: 'object' } };
  return {
    method: 'sampling/createMessage',
    params: {
      messages: [
        ...(revision >= '2025-11-25'
          ? [{ role: 'user', content: blocks }]
          : [
              { role: 'user', content: first },
              { role: 'user', content: second },
            ]),
        { role: 'assistant', content: { type: 'text', text: 'so far' } },
      ],
      modelPreferences: { hints: [{ name: 'small' }], costPriority: 0.25 },
      systemPrompt: 'Be brief.',
      temperature: 0.5,
      maxTokens: 100,
      stopSequences: ['\n\n'],
      metadata: { nonce },
      ...(withTools ? { tools: [lookup], toolChoice: { mode: 'auto' } } : {}),
    },
  };
}

export function shortSampling(text: string): Question {
  return {
    method: 'sampling/createMessage',
    params: { messages: [{ role: 'user', content: { type: 'text', text } }], maxTokens: 10 },
  };
}

export const ROOTS_QUESTION: Question = { method: 'roots/list', params: {} };

export function formQuestion(revision: Revision, nonce: string): Question {
  const colour =
    revision === '2025-06-18'
      ? { type: 'string', enum: ['r', 'g'], enumNames: ['Red', 'Green'] }
      : {
          type: 'string',
          oneOf: [
            { const: 'r', title: 'Red' },
            { const: 'g', title: 'Green' },
          ],
          default: 'g',
        };
  return {
    method: 'elicitation/create',
    params: {
      ...since(revision, '2025-11-25', { mode: 'form' }),
      message: `Tell about ${nonce}`,
      requestedSchema: {
        type: 'object',
        properties: {
          mail: { type: 'string', title: 'Mail', format: 'email', minLength: 3 },
          age: { type: 'integer', minimum: 0, maximum: 150 },
          sure: { type: 'boolean', default: true },
          colour,
        },
        required: ['mail'],
      },
    },
  };
}

export function urlQuestion(revision: Revision, nonce: string): Question {
  return {
    method: 'elicitation/create',
    params: {
      mode: 'url',
      message: `Come by for ${nonce}`,
      url: `https://example.org/come?by=${nonce}`,
      ...(revision === '2025-11-25' ? { elicitationId: `el-${nonce}` } : {}),
    },
  };
}

export function serverCapabilities(revision: Revision): Members {
  return {
    logging: {},
    ...since(revision, '2025-03-26', { completions: {} }),
    prompts: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    tools: { listChanged: true },
    ...(revision === '2025-11-25' ? { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } } : {}),
    ...since(revision, MODERN, { extensions: { [TASKS_EXTENSION]: {} } }),
  };
}

export function clientCapabilities(revision: Revision): Members {
  const roots = revision === MODERN ? {} : { listChanged: true };
  if (revision < '2025-06-18') return { roots, sampling: {} };
  if (revision === '2025-06-18') return { roots, sampling: {}, elicitation: {} };
  return {
    roots,
    sampling: { tools: {} },
    elicitation: { form: {}, url: {} },
    ...since(revision, MODERN, { extensions: { [TASKS_EXTENSION]: {} } }),
  };
}
