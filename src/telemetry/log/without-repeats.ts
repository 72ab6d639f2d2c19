import type { DestinationStream } from 'pino';
import { memberOf } from '../../json/record.ts';
import { RepeatedEvents } from '../repeated-events.ts';

/** The line of a dropped state is written if the upstream stays in this state for so long. */
const QUIET_MS = 30_000;

/** The line of changed lists that was dropped is written if they do not change again for so long. */
const UNCHANGED_MS = 60_000;

const STATE = 'upstream state';
const LISTS = 'upstream lists';
const FAILURES = ['failed', 'needs-authorization', 'degraded'];

/** A line about an upstream that may repeat another one. */
interface UpstreamLine {
  readonly upstream: string;
  readonly message: string;
  /** The state of the upstream; undefined if the line reports something else. */
  readonly phase: string | undefined;
  readonly reason: string;
  /** The era of lists; empty if the line reports something else. */
  readonly era: string;
}

/** The states of one upstream. */
interface States {
  /** The phase of its last written line. */
  written: string;
  /** Writes the line of the present state, which was dropped. */
  timer: NodeJS.Timeout | undefined;
}

/**
 * Drops repeated lines about an upstream, while that is enabled. A line that is due again carries how often it was written (`repeated`). The line
 * that reports recovery is written if the last one reports another state, and carries the number of suppressed failures (`failures`). So is
 * the line of any other state that lasts, and that of lists that change no more.
 */
export function withoutRepeats(destination: DestinationStream, isEnabled: () => boolean): DestinationStream {
  const repeats = new RepeatedEvents();
  const states = new Map<string, States>();
  const lists = new Map<string, NodeJS.Timeout>();
  const due = ({ upstream, message, phase = '', reason }: UpstreamLine) =>
    repeats.due(keyOf(upstream, message, phase), reason, performance.now());
  const writeState = (line: string, of: UpstreamLine, phase: string) => {
    const known = states.get(of.upstream);
    clearTimeout(known?.timer);
    const isRecovery = phase === 'ready';
    const count = isRecovery ? 0 : due(of);
    const isNew = known?.written !== phase;
    if (isRecovery ? isNew : count !== undefined) {
      const failures = isRecovery ? unreported(repeats, of.upstream) : 0;
      destination.write(withCounts(line, count ?? 0, failures));
      states.set(of.upstream, { written: phase, timer: undefined });
    } else if (known !== undefined) {
      const writeLasting = () => {
        destination.write(line);
        known.written = phase;
      };
      known.timer = isNew ? setTimeout(writeLasting, QUIET_MS).unref() : undefined;
    }
  };
  const writeLists = (line: string, { upstream, era }: UpstreamLine) => {
    const key = keyOf(upstream, LISTS, era);
    clearTimeout(lists.get(key));
    const count = repeats.due(key, '', performance.now());
    if (count === undefined) lists.set(key, setTimeout(() => destination.write(line), UNCHANGED_MS).unref());
    else destination.write(withCounts(line, count, 0));
  };
  return {
    write(line) {
      const about = isEnabled() && line.includes('"upstream":') ? readLine(line) : undefined;
      if (about?.phase !== undefined && about.message === STATE) return writeState(line, about, about.phase);
      if (about?.message === LISTS) return writeLists(line, about);
      const count = about === undefined ? 0 : due(about);
      if (count !== undefined) destination.write(withCounts(line, count, 0));
    },
  };
}

/** Returns the number of failures of an upstream that no line has reported, now that it serves again. */
function unreported(repeats: RepeatedEvents, upstream: string): number {
  return FAILURES.reduce((sum, phase) => sum + repeats.takeUnreported(keyOf(upstream, STATE, phase)), 0);
}

function keyOf(upstream: string, message: string, phase: string): string {
  return `${upstream} ${message} ${phase}`;
}

/** Adds the counts above 0 to a line. */
function withCounts(line: string, repeated: number, failures: number): string {
  const counts = `${repeated > 0 ? `,"repeated":${repeated}` : ''}${failures > 0 ? `,"failures":${failures}` : ''}`;
  return counts === '' ? line : `${line.slice(0, line.lastIndexOf('}'))}${counts}}\n`;
}

/** Returns what a line reports of an upstream, or undefined for other lines. */
function readLine(line: string): UpstreamLine | undefined {
  const fields: unknown = JSON.parse(line);
  if (typeof fields !== 'object' || fields === null || !('upstream' in fields)) return undefined;
  const phase = 'phase' in fields ? String(fields.phase) : undefined;
  const reason = 'reason' in fields ? fields.reason : 'err' in fields ? memberOf(fields.err, 'message') : undefined;
  const message = 'msg' in fields ? String(fields.msg) : '';
  if (phase === undefined && reason === undefined && message !== LISTS) return undefined;
  const era = 'era' in fields ? String(fields.era) : '';
  return { upstream: String(fields.upstream), message, phase, reason: typeof reason === 'string' ? reason : '', era };
}
