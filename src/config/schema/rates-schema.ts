import { z } from 'zod';
import { RATE_SHARES } from '../values/config.ts';
import { names, TOKEN_LISTS } from './access-schema.ts';
import { count, duration, endpointPaths, oneOf, text, texts } from './scalars.ts';

const MAX_COUNT = 1_000_000_000;
/** Timers cannot wait for longer than 24 days. */
const [LEAST_WINDOW, MOST_WINDOW] = ['1s', '24d'];

const window = () =>
  duration(LEAST_WINDOW, MOST_WINDOW).refine((ms) => ms % 1_000 === 0, { error: 'expected whole seconds' });

const to = z.strictObject({
  anyone: z.literal(true, { error: 'expected true' }).describe('Holds for every principal.').optional(),
  keys: names('Names of API keys.'),
  groups: names('Groups: those of API keys, and the values of access.groupClaims.'),
  ...TOKEN_LISTS,
  claims: z
    .record(text(), texts(), { error: 'expected values by the path of a claim' })
    .prefault({})
    .describe('Values by the path of a claim, such as realm_access.roles.'),
});

const rate = z.strictObject({
  name: text()
    .regex(/^[A-Za-z][A-Za-z0-9_-]{0,63}$/, { error: 'expected a name of letters, digits, "_" and "-"' })
    .describe('Unique name, for messages, the audit log and the count, which a reload keeps.'),
  to: to.describe('The principals that it holds for. A principal must match each list, by one of its values.'),
  endpoints: endpointPaths().describe('Paths of endpoints. Default: all.').optional(),
  upstreams: texts('expected a list of upstreams').describe('Upstreams by id or key. Default: all.').optional(),
  tools: texts('expected a list of tool names; * matches any text')
    .describe(
      'Names of tools at any endpoint; * matches any text. Default: all tools, prompts, resources and completions.',
    )
    .optional(),
  per: oneOf(RATE_SHARES).prefault('principal').describe('One count for each `principal`, or one for `all` together.'),
  limit: count(1, MAX_COUNT).describe('Calls in one window.'),
  window: window().describe('Length of a window, which begins with its first call; whole seconds.'),
});

/** Bounds on how often upstreams are called: `gateway.rates`. */
export const ratesSchema = z.array(rate, { error: 'expected a list' });

/** The bound on equal calls: `gateway.repeats`. */
export const repeatsSchema = z.strictObject({
  limit: count(1, MAX_COUNT).describe(
    'Equal calls in one window: same principal, endpoint, tool and text of the arguments.',
  ),
  window: window().describe('Length of a window, which begins with its first call; whole seconds.'),
  tools: texts('expected a list of tool names; * matches any text')
    .prefault(['*'])
    .describe('Names of the tools that it holds for, at any endpoint; * matches any text.'),
  exceptTools: texts('expected a list of tool names; * matches any text')
    .prefault([])
    .describe('Names, at any endpoint, of tools that clients may repeat, such as those that they poll.'),
});
