import type { ItemKind } from '../catalog/item.ts';
import { type Caching, narrower, readCaching } from '../catalog/caching.ts';
import { type Offer, readItems, type Unreadable } from '../catalog/offer.ts';
import { GatewayError } from '../errors.ts';
import { JsonTextError, RawObject } from '../json/json.ts';
import type { Connection } from './rpc/connection.ts';
import type { Link, LinkUser } from './link.ts';

/** Far beyond any honest server; a cursor that never ends must end somewhere. */
const MAX_PAGES = 1_000;
const MAX_ITEMS = 50_000;

const METHOD_NOT_FOUND = -32601;

interface Listed {
  readonly items: readonly RawObject[];
  readonly unreadable: readonly Unreadable[];
  readonly caching: Caching | undefined;
}

const NOTHING: Listed = { items: [], unreadable: [], caching: undefined };

async function all<Owner>(
  upstream: string,
  connection: Connection<Owner>,
  method: string,
  member: string,
  kind: ItemKind,
  capabilities: RawObject,
  timeoutMs: number,
): Promise<Listed> {
  const items: RawObject[] = [];
  const unreadable: Unreadable[] = [];
  let cursor: string | undefined;
  let caching: Caching | undefined;
  const options = { timeoutMs, maxMs: timeoutMs, progress: false, context: undefined, capabilities };
  for (let pages = 0; pages < MAX_PAGES && items.length < MAX_ITEMS; pages++) {
    const params = cursor === undefined ? undefined : RawObject.EMPTY.with('cursor', cursor);
    const answer = await connection.call(method, params, options).answer;
    if (answer.kind === 'error') {
      // Servers declare resources and forget the templates; an empty list says the same.
      if (answer.error.code === METHOD_NOT_FOUND) break;
      throw new GatewayError('upstream-protocol', {
        upstream,
        message: `${method} failed: ${answer.error.message} (${answer.error.code})`,
      });
    }
    const result = RawObject.parse(answer.result);
    const read = readItems(kind, result.raw(member) ?? '[]');
    items.push(...read.items);
    unreadable.push(...read.unreadable);
    const said = readCaching(result);
    caching = caching === undefined || said === undefined ? (said ?? caching) : narrower(caching, said);
    cursor = result.string('nextCursor') === undefined ? undefined : result.raw('nextCursor');
    if (cursor === undefined) break;
  }
  return { items, unreadable, caching };
}

function togetherOf(said: readonly (Caching | undefined)[]): Caching | undefined {
  const known = said.filter((one) => one !== undefined);
  return known.length === 0 ? undefined : known.reduce(narrower);
}

/**
 * Asks one connection for everything its upstream offers, all pages, only the kinds it declared.
 *
 * @param capabilities of the clients the lists are for; only a modern upstream hears of them here.
 *
 * @throws {GatewayError} when one of the lists cannot be had.
 */
export async function listOffer<Owner, User extends LinkUser>(
  upstream: string,
  { connection, hello }: Link<Owner, User>,
  capabilities: RawObject,
  timeoutMs: number,
): Promise<Offer> {
  const has = (capability: string) => hello.capabilities.raw(capability) !== undefined;
  const list = (capability: string, method: string, member: string, kind: ItemKind) =>
    has(capability) ? all(upstream, connection, method, member, kind, capabilities, timeoutMs) : NOTHING;
  try {
    const [tools, prompts, resources, templates] = await Promise.all([
      list('tools', 'tools/list', 'tools', 'tool'),
      list('prompts', 'prompts/list', 'prompts', 'prompt'),
      list('resources', 'resources/list', 'resources', 'resource'),
      list('resources', 'resources/templates/list', 'resourceTemplates', 'template'),
    ]);
    const { revision, serverInfo, instructions } = hello;
    const lists = [tools, prompts, resources, templates];
    return {
      revision,
      capabilities: hello.capabilities,
      serverInfo,
      instructions,
      caching: togetherOf(lists.map(({ caching }) => caching)),
      tools: tools.items,
      prompts: prompts.items,
      resources: resources.items,
      templates: templates.items,
      unreadable: lists.flatMap(({ unreadable }) => unreadable),
    };
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
    throw new GatewayError('upstream-protocol', { upstream, message: `sent a list that cannot be read` }, thrown);
  }
}
