import { isRecord } from '../json/record.ts';
import { RawObject } from '../json/json.ts';
import { featuresOf, isModernRevision, type Revision } from '../protocol/revisions.ts';
import { TASKS_EXTENSION } from '../protocol/tasks.ts';
import { unlessMalformed } from '../json/malformed.ts';
import { hasCoreTasks, type Offer } from './offer.ts';
import { visibleText } from './items/texts.ts';
import type { View, ViewUpstream } from './view.ts';

/** The extensions that the gateway can route and rewrite. Instead of others, peers use the core protocol. */
const EXTENSIONS = ['io.modelcontextprotocol/ui', TASKS_EXTENSION];

/** Returns a member of a declared capability; undefined if the capability is malformed: it counts as not declared. */
function declared(offer: Offer, capability: string, member: string): unknown {
  return unlessMalformed(() => offer.capabilities.object(capability)?.value(member), undefined);
}

/** Merges the settings of one extension. Arrays are united; of other values, the first in config order is kept. */
function mergeSettings(settings: readonly Readonly<Record<string, unknown>>[]): Readonly<Record<string, unknown>> {
  const merged = new Map<string, unknown>();
  for (const [key, value] of settings.flatMap((one) => Object.entries(one))) {
    const first = merged.get(key);
    if (!merged.has(key)) merged.set(key, value);
    else if (Array.isArray(first) && Array.isArray(value)) merged.set(key, [...new Set<unknown>([...first, ...value])]);
  }
  return Object.fromEntries(merged);
}

function extensionsOf(
  offers: readonly Offer[],
  lasting: readonly Offer[],
): Readonly<Record<string, unknown>> | undefined {
  const extensions = EXTENSIONS.flatMap((extension) => {
    const settings = (extension === TASKS_EXTENSION ? lasting : offers).flatMap((offer) => {
      const value = declared(offer, 'extensions', extension);
      if (extension === TASKS_EXTENSION && hasCoreTasks(offer)) return [{}];
      return isRecord(value) ? [value] : [];
    });
    return settings.length === 0 ? [] : [[extension, mergeSettings(settings)]];
  });
  return extensions.length === 0 ? undefined : Object.fromEntries(extensions);
}

/** Returns whether a connection to the upstream outlives a call, so that it can keep tasks and subscriptions. */
function isLasting({ isPerCall, isRemote }: ViewUpstream, { revision }: Offer): boolean {
  return isPerCall !== true || (isRemote && isModernRevision(revision));
}

/**
 * Returns the tasks capability of 2025-11-25. The gateway itself answers `tasks/list`; `tasks/cancel` needs an upstream
 * that declares it.
 */
function coreTasksOf(lasting: readonly Offer[]): object | undefined {
  const withTasks = lasting.filter(hasCoreTasks);
  if (withTasks.length === 0) return undefined;
  const cancel = withTasks.some((offer) => isRecord(declared(offer, 'tasks', 'cancel')));
  return { list: {}, ...(cancel ? { cancel: {} } : {}), requests: { tools: { call: {} } } };
}

/**
 * Returns the merged capabilities as a client of a revision gets them. Tasks are a core capability in 2025-11-25 and an
 * extension in 2026-07-28; a client gets only the form of its revision.
 */
export function capabilitiesAt(revision: Revision, merged: RawObject): RawObject {
  const { coreTasks, tasksExtension } = featuresOf(revision);
  const declared = coreTasks ? merged : merged.with('tasks', undefined);
  if (tasksExtension) return declared;
  const extensions = declared.object('extensions')?.with(TASKS_EXTENSION, undefined);
  return declared.with(
    'extensions',
    extensions === undefined || extensions.size === 0 ? undefined : extensions.toString(),
  );
}

/**
 * Returns the capabilities that the gateway declares for a view. Lists are always declared, since legacy clients read
 * capabilities once while upstreams come and go. Nothing else is declared for an upstream that was never listed; see {@link withUnlisted}.
 * `experimental` is not declared: its members have no meaning between a client and the gateway. {@link capabilitiesAt}
 * returns the capabilities for clients of a revision.
 */
export function mergeCapabilities(view: View, offers: ReadonlyMap<string, Offer>): RawObject {
  const known = view.upstreams.flatMap(({ id }) => offers.get(id) ?? []);
  const lasting = view.upstreams.flatMap((upstream) => {
    const offer = offers.get(upstream.id);
    return offer !== undefined && isLasting(upstream, offer) ? [offer] : [];
  });
  const subscribe = lasting.some((offer) => declared(offer, 'resources', 'subscribe') === true);
  const logging = known.some((offer) => offer.capabilities.raw('logging')?.startsWith('{'));
  return RawObject.of({
    logging: logging ? {} : undefined,
    completions: known.length > 0 || view.upstreams.length === 0 ? {} : undefined,
    prompts: { listChanged: true },
    resources: subscribe ? { subscribe: true, listChanged: true } : { listChanged: true },
    tools: { listChanged: true },
    tasks: coreTasksOf(lasting),
    extensions: extensionsOf(known, lasting),
  });
}

/**
 * Returns the capabilities to declare while the lists of an upstream are being read for the first time. They have all those whose
 * requests the gateway answers for upstreams without them too. Most clients read capabilities once, and would never use those that are missing.
 */
export function withUnlisted(merged: RawObject): RawObject {
  const resources = merged.object('resources') ?? RawObject.EMPTY;
  return merged
    .with('logging', '{}')
    .with('completions', '{}')
    .with('resources', resources.with('subscribe', 'true').toString());
}

const CUT = '… (cut)';

function truncate(text: string, maxChars: number): string {
  if (text.length <= maxChars || maxChars === 0) return text.slice(0, maxChars);
  const mark = maxChars < CUT.length ? '…' : CUT;
  const kept = text.slice(0, maxChars - mark.length);
  // Half a surrogate pair would become a replacement character at the client.
  return `${kept.replace(/[\uD800-\uDBFF]$/, '')}${mark}`;
}

/** Returns the length to which texts are cut to keep the total: only the longest are cut. */
function fairShare(lengths: readonly number[], total: number): number {
  let left = total;
  let share = total;
  for (const [i, length] of lengths.toSorted((a, b) => a - b).entries()) {
    share = Math.floor(left / (lengths.length - i));
    if (length > share) return share;
    left -= length;
  }
  return total;
}

/**
 * Returns the instructions of all upstreams, each under its title, with at most `maxChars` UTF-16 code units in total.
 * Undefined if there are none, or `maxChars` is 0. They have no characters that people cannot see. Instructions of the only upstream of an endpoint without prefix get no title.
 */
export function mergeInstructions(
  view: View,
  offers: ReadonlyMap<string, Offer>,
  maxChars: number,
): string | undefined {
  const parts = view.upstreams.flatMap(({ id, title }) => {
    const text = visibleText(offers.get(id)?.instructions ?? '').trim();
    return text === '' ? [] : [{ heading: `## ${title}\n`, text }];
  });
  const [first] = parts;
  if (first === undefined || maxChars === 0) return undefined;
  if (view.upstreams.length === 1 && view.upstreams[0]?.prefix === '') return truncate(first.text, maxChars);

  const separator = '\n\n';
  const fixed = parts.reduce((sum, { heading }) => sum + heading.length, separator.length * (parts.length - 1));
  const share = fairShare(
    parts.map(({ text }) => text.length),
    Math.max(0, maxChars - fixed),
  );
  const merged = parts.map(({ heading, text }) => heading + truncate(text, share)).join(separator);
  return truncate(merged, maxChars);
}
