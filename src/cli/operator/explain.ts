import { checkJson, CLIENT_BOUNDS, JsonTextError } from '../../json/json.ts';
import { infiniteNumber } from '../../json/changed-number.ts';
import { isRecord, jsonOf } from '../../json/record.ts';
import { readFileSync } from 'node:fs';
import { type AskExternal, explainWith } from '../../compose/admin/explain.ts';
import { isCode, messageOf, resultOrError } from '../../thrown.ts';
import { writeFault } from '../../store/disk/path-fault.ts';
import { asksAbout } from '../../gateway/exchange/external-decisions.ts';
import { openOffline } from '../../compose/offline.ts';
import { readPrincipal } from '../../compose/admin/read-principal.ts';
import { hasCallersLists } from '../../config/values/upstream-config.ts';
import { loadForReading } from '../start.ts';
import { explainAnswer, type ExplainAnswer } from '../../operator/admin/answers.ts';
import { readKeys } from '../keys/open-store.ts';
import { ask } from './admin-client.ts';
import { CliError, EXIT } from './cli-error.ts';
import type { ListRights } from '../../policy/rights.ts';
import { shownText } from '../../peer-text.ts';
import { printAnswer } from './output.ts';
import type { PrintOptions } from './status.ts';
import { endpointPath, viewIdOf } from '../../endpoint-path.ts';

export type ExplainedKind = 'tool' | 'prompt' | 'resource';

export interface ExplainOptions extends PrintOptions {
  /** JSON, a file with JSON, or the name of an API key. */
  readonly as: string;
  /** The arguments of a call, as a JSON object. */
  readonly args?: string;
  /** The endpoint; default: the merged one. */
  readonly view?: string;
  /** Asks no running gateway. */
  readonly offline: boolean;
}

/**
 * Prints whether a principal may use an item, with every reason. Resolves with 1 if it may not.
 *
 * @throws {CliError}
 */
export async function explain(kind: ExplainedKind, name: string, options: ExplainOptions): Promise<number> {
  const as = describedBy(options.as);
  const args = options.args === undefined ? {} : { args: argumentsIn(options.args) };
  const asked = { as, view: viewIdOf(options.view ?? ''), kind, name, ...args };
  const answer = options.offline
    ? await explainOffline(asked, options)
    : await ask(options, explainAnswer, { method: 'POST', path: '/explain', body: asked });
  printAnswer(options, answer, linesOf(answer));
  return answer.effect === 'deny' || answer.effect === 'unknown' ? EXIT.failed : EXIT.ok;
}

interface Asked {
  readonly as: Record<string, unknown>;
  readonly view: string;
  readonly kind: ExplainedKind;
  readonly name: string;
  readonly args?: Record<string, unknown>;
}

/** Explains by the config file and the last good lists. @throws {CliError} */
async function explainOffline({ as, args, ...asked }: Asked, options: ExplainOptions): Promise<ExplainAnswer> {
  const { config } = await loadForReading(options);
  const gateway = await openOffline(config, options.stateDir);
  const view = gateway.views.get(asked.view);
  if (view === undefined) throw new CliError(EXIT.failed, `There is no endpoint "${asked.view}".`);
  const isKey = typeof as['key'] === 'string' && !('groups' in as);
  const keys = isKey ? await readKeys(config) : undefined;
  const principal = readPrincipal(as, (key) => keys?.groupsOf(key, Date.now()) ?? []);
  if (typeof principal === 'string') throw new CliError(EXIT.usage, `--as: ${principal}`);
  const parts = {
    view,
    catalogFor: (rights: ListRights | undefined) => gateway.catalog(view, rights),
    gate: gateway.gate,
    lifecycleOf: () => undefined,
    hasCallersLists: (id: string) => config.upstreams.some((one) => one.id === id && hasCallersLists(one)),
  };
  const askExternal: AskExternal = ({ item: { upstream } }) =>
    asksAbout(config.access, principal, upstream) ? 'offline' : undefined;
  const answer = await explainWith(askExternal, parts, { ...asked, principal, args });
  if (answer.effect !== 'unknown' || gateway.doubt === undefined) return answer;
  return { ...answer, reasons: [...answer.reasons, { about: 'list', text: gateway.doubt }] };
}

/** Returns the description of a principal. @throws {CliError} */
function describedBy(text: string): Record<string, unknown> {
  if (text.trimStart().startsWith('{')) return objectIn(text, '--as');
  let file: string;
  try {
    file = readFileSync(text, 'utf8');
  } catch (thrown) {
    if (text.includes('/') || text.endsWith('.json')) {
      const isThere = !isCode(thrown, 'ENOENT');
      const reason = writeFault(thrown, '') ?? messageOf(thrown);
      const fault = isThere ? `the file ${text} cannot be read: ${reason}` : `there is no file ${text}`;
      throw new CliError(EXIT.usage, `--as: ${fault}`);
    }
    // Every other text is the name of a key.
    return { key: text };
  }
  return objectIn(file, `--as ${text}`);
}

/** Returns the arguments of a call. @throws {CliError} also if an explanation would be about other ones than a client sends. */
function argumentsIn(text: string): Record<string, unknown> {
  const args = objectIn(text, '--args');
  const fault = resultOrError(JsonTextError, () => checkJson(text, CLIENT_BOUNDS));
  if (fault instanceof JsonTextError)
    throw new CliError(EXIT.usage, `--args: a client that sends this is refused: ${fault.message}`);
  // An integer that is rounded stays beyond the numbers that conditions read. A number that becomes infinite would be sent as `null`.
  const huge = infiniteNumber(text);
  if (huge === undefined) return args;
  throw new CliError(EXIT.usage, `--args: the number ${shownText(huge)} is too large to be explained`);
}

function objectIn(text: string, option: string): Record<string, unknown> {
  const value = jsonOf(text);
  if (isRecord(value)) return { ...value };
  throw new CliError(EXIT.usage, `${option}: expected a JSON object`);
}

const EFFECTS: Readonly<Record<ExplainAnswer['effect'], string>> = {
  allow: 'allowed',
  deny: 'denied',
  depends: 'allowed by some calls only',
  unknown: 'unknown',
};

function linesOf(answer: ExplainAnswer): readonly string[] {
  const { principal, view, kind, name, effect, isListed, groups, claims, reasons } = answer;
  const endpoint = endpointPath(view);
  // Nothing is known about the lists of another caller.
  const shown = isListed ? ', listed' : effect === 'unknown' ? '' : ', not listed';
  const rows = reasons.map(({ about, text, place }) => {
    const at = place === undefined ? '' : ` (${place})`;
    return `  ${about.padEnd(8)}  ${text}${at}`;
  });
  const first = `${kind} "${name}" at ${endpoint} for ${principal}: ${EFFECTS[effect]}${shown}`;
  const claimRows = (claims ?? []).map(({ name: claim, value = 'absent', isUsable }) => {
    const fault = isUsable || value === 'absent' ? '' : ', which is not of the declared type, so rules do not see it';
    return `  claim     ${claim}: ${value}${fault}`;
  });
  const groupRows = groups === undefined ? [] : [`  groups    ${groups.join(', ') || 'none'}`];
  return [first, ...groupRows, ...claimRows, ...rows];
}
