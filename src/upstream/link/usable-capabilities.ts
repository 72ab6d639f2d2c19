import { CLIENT_FEATURES, type ClientFeature } from '../../config/values/upstream-config.ts';
import type { RawObject } from '../../json/json.ts';
import { getOrMake } from '../../map-entries.ts';

/** Returns the part of the declared client capabilities that an upstream may use. */
export type CapabilityFilter = (declared: RawObject) => RawObject;

/** Returns {@link usableCapabilities} for these features, with a cache: clients declare the same capabilities each time. */
export function capabilityFilter(features: readonly ClientFeature[]): CapabilityFilter {
  if (CLIENT_FEATURES.every((feature) => features.includes(feature))) return (declared) => declared;
  const results = new WeakMap<RawObject, RawObject>();
  return (declared) => getOrMake(results, declared, () => usableCapabilities(declared, features));
}

/** Returns the declared client capabilities without those that an upstream with these features may not use. */
export function usableCapabilities(declared: RawObject, features: readonly ClientFeature[]): RawObject {
  const denied = CLIENT_FEATURES.filter((feature) => !features.includes(feature));
  return denied.reduce(
    (capabilities, feature) => withoutTasks(capabilities.with(feature, undefined), feature),
    declared,
  );
}

/** Removes a feature from `tasks.requests`, where clients declare that they can answer its requests by a task. */
function withoutTasks(capabilities: RawObject, feature: ClientFeature): RawObject {
  const tasks = capabilities.object('tasks');
  const requests = tasks?.object('requests');
  if (tasks === undefined || requests?.raw(feature) === undefined) return capabilities;
  return capabilities.with('tasks', tasks.with('requests', requests.with(feature, undefined).toString()).toString());
}
