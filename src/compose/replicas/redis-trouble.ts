import type { Logger } from '../../telemetry/log.ts';

const LOOK_MS = 1_000;

/** Logs when Redis cannot be used, and when it can be used again. @param failureOf returns why it cannot be used; undefined if it can. */
export function logRedisTrouble(failureOf: () => string | undefined, log: Logger): AsyncDisposable {
  let sinceMs: number | undefined;
  const timer = setInterval(() => {
    const reason = failureOf();
    if ((reason === undefined) === (sinceMs === undefined)) return;
    const nowMs = performance.now();
    if (reason === undefined) {
      log.warn({ seconds: Math.round((nowMs - (sinceMs ?? nowMs)) / 1_000) }, 'Redis can be used again');
    } else log.error({ reason }, 'what replicas share is out of reach; new sessions are refused');
    sinceMs = reason === undefined ? undefined : nowMs;
  }, LOOK_MS).unref();
  return { [Symbol.asyncDispose]: async () => clearInterval(timer) };
}
