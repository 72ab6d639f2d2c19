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
