import { isRecord } from '../../json/record.ts';
import { isDeepStrictEqual } from 'node:util';

import { type EffectTree, effectsAt, GATEWAY_EFFECTS, type GatewayEffect, UPSTREAM_EFFECTS } from './change-effects.ts';
import type { Config } from '../values/config.ts';
import { withoutPlaces } from '../../policy/access-config.ts';
import { type Secrecy, SECRET_FIELDS } from '../schema/secret-fields.ts';
import type { UpstreamConfig } from '../values/upstream-config.ts';

/** One setting with different values in two configs. */
export interface SettingChange {
  /** As in the config file: `gateway.limits.processes`, `mcpServers.github.env.TOKEN`. */
  readonly path: string;
  readonly before: unknown;
  readonly after: unknown;
  /** Undefined if the values hold no secret. */
  readonly secrecy: Secrecy | undefined;
}

/** An upstream that is in both configs, with different settings. */
export interface ChangedUpstream {
  readonly config: UpstreamConfig;
  readonly changes: readonly SettingChange[];
}

/** The difference between the running config and the next one. */
export interface ConfigDiff {
  readonly added: readonly UpstreamConfig[];
  /** Ids of upstreams that are only in the running config. */
  readonly removed: readonly string[];
  /** Upstreams that need new processes or connections. */
  readonly replaced: readonly ChangedUpstream[];
  /** Upstreams whose changed settings can be swapped while their processes and connections stay. */
  readonly updated: readonly ChangedUpstream[];
  /** Ids of endpoints (views) that the next config does not have. */
  readonly removedEndpoints: readonly string[];
  /** Changed settings of the gateway and of profiles that take effect at once, and the order of the upstreams. */
  readonly settings: readonly SettingChange[];
  /** Changed settings of the gateway that take effect at the next start. */
  readonly atRestart: readonly SettingChange[];
}

/** Compares two configs. Changes nothing. */
export function diffConfigs(running: Config, next: Config): ConfigDiff {
  const before = new Map(running.upstreams.map((upstream) => [upstream.id, upstream]));
  const after = new Map(next.upstreams.map((upstream) => [upstream.id, upstream]));
  const added: UpstreamConfig[] = [];
  const replaced: ChangedUpstream[] = [];
  const updated: ChangedUpstream[] = [];
  for (const config of next.upstreams) {
    const old = before.get(config.id);
    if (old === undefined) {
      added.push(config);
      continue;
    }
    const found = changesBetween(old, config);
    if (found.length === 0) continue;
    const settings = found.map((change) => named(['mcpServers', old.title], change));
    // `timeouts.call` has two values in a config, of which that for tools is the last.
    const changes = [...new Map(settings.map((change) => [change.path, change])).values()];
    if (found.some((change) => needsReplacement(change, config))) replaced.push({ config, changes });
    else updated.push({ config, changes });
  }
  const settings = changesBetween(settingsOf(running), settingsOf(next));
  const isDeferred = ({ at }: Change) => effectsAt(GATEWAY_EFFECTS, at).includes('at the next start');
  const name = (change: Change) => named(['gateway'], change);
  return {
    added,
    removed: [...before.keys()].filter((id) => !after.has(id)),
    replaced,
    updated,
    removedEndpoints: [...endpointsOf(running).difference(endpointsOf(next))],
    settings: [
      ...orderChanges(running, next),
      ...settings.filter((change) => !isDeferred(change)).map(name),
      ...profileChanges(running, next),
    ],
    atRestart: settings.filter(isDeferred).map(name),
  };
}

/** Returns whether the configs do not differ. */
export function isEmptyDiff(diff: ConfigDiff): boolean {
  return Object.values(diff).every((list) => list.length === 0);
}

/** Returns the next config with the running values of all settings that take effect at a restart only. */
export function appliedConfig(running: Config, next: Config): Config {
  return appliedSettings(running, next, GATEWAY_EFFECTS);
}

function appliedSettings<T>(running: T, next: T, effects: EffectTree<GatewayEffect>): T {
  if (typeof effects === 'string' || !isRecord(running) || !isRecord(next)) {
    return effectsAt(effects, []).includes('at the next start') ? running : next;
  }
  const settings = Object.entries(effects)
    .filter(([key]) => Object.hasOwn(running, key) || Object.hasOwn(next, key))
    .map(([key, inner]): [string, unknown] => [key, appliedSettings(running[key], next[key], inner)]);
  return { ...next, ...Object.fromEntries(settings) };
}

