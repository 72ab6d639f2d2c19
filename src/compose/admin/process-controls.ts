import { LOG_LEVELS, type LogLevel } from '../../config/values/config.ts';
import { AdminError, type AdminPort } from '../../operator/admin/admin-port.ts';
import type { Readiness } from '../../operator/app.ts';
import type { ConfigControl } from '../../operator/config-control.ts';
import { type Logger, logTailOf } from '../../telemetry/log.ts';

/** The phases in which a gateway must get no traffic. */
export interface ProcessPhase {
  isStopping: boolean;
  /** True while an operator drains it: `/readyz` refuses new clients. */
  isDraining: boolean;
}

/** Returns why a gateway in this phase must get no traffic; undefined if it may. */
export function refusalIn({ isStopping, isDraining }: ProcessPhase): Readiness | undefined {
  if (isStopping) return { ready: false, reasons: ['shutting down'] };
  return isDraining ? { ready: false, reasons: ['an operator drains this gateway'] } : undefined;
}

/** The parts of this process that operators see and change, also if workers serve the clients. */
export interface ProcessSource {
  readonly control: ConfigControl;
  readonly log: Logger;
  readonly stateDir: string;
  readonly startedAtMs: number;
  readonly phase: ProcessPhase;
}

/** Returns the operations of the admin API that concern this process alone: its log, its config, and its readiness on request. */
export function processControls({
  control,
  log,
  phase,
}: ProcessSource): Pick<AdminPort, 'setDraining' | 'recentLog' | 'followLog' | 'config'> {
  return {
    setDraining: (isDraining) => {
      phase.isDraining = isDraining;
      return isDraining
        ? '/readyz answers 503, so load balancers send no new clients. Everything else goes on. Undo it with: linkspan drain --undo'
        : '/readyz answers by the state of the upstreams again.';
    },
    recentLog: () => logTailOf(log).recent(),
    followLog: (receive) => {
      const stop = logTailOf(log).follow(receive);
      if (stop === undefined) throw new AdminError('overloaded', 'Too many operators follow the log. End one of them.');
      return stop;
    },
    config: control,
  };
}

export function logLevelOf(log: Pick<Logger, 'level'>): LogLevel {
  return LOG_LEVELS.find((level) => level === log.level) ?? 'info';
}
