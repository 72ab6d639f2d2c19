import { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import { LIST_KINDS, type ListKind } from '../../catalog/offer.ts';

/** The notifications that a `subscriptions/listen` request asks for. */
export interface Filter {
  readonly kinds: ReadonlySet<ListKind>;
  /** Published URIs. */
  readonly uris: readonly string[];
  /** Ids that the client uses. */
  readonly taskIds: readonly string[];
}

/**
 * Reads the filter of a `subscriptions/listen` request.
 *
 * @param onLimit runs when the filter has too many entries.
 * @throws {GatewayError} `invalid-params`
 */
export function readFilter(params: RawObject | undefined, onLimit: (limit: LimitName) => void): Filter {
  const filter = params?.object('notifications');
  if (filter === undefined) throw new GatewayError('invalid-params', { message: '"notifications" must be an object' });
  const kinds = LIST_KINDS.filter((kind) => filter.raw(`${kind}ListChanged`) === 'true');
  const uris = readTexts(filter, 'resourceSubscriptions');
  const taskIds = readTexts(filter, 'taskIds');
  for (const [name, { length }] of Object.entries({ resourceSubscriptions: uris, taskIds })) {
    if (length <= LIMITS.listenEntries) continue;
    onLimit('listenEntries');
    throw new GatewayError('invalid-params', { message: `"${name}" may hold ${LIMITS.listenEntries} entries` });
  }
  return { kinds: new Set(kinds), uris, taskIds };
}

/** Returns the different strings of an array member. @throws {GatewayError} `invalid-params` */
function readTexts(filter: RawObject, name: string): readonly string[] {
  const texts = filter.raw(name) === undefined ? [] : filter.value(name);
  if (!Array.isArray(texts) || !texts.every((text) => typeof text === 'string')) {
    throw new GatewayError('invalid-params', { message: `"${name}" must be an array of strings` });
  }
  return [...new Set(texts)];
}

/** Returns a filter as {@link readFilter} reads it. */
export function filterText({ kinds, uris, taskIds }: Filter): string {
  const lists = [...kinds].map((kind) => [`${kind}ListChanged`, true]);
  return JSON.stringify({
    ...Object.fromEntries(lists),
    ...(uris.length === 0 ? {} : { resourceSubscriptions: uris }),
    ...(taskIds.length === 0 ? {} : { taskIds }),
  });
}
