import { isIP } from 'node:net';
import { z } from 'zod';

import { parseAddress, suggestAddress } from './address.ts';
import {
  DURATION,
  durationMs,
  durationText,
  SIZE,
  sizeBytes,
  sizeText,
  suggestDuration,
  suggestSize,
} from './units.ts';

/** Suggests a boolean for the words of YAML 1.1, which are text in YAML 1.2. */
function suggestFlag(value: unknown): boolean | undefined {
  if (typeof value !== 'string') return undefined;
  if (/^(?:no|off|n)$/i.test(value)) return false;
  return /^(?:yes|on|y)$/i.test(value) ? true : undefined;
}

const FLAG_EXPECTED = 'expected true or false';
const DURATION_EXPECTED = 'expected a duration such as "30s"';
const SIZE_EXPECTED = 'expected a size such as "4MiB"';
const ADDRESS_EXPECTED = 'expected host:port such as "127.0.0.1:3000"';

/** Suggestions for values that a schema refuses, by the text of the zod issue. */
export const HINTS = new Map<string, (value: unknown) => string | boolean | undefined>([
  [FLAG_EXPECTED, suggestFlag],
  [DURATION_EXPECTED, suggestDuration],
  [SIZE_EXPECTED, suggestSize],
  [ADDRESS_EXPECTED, suggestAddress],
]);

/** Schema of a duration such as `"30s"`; the output is milliseconds. */
export function duration(least: string, most: string) {
  const [minMs, maxMs] = [durationMs(least), durationMs(most)];
  return z
    .string({ error: DURATION_EXPECTED })
    .regex(DURATION, { error: DURATION_EXPECTED })
    .transform(durationMs)
    .refine((ms) => ms >= minMs && ms <= maxMs, {
      error: `expected a duration from "${durationText(minMs)}" to "${durationText(maxMs)}"`,
    });
}

/** Schema of a size such as `"4MiB"`; the output is bytes. */
export function size(least: string, most: string) {
  const [minBytes, maxBytes] = [sizeBytes(least), sizeBytes(most)];
  return z
    .string({ error: SIZE_EXPECTED })
    .regex(SIZE, { error: SIZE_EXPECTED })
    .transform(sizeBytes)
    .refine((bytes) => bytes >= minBytes && bytes <= maxBytes, {
      error: `expected a size from "${sizeText(minBytes)}" to "${sizeText(maxBytes)}"`,
    });
}

export function count(least: number, most: number) {
  const error = `expected a whole number from ${least} to ${most}`;
  return z.int({ error }).min(least, { error }).max(most, { error });
}

export function flag() {
  return z.boolean({ error: FLAG_EXPECTED });
}

export function text(expected = 'expected text') {
  return z.string({ error: expected }).min(1, { error: expected });
}

export function texts(expected = 'expected a list of texts') {
  return z.array(text(), { error: expected });
}

/** Schema of the paths of endpoints. */
export function endpointPaths() {
  const path = text().regex(/^\/mcp(?:\/[a-z][a-z0-9-]*)?$/, {
    error: 'expected a path such as "/mcp" or "/mcp/github"',
  });
  return z.array(path, { error: 'expected a list of paths' });
}

const NETWORK = 'expected a network such as "10.0.0.0/8"';

function isNetwork(value: string): boolean {
  const [address = '', bits = ''] = value.split('/');
  const family = isIP(address);
  return family !== 0 && /^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128);
}

/** Schema of networks in CIDR notation. */
export function networks() {
  return z.array(text(NETWORK).refine(isNetwork, { error: NETWORK }), { error: 'expected a list of networks' });
}

/** Schema of text for which people also write numbers: arguments, environment, headers. */
export function textOrScalar() {
  return z.union([z.string(), z.number(), z.boolean()], { error: 'expected text' }).transform(String);
}

export function oneOf<const T extends readonly string[]>(values: T) {
  return z.enum(values, { error: `expected one of ${values.map((value) => JSON.stringify(value)).join(', ')}` });
}

/** Returns a transform by a parser, which returns undefined for a text that is refused. */
export function parsedBy<T>(parse: (text: string) => T | undefined, expected: string) {
  return (text: string, context: z.RefinementCtx) => {
    const parsed = parse(text);
    if (parsed !== undefined) return parsed;
    context.addIssue({ code: 'custom', message: expected });
    return z.NEVER;
  };
}

/** Schema of a key that is refused with its own message. */
export function refused(sentence: string) {
  return z.never({ error: sentence }).optional().describe(sentence);
}

export function address() {
  return z
    .string({ error: ADDRESS_EXPECTED })
    .regex(/^(?:\[[\da-fA-F:.]+\]|[A-Za-z0-9_.-]+):\d{1,5}$/, { error: ADDRESS_EXPECTED })
    .transform(parsedBy(parseAddress, ADDRESS_EXPECTED));
}

const ORIGIN_EXPECTED = 'expected scheme, host and port alone, such as "https://mcp.example.com"';

/** Schema of an origin: scheme, host and port, without a trailing slash. */
export function origin() {
  return z
    .string({ error: ORIGIN_EXPECTED })
    .regex(/^https?:\/\/[^/?#@\s]+\/?$/i, { error: ORIGIN_EXPECTED })
    .transform(parsedBy((value) => URL.parse(value)?.origin, ORIGIN_EXPECTED));
}

/** Schema of an origin of a page, which may be one of an app with a scheme of its own. */
export function pageOrigin() {
  const parse = (value: string) => {
    const url = URL.parse(value);
    // The URL standard gives such a scheme no origin.
    return url?.origin === 'null' ? `${url.protocol}//${url.host}` : url?.origin;
  };
  return z
    .string({ error: ORIGIN_EXPECTED })
    .regex(/^[a-z][a-z\d+.-]*:\/\/[^/?#@*\s]+\/?$/i, { error: ORIGIN_EXPECTED })
    .transform(parsedBy(parse, ORIGIN_EXPECTED));
}

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
export const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Schema of a map by the names of headers. In YAML, `{X-Key:value}` is a name without a value. */
export function byHeader<T extends z.ZodType>(value: T, expected: string) {
  return z.record(z.string().regex(HEADER_NAME), value, {
    error: ({ code }) => (code === 'invalid_key' ? 'cannot name a header; write NAME: value' : expected),
  });
}
