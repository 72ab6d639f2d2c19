/** The tools of the upstream, the same for every revision. The revision decides how a question reaches the client. */
import { object, string, type Members } from './json.ts';
import type { LedgerWriter } from './ledger.ts';
import {
  failedResult,
  formQuestion,
  LOGGED,
  logged,
  progress,
  PROGRESS_STEPS,
  type Question,
  refusalError,
  ROOTS_QUESTION,
  samplingQuestion,
  shortSampling,
  textResult,
  urlQuestion,
  valuesResult,
} from './offering.ts';
import type { Revision } from './words.ts';
import type { World } from './world.ts';

/** One call of a tool. */
export interface Act {
  readonly revision: Revision;
  readonly name: string;
  readonly args: Members;
  readonly nonce: string;
  /** The capabilities that the client declared. */
  readonly capabilities: Members;
  readonly ledger: LedgerWriter;
  readonly world: World;
  /** Aborted when the client cancels. */
  readonly signal: AbortSignal;
  readonly progress: (params: Members) => void;
  readonly log: (params: Members) => void;
  /** Asks all questions at once. @throws {NotAsked} @throws {Refusal} if the client answers with an error. */
  readonly ask: (questions: Readonly<Record<string, Question>>) => Promise<Readonly<Record<string, Members>>>;
  /** Notifies the client that the page of a URL is complete, if the revision has such a notification. */
  readonly elicited: (elicitationId: string, isLate: boolean) => void;
}

/** Reports that the client's call must get this error. */
export class Refusal extends Error {
  readonly error: Members;

  constructor(error: Members) {
    super(string(error['message']));
    this.error = error;
  }
}

/** Reports that the client did not declare the capability for a question. */
export class NotAsked extends Error {
  readonly required: Members;

  constructor(required: Members) {
    super(`the client cannot be asked: ${JSON.stringify(required)}`);
    this.required = required;
  }
}

/** @throws {NotAsked} */
export function mustBeAskable(capabilities: Members, { method, params }: Question): void {
  const { elicitation, sampling, roots } = capabilities;
  if (method === 'roots/list' && roots === undefined) throw new NotAsked({ roots: {} });
  if (method === 'sampling/createMessage' && sampling === undefined) throw new NotAsked({ sampling: {} });
  if (method !== 'elicitation/create') return;
  const { form, url } = object(elicitation);
  if (params['mode'] === 'url') {
    if (url === undefined) throw new NotAsked({ elicitation: { url: {} } });
  } else if (elicitation === undefined || (form === undefined && url !== undefined)) {
    throw new NotAsked({ elicitation: { form: {} } });
  }
}

const VISIT_MS = 30; // subject

/** Calls of `waits` that `release` ends, by nonce. */
const waiting = new Map<string, () => void>();

async function waits({ nonce, ledger, signal, revision, progress: notify }: Act): Promise<Members> {
  const { promise, resolve } = Promise.withResolvers<'released' | 'cancelled'>();
  waiting.set(nonce, () => resolve('released'));
  signal.addEventListener('abort', () => resolve('cancelled'), { once: true });
  notify(progress(revision, nonce, 1));
  ledger.note('started', nonce);
  const ending = signal.aborted ? 'cancelled' : await promise;
  waiting.delete(nonce);
  ledger.note(ending, nonce);
  return textResult(`${ending}: ${nonce}`);
}

async function samples({ revision, nonce, capabilities, ask }: Act): Promise<Members> {
  const withTools = revision >= '2025-11-25' && object(capabilities['sampling'])['tools'] !== undefined;
  const { sample } = await ask({ sample: samplingQuestion(revision, nonce, withTools) });
  return textResult(JSON.stringify({ nonce, withTools, sample }));
}

/** Asks two questions at once, and then one that depends on their answers. */
async function rounds({ nonce, ask }: Act): Promise<Members> {
  const first = await ask({ roots: ROOTS_QUESTION, sample: shortSampling(`one ${nonce}`) });
  const received = string(object(object(first['sample'])['content'])['text']);
  const second = await ask({ last: shortSampling(`two ${nonce} after ${received}`) });
  return textResult(JSON.stringify({ nonce, ...first, ...second }));
}

async function elicitsUrl({ revision, nonce, ask, elicited }: Act): Promise<Members> {
  const { visit } = await ask({ visit: urlQuestion(revision, nonce) });
  elicited(`el-${nonce}`, false);
  return textResult(JSON.stringify({ nonce, visit }));
}

/** Refuses the call until the URL was visited, which happens at once. @throws {Refusal} */
function needsUrl({ revision, nonce, capabilities, world, elicited }: Act): Members {
  if (world.visited.has(nonce)) return textResult(`visited: ${nonce}`);
  const question = urlQuestion(revision, nonce);
  mustBeAskable(capabilities, question);
  setTimeout(() => {
    world.add({ kind: 'visited', nonce });
    elicited(`el-${nonce}`, true);
  }, VISIT_MS);
  const data = { elicitations: [question.params] };
  throw new Refusal({ code: -32042, message: 'Go there first', data });
}

/** @throws {Refusal} */
export async function perform(act: Act): Promise<Members> {
  const { name, nonce, args, revision, world, ledger } = act;
  switch (name) {
    case 'values':
      return valuesResult(revision, args);
    case 'fails':
      return failedResult(nonce);
    case 'refuses':
      throw new Refusal(refusalError(nonce));
    case 'progresses':
      for (let step = 1; step <= PROGRESS_STEPS; step++) act.progress(progress(revision, nonce, step));
      return textResult(`progressed: ${nonce}`);
    case 'waits':
      return await waits(act);
    case 'release':
      waiting.get(nonce)?.();
      return textResult(waiting.has(nonce) ? 'released' : 'nobody waits');
    case 'logs':
      for (const level of LOGGED) act.log(logged(level, nonce));
      return textResult(`logged: ${nonce}`);
    case 'touch':
      world.add({ kind: 'touched', uri: `test://note/${nonce}` });
      return textResult('touched');
    case 'grow':
      world.add({ kind: 'grown', nonce });
      return textResult('grown');
    case 'shrink':
      world.add({ kind: 'shrunk', nonce });
      return textResult('shrunk');
    case 'samples':
      return await samples(act);
    case 'roots':
      return textResult(JSON.stringify({ nonce, ...(await act.ask({ roots: ROOTS_QUESTION })) }));
    case 'rounds':
      return await rounds(act);
    case 'elicits':
      return textResult(JSON.stringify({ nonce, ...(await act.ask({ form: formQuestion(revision, nonce) })) }));
    case 'elicits_url':
      return await elicitsUrl(act);
    case 'needs_url':
      return needsUrl(act);
    default:
      ledger.note('unknown tool', name);
      throw new Refusal({ code: -32602, message: `Unknown tool: ${name}` });
  }
}
