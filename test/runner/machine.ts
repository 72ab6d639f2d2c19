/** The machine that the tests run on: what it lacks, and how busy it is. */
import { accessSync, constants, existsSync, readFileSync, statfsSync } from 'node:fs';
import { availableParallelism, freemem, loadavg, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';

const OLDEST_NODE = 24;
const LEAST_DISK_BYTES = 2 * 1024 ** 3;
/** Programs that tests start, with the Debian package of each. */
const PROGRAMS = { script: 'util-linux', flock: 'util-linux', git: 'git', openssl: 'openssl', npm: 'npm' };

/** Returns a sentence for each thing that the tests need and the machine lacks. */
export function lacks(): string[] {
  const found: string[] = [];
  if (Number(process.versions.node.split('.', 1)) < OLDEST_NODE) {
    found.push(`Node ${OLDEST_NODE} is needed and this is ${process.version}: run \`npm ci\`, then \`npm test\``);
  }
  const folders = (process.env['PATH'] ?? '').split(delimiter);
  for (const [program, debian] of Object.entries(PROGRAMS)) {
    if (folders.some((folder) => existsSync(join(folder, program)))) continue;
    found.push(`the program "${program}" is not in PATH: install it (Debian's package ${debian})`);
  }
  const { bavail, bsize } = statfsSync(tmpdir());
  if (bavail * bsize < LEAST_DISK_BYTES) {
    found.push(`${tmpdir()} has ${gib(bavail * bsize)} free, and the tests need ${gib(LEAST_DISK_BYTES)}: make room`);
  }
  try {
    accessSync(tmpdir(), constants.W_OK);
  } catch {
    found.push(`${tmpdir()} cannot be written: set TMPDIR to a folder that can`);
  }
  return found;
}

/** Jiffies of all cores since the machine started. */
interface Jiffies {
  readonly total: number;
  readonly steal: number;
}

function jiffies(): Jiffies {
  const [, ...values] = (textOf('/proc/stat').split('\n', 1)[0] ?? '').split(/\s+/).map(Number);
  return { total: values.slice(0, 8).reduce((sum, value) => sum + value, 0), steal: values[7] ?? 0 };
}

/** The load of the machine since a moment. */
export class MachineLoad {
  readonly #began = jiffies();

  /** Returns the load and the stolen share of time, for one line: `load 4.1, steal 12 %`. */
  short(): string {
    return `load ${loadavg()[0]?.toFixed(1)}, steal ${this.#stealPercent()} %`;
  }

  /** Returns a line with cores, load, stolen time, pressure and memory. Parts that the system does not tell are left out. */
  line(): string {
    const pressure = /^some .*avg300=([\d.]+)/m.exec(textOf('/proc/pressure/cpu'))?.[1];
    const available = /^MemAvailable:\s+(\d+) kB/m.exec(textOf('/proc/meminfo'))?.[1];
    return [
      `machine: ${availableParallelism()} cores`,
      `load ${loadavg()
        .map((value) => value.toFixed(1))
        .join(' ')}`,
      `steal ${this.#stealPercent()} %`,
      ...(pressure === undefined ? [] : [`CPU pressure ${Number(pressure).toFixed(0)} %`]),
      `${gib(available === undefined ? freemem() : Number(available) * 1024)} of memory available`,
      `Node ${process.version}`,
    ].join(', ');
  }

  #stealPercent(): string {
    const now = jiffies();
    const total = now.total - this.#began.total;
    return total === 0 ? '0' : ((100 * (now.steal - this.#began.steal)) / total).toFixed(0);
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    // The system has no such file.
    return '';
  }
}

function gib(bytes: number): string {
  return `${(bytes / 1024 ** 3).toFixed(1)} GiB`;
}
