import { spawnSync } from 'node:child_process';
import { cpus, loadavg } from 'node:os';
import { OWN_CHECKOUT } from './gateway-program.ts';

/** The circumstances of a measurement, for its report. */
export interface Machine {
  readonly when: string;
  readonly node: string;
  readonly cpu: string;
  readonly cores: number;
  /** The commit of this checkout, with `-dirty` if files differ from it. */
  readonly commit: string;
  /** The load of the last 1, 5 and 15 minutes: more than 0 at the start is the work of others. */
  readonly load: readonly string[];
}

export function machineNow(): Machine {
  const { stdout } = spawnSync('git', ['describe', '--always', '--dirty'], { cwd: OWN_CHECKOUT, encoding: 'utf8' });
  return {
    when: new Date().toISOString(),
    node: process.version,
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    commit: stdout.trim(),
    load: loadavg().map((load) => load.toFixed(1)),
  };
}
