import { RawObject } from '../json/json.ts';
import { MODERN, featuresOf, type Revision } from '../protocol/revisions.ts';
import { supportsToolTasks, TASKS_EXTENSION } from '../protocol/tasks.ts';
import { isMalformed } from './malformed.ts';
import type { Offer } from './offer.ts';
import type { View } from './view.ts';

/** Extensions we can route and rewrite for. The others stay unadvertised, and peers fall back to the core. */
const EXTENSIONS = ['io.modelcontextprotocol/ui', TASKS_EXTENSION];

type Known = readonly (Offer | undefined)[];

/** What an upstream declares may be malformed; that is then not declared. */
function declared(offer: Offer, capability: string, member: string): unknown {
  try {
    return offer.capabilities.object(capability)?.value(member);
  } catch (thrown) {
    if (isMalformed(thrown)) return undefined;
    throw thrown;
  }
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Lists are united; of other settings, the first in config order stays. */
function mergeSettings(settings: readonly Readonly<Record<string, unknown>>[]): Readonly<Record<string, unknown>> {
  const merged = new Map<string, unknown>();
  for (const [key, value] of settings.flatMap((one) => Object.entries(one))) {
    const first = merged.get(key);
    if (!merged.has(key)) merged.set(key, value);
    else if (Array.isArray(first) && Array.isArray(value)) merged.set(key, [...new Set<unknown>([...first, ...value])]);
  }
  return Object.fromEntries(merged);
}

function extensionsOf(known: Known): Readonly<Record<string, unknown>> | undefined {
  const extensions = EXTENSIONS.flatMap((extension) => {
    const settings = known.flatMap((offer) => {
      const value = offer === undefined ? undefined : declared(offer, 'extensions', extension);
      if (extension === TASKS_EXTENSION && offer !== undefined && hasCoreTasks(offer)) return [{}];
      return isRecord(value) ? [value] : [];
    });
    return settings.length === 0 ? [] : [[extension, mergeSettings(settings)]];
  });
  return extensions.length === 0 ? undefined : Object.fromEntries(extensions);
}

/** Tasks of 2025-11-25, which clients of the extension are shown in its words. */
function hasCoreTasks({ revision, capabilities }: Offer): boolean {
  try {
    return revision !== MODERN && supportsToolTasks(capabilities);
  } catch (thrown) {
    if (isMalformed(thrown)) return false;
    throw thrown;
  }
}

/** Lists are ours to make; whether a task can be cancelled is up to its upstream. */
function coreTasksOf(known: Known): object | undefined {
  const having = known.filter((offer) => offer !== undefined && hasCoreTasks(offer));
  if (having.length === 0) return undefined;
  const cancel = having.some((offer) => offer !== undefined && isRecord(declared(offer, 'tasks', 'cancel')));
  return { list: {}, ...(cancel ? { cancel: {} } : {}), requests: { tools: { call: {} } } };
}

/**
 * What of it clients of a revision are told: tasks were part of the protocol for one revision, and are an extension in the
 * next. Neither may be named in the words of the other.
 */
export function capabilitiesAt(revision: Revision, merged: RawObject): RawObject {
  const told = featuresOf(revision).coreTasks ? merged : merged.with('tasks', undefined);
  if (revision === MODERN) return told;
  const extensions = told.object('extensions')?.with(TASKS_EXTENSION, undefined);
  return told.with('extensions', extensions === undefined || extensions.size === 0 ? undefined : extensions.toString());
}

/**
 * Returns what the gateway declares for a view. Clients of the legacy era read it once while upstreams come and go, so that
 * lists are always declared, for an upstream that was never listed too; nothing else is declared for it. `experimental`
 * means nothing to a third party. See {@link capabilitiesAt} for what a client of some revision is told.
 */
export function mergeCapabilities(view: View, offers: ReadonlyMap<string, Offer>): RawObject {
  const known = view.upstreams.flatMap(({ id }) => offers.get(id) ?? []);
  const subscribe = known.some((offer) => declared(offer, 'resources', 'subscribe') === true);
  const logging = known.some((offer) => offer.capabilities.raw('logging')?.startsWith('{'));
  return RawObject.of({
    logging: logging ? {} : undefined,
    completions: known.length > 0 || view.upstreams.length === 0 ? {} : undefined,
    prompts: { listChanged: true },
    resources: subscribe ? { subscribe: true, listChanged: true } : { listChanged: true },
    tools: { listChanged: true },
    tasks: coreTasksOf(known),
    extensions: extensionsOf(known),
  });
}

const CUT = '… (cut)';

function cut(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const kept = text.slice(0, Math.max(0, maxChars - CUT.length));
  // Half a surrogate pair would reach the client as a replacement character.
  return `${kept.replace(/[\uD800-\uDBFF]$/, '')}${CUT}`;
}

/** The largest share such that texts cut to it fit together: short ones stay whole, and only the longest give way. */
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
 * The upstreams' instructions, each under its title, at most `maxChars` in all. An endpoint that shows one upstream
 * unchanged shows its instructions unchanged.
 */
export function mergeInstructions(
  view: View,
  offers: ReadonlyMap<string, Offer>,
  maxChars: number,
): string | undefined {
  const parts = view.upstreams.flatMap(({ id, title }) => {
    const text = offers.get(id)?.instructions?.trim();
    return text === undefined || text === '' ? [] : [{ heading: `## ${title}\n`, text }];
  });
  const [first] = parts;
  if (first === undefined) return undefined;
  if (view.upstreams.length === 1 && view.upstreams[0]?.prefix === '') return cut(first.text, maxChars);

  const separator = '\n\n';
  const fixed = parts.reduce((sum, { heading }) => sum + heading.length, separator.length * (parts.length - 1));
  const share = fairShare(
    parts.map(({ text }) => text.length),
    Math.max(0, maxChars - fixed),
  );
  const merged = parts.map(({ heading, text }) => heading + cut(text, share)).join(separator);
  return cut(merged, maxChars);
}
