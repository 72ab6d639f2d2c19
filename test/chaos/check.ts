import type { Attempt, History, LedgerEntry, Trial } from './history.ts';
import { clientOf, type PlannedCall } from './plan.ts';

/**
 * The rules of a trial:
 *
 * - a: a call runs at most once;
 * - b: a result is that of the one execution of its call;
 * - c: `executed: "no"` means that the call did not run, `"yes"` that it did;
 * - d: no client gets anything of another one;
 * - e: each call has one end, in time;
 * - f: progress is complete and in order, also across resumptions;
 * - g: every client is served by every upstream after the last fault;
 * - h: no replica ends by itself or has an internal error, and no process outlives its replica;
 * - i: a session that gets another connection to an upstream hears that the state of the one before is lost.
 */
export const RULES = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'] as const;
export type Rule = (typeof RULES)[number];

export interface Violation {
  readonly rule: Rule;
  /** The call or the client. */
  readonly about: string;
  readonly text: string;
}

/** The longest time from a call to its end. */
export const DEADLINE_MS = 25_000; // subject
/** More than a machine that is busy with other tests delays a timer. */
const TOLERANCE_MS = 5_000; // subject

/** Returns all violations of the rules in a trial. Pure. */
export function check(trial: Trial): Violation[] {
  const { histories, recoveries, defects, plan } = trial;
  const byCall = Map.groupBy(trial.ledger, ({ call }) => call);
  const runsOf = (call: string) => byCall.get(call) ?? [];
  const sent = new Set(histories.flatMap(({ attempts }) => attempts.map(({ call }) => call.id)));
  const planned = plan.clients.flatMap(({ calls }) => calls);
  return [
    ...[...byCall].flatMap(([call, runs]) => checkRuns(call, runs, sent.has(call))),
    ...histories.flatMap((history) => checkSeen(history)),
    ...histories.flatMap(({ attempts }) =>
      attempts.flatMap((attempt) => [
        ...checkEnd(attempt, runsOf(attempt.call.id)),
        ...checkTime(attempt),
        ...checkProgress(attempt),
      ]),
    ),
    ...histories.flatMap((history) => checkStates(history, trial)),
    ...planned.flatMap(({ id }) => (sent.has(id) ? [] : [violation('e', id, 'was never sent')])),
    ...recoveries.flatMap(({ client, upstream, tookMs, last }) =>
      tookMs === undefined ? [violation('g', client, `${upstream} does not serve it any more: ${last}`)] : [],
    ),
    ...defects.map((text) => violation('h', 'replica', text)),
  ];
}

function violation(rule: Rule, about: string, text: string): Violation {
  return { rule, about, text };
}

function checkRuns(call: string, runs: readonly LedgerEntry[], isSent: boolean): Violation[] {
  if (!isSent) return [violation('a', call, 'ran, and no client has sent it')];
  if (runs.length <= 1) return [];
  const each = runs.map(({ upstream, attempt, run, atMs }) => `${run} at ${upstream}, attempt ${attempt}, ${atMs} ms`);
  return [violation('a', call, `ran ${runs.length} times: ${each.join('; ')}`)];
}

function checkSeen({ client, seen }: History): Violation[] {
  return [...seen]
    .filter((nonce) => clientOf(nonce) !== client)
    .map((nonce) => violation('d', client, `received ${nonce}`));
}

/** Compares the statements of an end with the ledger. */
function checkEnd({ call, number, ends }: Attempt, runs: readonly LedgerEntry[]): Violation[] {
  return ends.flatMap((end) => {
    const found = (rule: Rule, text: string) => [violation(rule, call.id, `attempt ${number} ${text}`)];
    const own = runs.filter(({ attempt }) => attempt === number);
    switch (end.kind) {
      case 'ok':
        if (runs.length !== 1 || own.length !== 1) return found('b', `has a result, and ran ${own.length} times`);
        return isAnswerOf(call, own, end)
          ? []
          : found('b', `got the result of ${end.nonce} ${end.run}, not of ${call.nonce} ${own[0]?.run}`);
      case 'error': {
        const about = `${end.code}, executed ${end.claim}: ${end.text}`;
        if (end.claim === 'no' && own.length > 0) return found('c', `ran, but got ${about}`);
        if (end.code === 'internal-error') return found('h', `got ${about}`);
        if (end.claim === 'yes' && own.length !== 1) return found('c', `ran ${own.length} times, but got ${about}`);
        return [];
      }
      case 'closed':
      case 'abandoned':
        return [];
    }
  });
}

