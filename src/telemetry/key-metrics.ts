import { Gauge, type Registry } from 'prom-client';
import { knownCounter } from './metric-kinds.ts';

/** `rejected`: the keys cannot be read or used, and the last good ones stay in use. */
const READ_OUTCOMES = ['applied', 'rejected'] as const;
type ReadOutcome = (typeof READ_OUTCOMES)[number];

/** Records how API keys of a file or of Redis are read. */
export type KeyMetrics = ReturnType<typeof createKeyMetrics>;

export function createKeyMetrics(registry: Registry) {
  const registers = [registry];
  const countRead = knownCounter(registry, {
    name: 'linkspan_api_key_reads_total',
    help: 'Readings of the API keys of the key file or of Redis, by outcome.',
    values: READ_OUTCOMES,
  });
  const successful = new Gauge({
    name: 'linkspan_api_key_last_read_successful',
    help: '0 if the API keys of the key file or of Redis could not be read the last time, else 1.',
    registers,
  });
  const stored = new Gauge({
    name: 'linkspan_api_keys',
    help: 'API keys in use from the key file or from Redis.',
    registers,
  });
  successful.set(1);
  return {
    /** Counts a reading of the keys. @param count the number of keys in use after it. */
    countKeyReading: (outcome: ReadOutcome, count: number) => {
      countRead(outcome);
      successful.set(outcome === 'rejected' ? 0 : 1);
      stored.set(count);
    },
    /** Records that the config has no such keys any more. */
    clearKeys: () => {
      successful.set(1);
      stored.set(0);
    },
  };
}
