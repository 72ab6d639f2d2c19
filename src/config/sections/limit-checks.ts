import type { Document } from '../document/document.ts';
import { problemLine } from '../document/problem.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import { sizeText } from '../schema/units.ts';

/** Half of a total is for one principal. */
const PRINCIPALS = 2;

/** The totals of bytes, with the limit of one message of which a principal should have room for one. */
const TOTALS = [
  { total: 'bodyTotal', one: 'body', effect: 'larger requests are refused' },
  { total: 'unsentTotal', one: 'message', effect: 'a client that reads a larger answer slowly loses its connection' },
] as const;

/** Returns warnings, one line each, about totals in which one principal has no room for the largest message. */
export function limitWarnings(document: Document, { limits, workers }: GatewaySettings): string[] {
  return TOTALS.flatMap(({ total, one, effect }) => {
    const [bytes, largest] = [limits[total], limits[one]];
    const least = PRINCIPALS * workers * largest;
    if (bytes === undefined || bytes >= least) return [];
    const part = sizeText(Math.floor(bytes / workers / PRINCIPALS));
    const message = `one principal may use ${part} of it, less than ${one}; ${effect}; set at least ${sizeText(least)}`;
    return [problemLine(document.problem(['gateway', 'limits', total], message))];
  });
}
