import { cleanItemText, visibleText } from '../../catalog/items/texts.ts';
import { hasLongHost } from '../../catalog/resources/uri-form.ts';
import { isSecureUrl } from '../../config/schema/address.ts';
import type { RawObject } from '../../json/json.ts';
import { LIMITS } from '../../limits.ts';

const NO_LABELS: ReadonlySet<string> = new Set();

/**
 * Matches a URL that names its host plainly. The text itself reaches the client. Some readers take backslashes, blanks, unseen characters
 * and unusual authorities for another address than the one that is judged here.
 */
const PLAIN = /^[hH][tT]{2}[pP][sS]?:\/\/(?<host>[A-Za-z\d._\-]+|\[[A-Fa-f\d:.]+\])(?::\d+)?(?:[\/?#][^\\\s\p{C}]*)?$/v;

/** Returns whether every reader of a URL finds the same host in it. */
function isPlainUrl(text: string): boolean {
  const host = PLAIN.exec(text)?.groups?.['host'];
  return host !== undefined && URL.parse(text)?.hostname === host.toLowerCase();
}

/** Returns whether a host name is one of the listed ones, or below one of those that begin with `*.`. */
function isListed(host: string, hosts: readonly string[]): boolean {
  return hosts.some((listed) => (listed.startsWith('*.') ? host.endsWith(listed.slice(1)) : host === listed));
}

const MAX_HOST_CHARS = 100;

/**
 * Returns the reason why a server request must not reach the client; undefined if it may. A URL that is shown to a user must be https, or
 * http on this machine. It must have no user name and password, since attackers use both to disguise an address.
 *
 * @param hosts those of the URLs that users may be sent to; undefined for any.
 * @see https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#safe-url-handling
 */
export function unsafeReason(
  method: string,
  params: RawObject,
  hosts: readonly string[] | undefined,
): string | undefined {
  if (method !== 'elicitation/create') return undefined;
  // A client may follow the URL of a form too.
  if (params.string('mode') !== 'url' && params.raw('url') === undefined) return undefined;
  const url = params.string('url') ?? '';
  if (hasLongHost(url) || !isSecureUrl(url)) {
    return 'the URL of an elicitation must be https (http for this machine alone), without user name and password';
  }
  if (!isPlainUrl(url)) {
    return 'the URL of an elicitation must be spelled as in RFC 3986: an ASCII host, no backslash, no blank';
  }
  const { hostname } = new URL(url);
  if (hosts === undefined || isListed(hostname, hosts)) return undefined;
  return `the URL of an elicitation is at ${hostname.slice(0, MAX_HOST_CHARS)}, which is none of the elicitationHosts in the config`;
}

/** Returns the params of `elicitation/create` without characters that people cannot see in its message, titles and descriptions. */
export function visibleForm(params: RawObject): RawObject {
  const message = params.string('message') ?? '';
  const visible = visibleText(message);
  const withMessage = visible === message ? params : params.with('message', JSON.stringify(visible));
  const { json, cleaned } = cleanItemText(params.raw('requestedSchema') ?? '{}', NO_LABELS);
  return cleaned === 0 ? withMessage : withMessage.with('requestedSchema', json);
}

/**
 * Returns the params of `sampling/createMessage` without context of other servers, and with `maxTokens` capped. It is set if it is missing
 * or no number of tokens, since the client's user pays for them.
 *
 * @param mayHaveContext whether the client knows `thisServer`, which means this upstream alone to it.
 * @param onCap runs when `maxTokens` is set to the cap.
 */
export function boundedSampling(params: RawObject, mayHaveContext: boolean, onCap: () => void): RawObject {
  let bounded = params;
  const maxTokens = Number(params.raw('maxTokens'));
  if (!Number.isInteger(maxTokens) || maxTokens < 1 || maxTokens > LIMITS.samplingTokens) {
    bounded = bounded.with('maxTokens', String(LIMITS.samplingTokens));
    onCap();
  }
  const context = params.string('includeContext');
  if (context !== undefined && context !== 'none') {
    bounded = bounded.with('includeContext', mayHaveContext ? '"thisServer"' : '"none"');
  }
  return bounded;
}
