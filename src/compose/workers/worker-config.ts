import type { Config } from '../../config/values/config.ts';

/**
 * Returns the config of one worker. The operator's port, the audit log and the watch of files belong to the parent. Of each bound of one
 * process, the worker gets its part. A bound of bytes that is not set is a fraction of the heap, which each worker has.
 */
export function workerConfig(config: Config): Config {
  const { workers, limits, sessions, overload, reload } = config;
  const part = (whole: number): number => Math.max(1, Math.floor(whole / workers));
  const partOf = (whole: number | undefined) => (whole === undefined ? undefined : part(whole));
  return {
    ...config,
    operator: undefined,
    audit: undefined,
    reload: { ...reload, watch: false },
    limits: {
      ...limits,
      // Without processes there are none in any worker.
      processes: limits.processes === 0 ? 0 : part(limits.processes),
      sessions: part(limits.sessions),
      bodyTotalBytes: partOf(limits.bodyTotalBytes),
      messageTotalBytes: partOf(limits.messageTotalBytes),
      unsentTotalBytes: partOf(limits.unsentTotalBytes),
    },
    overload: { ...overload, memory: typeof overload.memory === 'number' ? part(overload.memory) : overload.memory },
    sessions: { ...sessions, eventTotalBytes: partOf(sessions.eventTotalBytes) },
  };
}
