import { createHash } from 'node:crypto';
import { GatewayError } from '../errors.ts';
import { RawObject } from '../json/json.ts';
import { MODERN, type Quirks } from '../protocol/revisions.ts';
import { declaresTasks, withTasks } from '../protocol/tasks.ts';
import type { Client } from './exchange.ts';

/** What a client can do that an upstream may use through us. The rest (experimental) we could not carry. */
const MIRRORED = ['sampling', 'elicitation', 'roots', 'tasks'] as const;

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
export function mirrored(declared: RawObject, quirks: Quirks): RawObject {
  let offered = RawObject.EMPTY;
  for (const name of MIRRORED) {
    const raw = declared.raw(name);
    if (raw !== undefined && !raw.startsWith('{')) continue;
    offered = offered.with(name, raw);
  }
  if (!quirks.elicitation) offered = offered.with('elicitation', undefined);
  if (!quirks.coreTasks) offered = offered.with('tasks', undefined);
  if (!quirks.urlElicitation) offered = without(offered, 'elicitation', 'url');
  if (!quirks.samplingTools) offered = without(without(offered, 'sampling', 'tools'), 'sampling', 'context');
  const extensions = declared.object('extensions');
  let carried = RawObject.EMPTY;
  for (const name of EXTENSIONS) carried = carried.with(name, extensions?.raw(name));
  if (carried.size > 0) offered = offered.with('extensions', carried.toString());
  if (offered.toString().length > MAX_CHARS) {
    throw new GatewayError('invalid-params', { say: `"capabilities" is longer than ${MAX_CHARS} characters` });
  }
  return offered;
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
export function modernCapabilities({ caller, offered }: Client): RawObject {
  const byDeclared = declaredAs.get(offered) ?? new WeakMap<RawObject, RawObject>();
  const known = byDeclared.get(caller.capabilities);
  if (known !== undefined) return known;
  const declared = without(offered, 'roots', 'listChanged').with('tasks', undefined);
  const hasTasks = caller.revision !== MODERN || declaresTasks(caller.capabilities);
  const capabilities = hasTasks ? withTasks(declared) : declared;
  declaredAs.set(offered, byDeclared.set(caller.capabilities, capabilities));
  return capabilities;
}

/** Made once for what clients say again and again: by what may be used of them, and by what they declared. */
const declaredAs = new WeakMap<RawObject, WeakMap<RawObject, RawObject>>();

function without(offered: RawObject, name: string, part: string): RawObject {
  const whole = offered.object(name);
  return whole?.raw(part) === undefined ? offered : offered.with(name, whole.with(part, undefined).toString());
}

/** A short name for a set of capabilities: equal sets have equal names, and none is `''`. */
export function profileOf(offered: RawObject): string {
  if (offered.size === 0) return '';
  return createHash('sha256').update(offered.toString()).digest('hex').slice(0, 16);
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
export function canBeAsked(offered: RawObject, method: string, params: RawObject): boolean {
  switch (method) {
    case 'roots/list':
      return offered.raw('roots') !== undefined;
    case 'sampling/createMessage': {
      const sampling = offered.object('sampling');
      return sampling !== undefined && (params.raw('tools') === undefined || sampling.raw('tools') !== undefined);
    }
    case 'elicitation/create': {
      const elicitation = offered.object('elicitation');
      if (elicitation === undefined) return false;
      if (params.string('mode') === 'url') return elicitation.raw('url') !== undefined;
      return elicitation.raw('form') !== undefined || elicitation.raw('url') === undefined;
    }
    default:
      return false;
  }
}
