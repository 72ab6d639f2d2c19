/** Gauges of which each process has the same value, or the largest one says most. All others are added up. */
const LARGEST =
  /^(?:linkspan_(?:upstream_(?:up|state_info|required|era)|lock_withheld_items|catalog_|build_info|api_keys|loop_delay_|memory_used_ratio|replicas|redis_down|unreachable_issuers|audit_(?:sequence|failing))|nodejs_(?:eventloop_lag|version_info)|process_(?:start_time|open_fds|max_fds))/;
/** Gauges that are 1 only if they are for all processes. */
const SMALLEST = /^linkspan_api_key_last_read_successful$/;
/** Gauges of the gateway as a whole, which the last text has. Workers load no config by themselves, and may be started at any time. */
const LAST = /^linkspan_(?:ready$|config_last_)/;

const LINE = /^(?<series>(?<name>[A-Za-z_:][\w:]*)(?:\{.*\})?) (?<value>\S+)$/;

interface Family {
  /** The lines `# HELP` and `# TYPE`. */
  readonly head: string[];
  readonly values: Map<string, number>;
}

/** Adds up the values of one series, by the meaning of its name. */
function combined(name: string, before: number | undefined, value: number): number {
  if (before === undefined || Number.isNaN(before)) return value;
  if (Number.isNaN(value)) return before;
  if (LAST.test(name)) return value;
  if (LARGEST.test(name)) return Math.max(before, value);
  return SMALLEST.test(name) ? Math.min(before, value) : before + value;
}

/**
 * Returns the metrics of several processes as those of one. All are texts in Prometheus' format, as `Metrics.text` writes them. The last one with gauges is that
 * of the process that speaks for all.
 */
export function mergedMetrics(texts: readonly string[]): string {
  const families = new Map<string, Family>();
  for (const text of texts) {
    let family: Family | undefined;
    for (const line of text.split('\n')) {
      const [, kind, named] = /^# (HELP|TYPE) (\S+)/.exec(line) ?? [];
      if (named !== undefined) {
        family = families.get(named) ?? { head: [], values: new Map() };
        families.set(named, family);
        if (!family.head.some((known) => known.startsWith(`# ${kind} `))) family.head.push(line);
        continue;
      }
      const { series, name, value } = LINE.exec(line)?.groups ?? {};
      if (series === undefined || name === undefined || family === undefined) continue;
      family.values.set(series, combined(name, family.values.get(series), valueOf(value ?? '')));
    }
  }
  return [...families.values()].map(familyText).join('');
}

function familyText({ head, values }: Family): string {
  return `${[...head, ...[...values].map(([series, value]) => `${series} ${valueText(value)}`)].join('\n')}\n`;
}

function valueOf(text: string): number {
  const [, sign] = /^([+-]?)Inf$/.exec(text) ?? [];
  return sign === undefined ? Number(text) : sign === '-' ? -Infinity : Infinity;
}

function valueText(value: number): string {
  return Number.isFinite(value) ? String(value) : value > 0 ? '+Inf' : value < 0 ? '-Inf' : 'NaN';
}

/** Returns the counters and histograms of a process that has ended, which go on to count. */
export function countersOf(text: string): string {
  const kept: string[] = [];
  let isKept = false;
  let help = '';
  for (const line of text.split('\n')) {
    if (line.startsWith('# HELP')) {
      help = line;
      isKept = false;
    } else if (line.startsWith('# TYPE')) {
      isKept = / (?:counter|histogram)$/.test(line);
      if (isKept) kept.push(help, line);
    } else if (isKept && line !== '') kept.push(line);
  }
  return kept.join('\n');
}
