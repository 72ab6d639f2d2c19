/**
 * Scenarios about the behaviour of the server itself, not about its offer. A gateway must pass them with any
 * upstream.
 * In all others it relays the request and the answer, or translates them.
 */
const OWN: ReadonlySet<string> = new Set([
  'server-initialize',
  'server-session-lifecycle',
  'ping',
  'logging-set-level',
  'dns-rebinding-protection',
  'server-sse-multiple-streams',
  'server-sse-polling',
  'server-stateless',
  'caching',
  'http-header-validation',
  'http-custom-header-server-validation',
]);

export function isGatewaysOwn(scenario: string): boolean {
  return OWN.has(scenario);
}