function endpointsOf({ upstreams, profiles }: Config): Set<string> {
  return new Set([...upstreams, ...profiles].map(({ id }) => id));
}

function settingsOf(config: Config): object {
  const access = config.access && withoutPlaces(config.access);
  return Object.fromEntries(
    Object.entries({ ...config, access }).filter(([key]) => Object.hasOwn(GATEWAY_EFFECTS, key)),
  );
}

function profileChanges(running: Config, next: Config): readonly SettingChange[] {
  const byId = ({ profiles }: Config) => Object.fromEntries(profiles.map(({ id, ...profile }) => [id, profile]));
  return changesBetween(byId(running), byId(next)).map((change) => named(['gateway', 'profiles'], change));
}

/**
 * Returns the change of the order of the upstreams in both configs, or nothing. It leaves out those at its begin and end that have not
 * moved.
 */
function orderChanges(running: Config, next: Config): readonly SettingChange[] {
  const old = new Set(running.upstreams.map(({ id }) => id));
  const titles = new Map(next.upstreams.filter(({ id }) => old.has(id)).map(({ id, title }) => [id, title]));
  const before = running.upstreams.flatMap(({ id }) => titles.get(id) ?? []);
  const after = [...titles.values()];
  const hasMoved = (title: string, at: number) => title !== after[at];
  const range = [before.findIndex(hasMoved), before.findLastIndex(hasMoved) + 1] as const;
  if (range[0] === -1) return [];
  const [was, is] = [before.slice(...range), after.slice(...range)];
  return [{ path: 'order of mcpServers', before: was, after: is, secrecy: undefined }];
}

/** Returns whether a changed setting of an upstream needs another upstream. One that cannot be used for another reason stays. */
function needsReplacement({ at, before, after }: Change, { target }: UpstreamConfig): boolean {
  if (at[0] === 'problem' && before !== undefined && after !== undefined) return false;
  // A shared map of timeouts has it for programs too, which have no connection.
  if (target.kind === 'stdio' && at.join('.') === 'timeouts.connectMs') return false;
  return effectsAt(UPSTREAM_EFFECTS, at).includes('replace');
}

interface Change {
  readonly at: readonly string[];
  readonly before: unknown;
  readonly after: unknown;
}

/** Groups of a config that are one text in the file. */
const WHOLE_GROUPS: ReadonlySet<string> = new Set(['redis.target']);

/** Returns the different leaves of two values. Lists are leaves, and so is a map that only one of the values has. */
function changesBetween(before: unknown, after: unknown, at: readonly string[] = []): readonly Change[] {
  if (isDeepStrictEqual(before, after)) return [];
  if (!isRecord(before) || !isRecord(after) || WHOLE_GROUPS.has(at.join('.'))) return [{ at, before, after }];
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...keys].flatMap((key) => changesBetween(before[key], after[key], [...at, key]));
}

/** Members of a config, some with their group, whose name in the file differs in more than its unit. */
const FILE_NAMES: ReadonlyMap<string, string> = new Map([
  ['eventLimit', 'events'],
  ['eventLimitBytes', 'eventBytes'],
  ['eventTotalBytes', 'eventBytesTotal'],
  ['queueMs', 'queueWait'],
  ['cpuMs', 'cpuTime'],
  ['toolMs', 'call'],
  ['audit.maxBytes', 'maxSize'],
  ['audit.recordBytes', 'recordSize'],
  ['audit.keys', 'chainKeys'],
  ['redis.target', 'url'],
]);

/** Groups whose keys are no settings: texts of the operator, or parts of the lock file. */
const FREE_KEYS: ReadonlySet<string> = new Set(['env', 'headers', 'parameters', 'renames', 'profiles', 'pins']);

function named(root: readonly string[], { at, before, after }: Change): SettingChange {
  const steps: string[] = [...root];
  let secrecy: Secrecy | undefined;
  for (const [index, step] of at.entries()) {
    const parent = at[index - 1] ?? (root[0] === 'gateway' ? root.at(-1) : undefined) ?? '';
    if (FREE_KEYS.has(parent)) {
      steps.push(step);
      continue;
    }
    const name = FILE_NAMES.get(`${parent}.${step}`) ?? FILE_NAMES.get(step) ?? step.replace(/(?:Bytes|Ms)$/, '');
    // The file has the members of a target beside the others.
    if (name === 'target') continue;
    steps.push(name);
    secrecy ??= SECRET_FIELDS.get(name);
  }
  return { path: steps.join('.'), before, after, secrecy };
}
