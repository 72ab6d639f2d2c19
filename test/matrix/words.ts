/** The names of the matrix: revisions, transports, features. */

export const REVISIONS = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25', '2026-07-28'] as const;
export type Revision = (typeof REVISIONS)[number];

export const MODERN: Revision = '2026-07-28';

/** The legacy revision of upstreams of both eras, which is that of current SDKs. */
export const DUAL_LEGACY: Revision = '2025-11-25';

/** The argument that starts such an upstream. */
export const DUAL = 'dual';

export const TRANSPORTS = ['stdio', 'Streamable HTTP', 'HTTP+SSE'] as const;
export type Transport = (typeof TRANSPORTS)[number];

/** Returns stdio, and the HTTP transports of the revision. */
export function transportsOf(revision: Revision): readonly Transport[] {
  return revision === '2024-11-05' ? ['stdio', 'HTTP+SSE'] : ['stdio', 'Streamable HTTP'];
}

export const FEATURES = [
  'list',
  'call',
  'tool error',
  'protocol error',
  'progress',
  'cancel',
  'disconnect',
  'log',
  'completion',
  'resource read',
  'template',
  'subscribe/update',
  'list_changed',
  'sampling',
  'roots',
  'elicitation form',
  'elicitation url',
  'multi-round input',
  'tasks',
] as const;
export type Feature = (typeof FEATURES)[number];

export const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks';

export const META = {
  revision: 'io.modelcontextprotocol/protocolVersion',
  capabilities: 'io.modelcontextprotocol/clientCapabilities',
  clientInfo: 'io.modelcontextprotocol/clientInfo',
  serverInfo: 'io.modelcontextprotocol/serverInfo',
  logLevel: 'io.modelcontextprotocol/logLevel',
  subscription: 'io.modelcontextprotocol/subscriptionId',
  task: 'io.modelcontextprotocol/related-task',
} as const;

/** The first revision of features that are not in all. None was removed later; tasks became an extension. */
const FIRST: Partial<Record<Feature, Revision>> = {
  'elicitation form': '2025-06-18',
  'elicitation url': '2025-11-25',
  tasks: '2025-11-25',
};

export function defines(revision: Revision, feature: Feature): boolean {
  return revision >= (FIRST[feature] ?? REVISIONS[0]);
}

/** The param that `Mcp-Name` repeats, by method. */
export const NAME_PARAMS: Readonly<Record<string, string>> = {
  'tools/call': 'name',
  'prompts/get': 'name',
  'resources/read': 'uri',
  'tasks/get': 'taskId',
  'tasks/update': 'taskId',
  'tasks/cancel': 'taskId',
};
