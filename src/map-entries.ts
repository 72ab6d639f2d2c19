/**
 * Sets an entry as the latest one of a map, and removes the oldest one if there are more than `limit`. Returns whether it has removed one.
 */
export function setLatest<Key, Value>(map: Map<Key, Value>, key: Key, value: Value, limit: number): boolean {
  map.delete(key);
  map.set(key, value);
  if (map.size <= limit) return false;
  const [oldest = key] = map.keys();
  return map.delete(oldest);
}

/** A map of any kind. */
interface Entries<Key, Value> {
  get(key: Key): Value | undefined;
  set(key: Key, value: Value): unknown;
}

/** Returns the value of a key. If there is none, makes it first. Does what `Map.getOrInsertComputed` does, which Node 24 lacks. */
export function getOrMake<Key, Value>(map: Entries<Key, Value>, key: Key, make: () => NoInfer<Value>): Value {
  let value = map.get(key);
  if (value === undefined) map.set(key, (value = make()));
  return value;
}
