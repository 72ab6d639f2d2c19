import { LOG_LEVELS, type LogLevel } from '../../config/config.ts';
import { AdminError, type AdminPort } from '../../operator/admin/admin-port.ts';
import type { ConfigControl } from '../../operator/config-control.ts';
import { type Logger, logTailOf } from '../../telemetry/log.ts';

/** The parts of this process that operators see and change, also if workers serve the clients. */
interface ProcessSource {
  readonly control: ConfigControl;
  readonly log: Logger;
  /** `isDraining` is true if `/readyz` refuses new clients. */
  readonly draining: { isDraining: boolean };
}

/** Returns the operations of the admin API that concern this process alone: its log, its config, and its readiness on request. */
export function processControls({
  control,
  log,
  draining,
}: ProcessSource): Pick<AdminPort, 'setDraining' | 'recentLog' | 'followLog' | 'config'> {
  return {
    setDraining: (isDraining) => {
      draining.isDraining = isDraining;
      return isDraining
        ? '/readyz answers 503, so load balancers send no new clients. Everything else goes on. Undo it with: linkspan drain --undo'
        : '/readyz answers by the state of the upstreams again.';
    },
    recentLog: () => logTailOf(log)?.recent() ?? [],
    followLog: (receive) => {
      const tail = logTailOf(log);
      if (tail === undefined) throw new AdminError('not-supported', 'This gateway keeps no log.');
      const stop = tail.follow(receive);
      if (stop === undefined) throw new AdminError('overloaded', 'Too many operators follow the log. End one of them.');
      return stop;
    },
    config: control,
  };
}

/** Returns the level of a logger. */
export function logLevelOf(log: Pick<Logger, 'level'>): LogLevel {
  return LOG_LEVELS.find((level) => level === log.level) ?? 'info';
}
