import { z } from 'zod';
import { CLAIM_TYPES } from '../../policy/access-config.ts';
import { isSecureUrl } from './address.ts';
import { otlpHeaders } from './otlp-schema.ts';
import { count, duration, flag, oneOf, text, texts } from './scalars.ts';

const globs = (what: string) => texts('expected a list of names; * matches any text').describe(what).optional();

const hints = z
  .strictObject({
    readOnly: flag().optional().describe('readOnlyHint; false if the tool does not declare it.'),
    destructive: flag().optional().describe('destructiveHint; true if the tool does not declare it.'),
    idempotent: flag().optional().describe('idempotentHint; false if the tool does not declare it.'),
    openWorld: flag().optional().describe('openWorldHint; true if the tool does not declare it.'),
  })
  .describe(
    'Hints that a tool must have, as its upstream declares them. A tool without hints is destructive, not read-only.',
  )
  .optional();

const items = {
  upstreams: texts('expected a list of upstreams')
    .describe('Upstreams by id or by their key in this file; "*" is all of them. Default: all.')
    .optional(),
  tools: globs("Tools by the upstream's own names; * matches any text."),
  prompts: globs("Prompts by the upstream's own names."),
  resources: globs("Resources by the upstream's own URIs."),
  readOnly: flag().describe('true: only tools that declare readOnlyHint. The same as hints.readOnly.').optional(),
  hints,
  when: text()
    .describe('Condition in CEL over principal, claims, client, endpoint, upstream, tool, args and now.')
    .optional(),
};

const role = z.strictObject({
  ...items,
  weight: count(1, 1_000)
    .describe(
      'How much its principals may use of what all share, when it is scarce; the greatest of their roles holds. Default: 1.',
    )
    .optional(),
  deny: z
    .array(z.strictObject(items), { error: 'expected a list' })
    .prefault([])
    .describe(
      'Rules of the same form. A principal with this role may not use their items, whatever other roles allow.',
    ),
});

const claim = z.union(
  [
    oneOf(CLAIM_TYPES),
    z.strictObject({
      path: text().describe('Its path in the token: names with dots between them, or one name with dots.'),
      type: oneOf(CLAIM_TYPES),
    }),
  ],
  { error: 'expected "string", "list", "number", "boolean", or a map with path and type' },
);

export const names = (what: string) => texts().describe(what).optional();

/** The lists of a selector that are about tokens. */
export const TOKEN_LISTS = {
  scopes: names('Scopes of tokens.'),
  subjects: names('`sub` of tokens.'),
  issuers: names('`iss` of tokens.'),
  clients: names('OAuth client ids of tokens.'),
};

const grant = z.strictObject({
  roles: texts().min(1, { error: 'expected at least one role' }).describe('Roles that the grant gives.'),
  anyone: z.literal(true, { error: 'expected true' }).describe('Gives the roles to every principal.').optional(),
  keys: names('Names of API keys.'),
  groups: names('Groups: those of API keys, and the values of groupClaims.'),
  ...TOKEN_LISTS,
  claims: z.record(z.string(), texts()).prefault({}).describe('Values by the names of claims.'),
  endpoints: names('Paths of endpoints, such as /mcp or /mcp/github. Default: all.'),
});

/** The description of a principal, in tests of the policy and for operators. */
export const describedSchema = z.strictObject({
  key: text().optional().describe('Name of its API key.'),
  groups: texts().optional().describe('Groups of its API key. Default: those that the key has.'),
  scopes: texts().prefault([]).describe('Scopes of its token.'),
  subject: text().optional().describe('`sub` of its token.'),
  issuer: text().optional().describe('`iss` of its token.'),
  client: text().optional().describe('OAuth client id of its token.'),
  claims: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('Its token, as the issuer writes it; what is not named beside it is read from it.'),
});

const accessTest = z.strictObject({
  as: describedSchema.describe('The principal of the call.'),
  endpoint: text().prefault('/mcp').describe('Path of the endpoint.'),
  upstream: text().describe('The upstream of the item.'),
  tool: text().optional().describe("A tool by the upstream's own name."),
  prompt: text().optional().describe("A prompt by the upstream's own name."),
  resource: text().optional().describe("A resource by the upstream's own URI."),
  hints: hints.describe('Hints that the tool declares.'),
  args: z.record(z.string(), z.unknown()).optional().describe('Arguments of the call.'),
  at: text()
    .refine((value) => !Number.isNaN(Date.parse(value)), { error: 'expected a time such as "2026-01-31T12:00:00Z"' })
    .optional()
    .describe('Time of the call. Default: now.'),
  expect: oneOf(['allow', 'deny', 'hidden']).describe(
    'allow: the call may run. deny: it may not. hidden: the item is not even listed.',
  ),
});

const external = z.strictObject({
  url: text('expected an https:// URL')
    .refine(isSecureUrl, {
      error:
        'expected an https:// URL (http:// only to this machine) without a user name; put credentials into "headers"',
    })
    .describe('URL that is asked: https, or http to this machine.'),
  headers: otlpHeaders().prefault({}).describe('Headers of each question, such as `Authorization`.'),
  timeout: duration('10ms', '5s')
    .prefault('100ms')
    .describe('The longest wait for a decision. Without one, the request is refused.'),
  upstreams: texts('expected a list of upstreams')
    .describe('Upstreams by id or by their key in this file, whose requests it decides about. Default: all.')
    .optional(),
  arguments: flag().prefault(false).describe('Sends the arguments of calls too.'),
});

/** The access policy: `gateway.access`. */
export const accessSchema = z.strictObject({
  claims: z
    .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,63}$/), claim, {
      error: (issue) =>
        issue.code === 'invalid_key' ? 'expected a name of letters, digits and "_"' : 'expected a map of claims',
    })
    .prefault({})
    .describe('Claims that rules read: name → type, or path and type. A rule that reads another one is refused.'),
  groupClaims: texts().prefault([]).describe('Names of the claims whose values are groups.'),
  roles: z
    .record(z.string().regex(/^[A-Za-z][A-Za-z0-9_-]{0,63}$/), role, {
      error: (issue) =>
        issue.code === 'invalid_key' ? 'expected a name of letters, digits, "_" and "-"' : 'expected a map of roles',
    })
    .describe('Sets of items by name.'),
  grants: z.array(grant, { error: 'expected a list' }).describe('Who gets which roles.'),
  tests: z
    .array(accessTest, { error: 'expected a list' })
    .prefault([])
    .describe('Expected decisions. A config with a test that fails is refused.'),
  external: external.describe('A decision point (AuthZEN) that may deny what the rules allow.').optional(),
});

export type AccessSettings = z.output<typeof accessSchema>;
