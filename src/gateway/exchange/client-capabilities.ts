import { createHash } from 'node:crypto';
import { CLIENT_FEATURES } from '../../config/values/upstream-config.ts';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import type { InputRequest } from '../../protocol/input-required.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import type { RevisionFeatures } from '../../protocol/revisions.ts';
import { usesTools } from '../../protocol/sampling.ts';

/** A question of an upstream to a client. */
export type Question = Pick<InputRequest, 'method' | 'params'>;

/** The client capabilities that the gateway can forward. It cannot forward `experimental`. */
const FORWARDED = ['sampling', 'elicitation', 'roots', 'tasks'] as const;

/** Extensions that need no support by a gateway. */
const EXTENSIONS = ['io.modelcontextprotocol/ui'] as const;

/**
 * Returns the capabilities that a connection made for this client declares to the upstream. They are those of the client that the gateway
 * can forward and the client's revision has.
 *
 * They are sealed into the session id, which must fit a header, so their length is bounded.
 *
 * @param onLimit runs when they are too long. Default: the caller was judged before.
 * @throws {GatewayError} `invalid-params`: they are too long.
 */
export function forwardableCapabilities(
  declared: RawObject,
  features: RevisionFeatures,
  onLimit?: (limit: LimitName) => void,
): RawObject {
  let clientCapabilities = RawObject.EMPTY;
  for (const name of FORWARDED) {
    const raw = declared.raw(name);
    if (raw !== undefined && !raw.startsWith('{')) continue;
    clientCapabilities = clientCapabilities.with(name, raw);
  }
  if (!features.elicitation) clientCapabilities = clientCapabilities.with('elicitation', undefined);
  if (!features.coreTasks) clientCapabilities = clientCapabilities.with('tasks', undefined);
  if (!features.urlElicitation) clientCapabilities = withoutMember(clientCapabilities, 'elicitation', 'url');
  if (!features.rootsListChanged) clientCapabilities = withoutMember(clientCapabilities, 'roots', 'listChanged');
  if (!features.samplingTools)
    clientCapabilities = withoutMember(withoutMember(clientCapabilities, 'sampling', 'tools'), 'sampling', 'context');
  const extensions = declared.object('extensions');
  let forwarded = RawObject.EMPTY;
  for (const name of EXTENSIONS) forwarded = forwarded.with(name, extensions?.raw(name));
  if (forwarded.size > 0) clientCapabilities = clientCapabilities.with('extensions', forwarded.toString());
  const most = LIMITS.clientCapabilityChars;
  if (clientCapabilities.toString().length > most) {
    onLimit?.('clientCapabilityChars');
    throw new GatewayError('invalid-params', { message: `"capabilities" is longer than ${most} characters` });
  }
  return clientCapabilities;
}

/** Returns the capabilities that a client must declare to receive this server request; undefined for other methods. */
export function capabilitiesNeededFor(method: string, params: RawObject): object | undefined {
  switch (method) {
    case 'roots/list':
      return { roots: {} };
    case 'sampling/createMessage':
      return { sampling: usesTools(params) ? { tools: {} } : {} };
    case 'elicitation/create':
      return { elicitation: params.string('mode') === 'url' ? { url: {} } : { form: {} } };
    default:
      return undefined;
  }
}

function withoutMember(clientCapabilities: RawObject, name: string, part: string): RawObject {
  const whole = clientCapabilities.object(name);
  return whole?.raw(part) === undefined
    ? clientCapabilities
    : clientCapabilities.with(name, whole.with(part, undefined).toString());
}

/** Returns the capability key: equal for equal sets of capabilities, and `''` for none. */
export function capabilityKeyOf(clientCapabilities: RawObject): string {
  if (clientCapabilities.size === 0) return '';
  return createHash('sha256').update(clientCapabilities.toString()).digest('hex').slice(0, 16);
}

/** Returns whether the declared capabilities contain all wanted ones. `elicitation` without `url` means forms. */
export function declaresAll(declared: RawObject, wanted: unknown): boolean {
  if (typeof wanted !== 'object' || wanted === null) return true;
  return Object.entries(wanted).every(([name, parts]) => {
    if (declared.raw(name) === undefined) return false;
    const own = declared.object(name) ?? RawObject.EMPTY;
    return declaresAll(name === 'elicitation' && own.raw('url') === undefined ? own.with('form', '{}') : own, parts);
  });
}

/** Returns whether a client can be sent to a page. */
export function opensPages({ clientCapabilities }: { readonly clientCapabilities: RawObject }): boolean {
  return clientCapabilities.object('elicitation')?.raw('url') !== undefined;
}

/** Returns whether a client with these capabilities can be asked anything at all. */
export function canBeAskedAnything(clientCapabilities: RawObject): boolean {
  return CLIENT_FEATURES.some((feature) => clientCapabilities.raw(feature) !== undefined);
}

/** Returns whether a client can receive this server request. */
export function canBeAsked(clientCapabilities: RawObject, method: string, params: RawObject): boolean {
  const needed = capabilitiesNeededFor(method, params);
  return needed !== undefined && declaresAll(clientCapabilities, needed);
}

/**
 * Throws if a client with these capabilities cannot be asked one of the questions in an answer to its request.
 *
 * @throws {GatewayError} `missing-capability`; `upstream-protocol` if no client can be asked it.
 */
export function assertDeclared(upstream: string, clientCapabilities: RawObject, questions: readonly Question[]): void {
  for (const { method, params = RawObject.EMPTY } of questions) {
    if (canBeAsked(clientCapabilities, method, params)) continue;
    const requiredCapabilities = capabilitiesNeededFor(method, params);
    if (requiredCapabilities === undefined) {
      const message = `upstream "${upstream}" asks for ${method}, which no client can be asked for`;
      throw new GatewayError('upstream-protocol', { upstream, message });
    }
    throw new GatewayError('missing-capability', {
      upstream,
      executed: 'unknown',
      message: `upstream "${upstream}" asks for ${method}`,
      data: { requiredCapabilities },
    });
  }
}

/** Returns the code with which a client refuses a server request: it lacks the method, or only a part of it. */
export function refusalCode(clientCapabilities: RawObject, method: string): number {
  const features = Object.keys(capabilitiesNeededFor(method, RawObject.EMPTY) ?? {});
  const isKnown = features.every((feature) => clientCapabilities.raw(feature) !== undefined);
  return isKnown ? RPC.invalidParams : RPC.methodNotFound;
}
