import { createHash } from 'node:crypto';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { MODERN, type RevisionFeatures } from '../../protocol/revisions.ts';
import { declaresTasks, withTasks } from '../../protocol/tasks.ts';
import type { Client } from './exchange.ts';

/** What a client can do that an upstream may use through us. The rest (experimental) we could not carry. */
const FORWARDED = ['sampling', 'elicitation', 'roots', 'tasks'] as const;

/** Extensions that pass through a gateway whole. */
const EXTENSIONS = ['io.modelcontextprotocol/ui'] as const;

const FORMS = RawObject.of({ form: {} });

/** More than any honest client has to say of itself; it is sealed into a header. */
const MAX_CHARS = 2_000;

/**
 * The client capabilities that an upstream connection made for this client declares: exactly the client's, less what we cannot
 * carry and what its revision does not know.
 *
 * @throws {GatewayError} `invalid-params`
 */
export function forwardableCapabilities(declared: RawObject, quirks: RevisionFeatures): RawObject {
  let clientCapabilities = RawObject.EMPTY;
  for (const name of FORWARDED) {
    const raw = declared.raw(name);
    if (raw !== undefined && !raw.startsWith('{')) continue;
    clientCapabilities = clientCapabilities.with(name, raw);
  }
  if (!quirks.elicitation) clientCapabilities = clientCapabilities.with('elicitation', undefined);
  if (!quirks.coreTasks) clientCapabilities = clientCapabilities.with('tasks', undefined);
  if (!quirks.urlElicitation) clientCapabilities = without(clientCapabilities, 'elicitation', 'url');
  if (!quirks.samplingTools)
    clientCapabilities = without(without(clientCapabilities, 'sampling', 'tools'), 'sampling', 'context');
  const extensions = declared.object('extensions');
  let carried = RawObject.EMPTY;
  for (const name of EXTENSIONS) carried = carried.with(name, extensions?.raw(name));
  if (carried.size > 0) clientCapabilities = clientCapabilities.with('extensions', carried.toString());
  if (clientCapabilities.toString().length > MAX_CHARS) {
    throw new GatewayError('invalid-params', { message: `"capabilities" is longer than ${MAX_CHARS} characters` });
  }
  return clientCapabilities;
}

/** What a client would have to declare to be asked this. */
export function capabilitiesFor(method: string, params: RawObject): object | undefined {
  switch (method) {
    case 'roots/list':
      return { roots: {} };
    case 'sampling/createMessage':
      return { sampling: params.raw('tools') === undefined ? {} : { tools: {} } };
    case 'elicitation/create':
      return { elicitation: params.string('mode') === 'url' ? { url: {} } : { form: {} } };
    default:
      return undefined;
  }
}

/**
 * The same as a modern request declares it: changes of roots are not announced there, and clients run no tasks. Those of the
 * extension are carried for clients that know it, and driven to their end for those of the legacy era.
 */
export function modernCapabilities({ caller, clientCapabilities }: Client): RawObject {
  const byDeclared = declaredAs.get(clientCapabilities) ?? new WeakMap<RawObject, RawObject>();
  const known = byDeclared.get(caller.capabilities);
  if (known !== undefined) return known;
  const declared = without(clientCapabilities, 'roots', 'listChanged').with('tasks', undefined);
  const hasTasks = caller.revision !== MODERN || declaresTasks(caller.capabilities);
  const capabilities = hasTasks ? withTasks(declared) : declared;
  declaredAs.set(clientCapabilities, byDeclared.set(caller.capabilities, capabilities));
  return capabilities;
}

/** Made once for what clients say again and again: by what may be used of them, and by what they declared. */
const declaredAs = new WeakMap<RawObject, WeakMap<RawObject, RawObject>>();

function without(clientCapabilities: RawObject, name: string, part: string): RawObject {
  const whole = clientCapabilities.object(name);
  return whole?.raw(part) === undefined
    ? clientCapabilities
    : clientCapabilities.with(name, whole.with(part, undefined).toString());
}

/** A short name for a set of capabilities: equal sets have equal names, and none is `''`. */
export function capabilityKeyOf(clientCapabilities: RawObject): string {
  if (clientCapabilities.size === 0) return '';
  return createHash('sha256').update(clientCapabilities.toString()).digest('hex').slice(0, 16);
}

/** Whether these capabilities hold all of those. A bare `elicitation: {}` means forms. */
export function declaresAll(declared: RawObject, wanted: unknown): boolean {
  if (typeof wanted !== 'object' || wanted === null) return true;
  return Object.entries(wanted).every(([name, parts]) => {
    const own = declared.object(name);
    if (own === undefined) return false;
    return declaresAll(name === 'elicitation' && own.size === 0 ? FORMS : own, parts);
  });
}

/** Whether a client that declared these capabilities can be asked this. A bare `elicitation: {}` means forms. */
export function canBeAsked(clientCapabilities: RawObject, method: string, params: RawObject): boolean {
  switch (method) {
    case 'roots/list':
      return clientCapabilities.raw('roots') !== undefined;
    case 'sampling/createMessage': {
      const sampling = clientCapabilities.object('sampling');
      return sampling !== undefined && (params.raw('tools') === undefined || sampling.raw('tools') !== undefined);
    }
    case 'elicitation/create': {
      const elicitation = clientCapabilities.object('elicitation');
      if (elicitation === undefined) return false;
      if (params.string('mode') === 'url') return elicitation.raw('url') !== undefined;
      return elicitation.raw('form') !== undefined || elicitation.raw('url') === undefined;
    }
    default:
      return false;
  }
}
