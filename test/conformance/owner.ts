/**
 * Scenarios about the server that answers, not about what it offers: a gateway has to pass them by itself, whatever is
 * behind it. Of the others it carries the question and the answer, or bridges them.
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