function isAnswerOf(
  call: PlannedCall,
  [run]: readonly LedgerEntry[],
  end: { readonly nonce: string | undefined; readonly run: string | undefined },
): boolean {
  return end.nonce === call.nonce && run?.nonce === call.nonce && end.run === run.run;
}

/** An attempt of a session, and its execution. */
interface Executed {
  readonly attempt: Attempt;
  readonly run: LedgerEntry;
}

/** Finds states that were replaced in silence. */
function checkStates({ attempts }: History, { ledger, plan }: Trial): Violation[] {
  const executed = attempts.flatMap((attempt) =>
    ledger
      .filter(({ call, attempt: number }) => call === attempt.call.id && number === attempt.number)
      .map((run): Executed => ({ attempt, run })),
  );
  const known = executed.filter(({ attempt, run }) => attempt.session !== undefined && run.state !== '');
  const bySession = Map.groupBy(known, ({ attempt, run }) => `${attempt.session} ${run.upstream}`);
  // While Redis cannot be written, nobody else knows that a session has used an upstream.
  const untilMs = Math.min(...plan.faults.filter(({ kind }) => kind.includes('Redis')).map(({ atMs }) => atMs));
  return [...bySession.values()].flatMap((all) => checkSession(all, untilMs));
}

/** Finds changes of state before `untilMs` that no answer has reported. An answer may report one later than that. */
function checkSession(executed: readonly Executed[], untilMs: number): Violation[] {
  const inOrder = executed.toSorted((one, two) => one.run.atMs - two.run.atMs);
  const states = [...Map.groupBy(inOrder, ({ run }) => run.state).values()];
  const reports = states.map((state) => state.filter(reportsLoss).length);
  return states.slice(1).flatMap((later, index) => {
    const before = states[index] ?? [];
    // The last answers of a state may report its loss themselves, if they come after its session has moved.
    const isReported = takeReport(reports, index) || takeReport(reports, index + 1) || mayBeReported(before, later);
    const hasAnswered = before.some((one) => isAnswered(one) && endMsOf(one) < untilMs);
    const [first] = later;
    if (!hasAnswered || isReported || first === undefined || first.run.atMs >= untilMs) return [];
    const { attempt, run } = first;
    return [violation('i', attempt.call.id, `runs in another state of ${run.upstream}, and its session is not told`)];
  });
}

/** Takes one of the reports in a state. Returns false if it has none left. */
function takeReport(reports: number[], state: number): boolean {
  const count = reports[state] ?? 0;
  if (count === 0) return false;
  reports[state] = count - 1;
  return true;
}

function isAnswered({ attempt }: Executed): boolean {
  return attempt.ends[0]?.kind === 'ok';
}

function reportsLoss({ attempt: { ends }, run }: Executed): boolean {
  return ends[0]?.kind === 'ok' && ends[0].lost === run.upstream;
}

function endMsOf({ attempt }: Executed): number {
  return attempt.ends[0]?.atMs ?? Infinity;
}

/** Returns whether an answer that the client has not received may have reported that a state is lost. */
function mayBeReported(before: readonly Executed[], later: readonly Executed[]): boolean {
  const movedMs = later[0]?.run.atMs ?? Infinity;
  return unreceived(later).length > 0 || unreceived(before).some((one) => endMsOf(one) > movedMs);
}

/** Returns the calls in a state whose answers the client has not received, and which may have been the first ones. Only the first one reports a loss. */
function unreceived(state: readonly Executed[]): readonly Executed[] {
  const answeredMs = Math.min(...state.filter(isAnswered).map(endMsOf));
  return state.filter((one) => !isAnswered(one) && one.attempt.sentMs < answeredMs);
}

function checkTime({ call, number, sentMs, ends, notes }: Attempt): Violation[] {
  const found = (text: string) => [violation('e', call.id, `attempt ${number} ${text}; ${notes.join(', ')}`)];
  const [end, ...more] = ends;
  if (end === undefined) return found('has no end');
  if (more.length > 0) return found(`has ${ends.length} ends: ${ends.map(({ kind }) => kind).join(', ')}`);
  const tookMs = end.atMs - sentMs;
  return tookMs > DEADLINE_MS + TOLERANCE_MS ? found(`ended after ${Math.round(tookMs)} ms`) : [];
}

function checkProgress({ call, number, ends, progress, notes }: Attempt): Violation[] {
  const isInOrder = progress.every((value, index) => value === index + 1);
  const isWhole = ends[0]?.kind !== 'ok' || progress.length === call.steps;
  if (isInOrder && isWhole) return [];
  const text = `received progress ${progress.join()} of ${call.steps}`;
  return [violation('f', call.id, `attempt ${number} ${text}; ${notes.join(', ')}`)];
}
