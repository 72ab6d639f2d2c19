import { endpointPath } from '../../endpoint-path.ts';
import { comparisonsOf, ITEM_KINDS } from '../../policy/comparisons.ts';
import type { Document } from '../document/document.ts';
import { type Path, problemLine } from '../document/problem.ts';
import { didYouMean, suggest } from '../document/suggest.ts';
import type { SelectorJudge } from './selector-faults.ts';

/** All values that a variable of conditions can have. */
interface ClosedVariable {
  readonly what: string;
  readonly values: readonly string[];
  /** Returns the value that is meant by another text; undefined if it means none. */
  readonly meant?: (text: string) => string | undefined;
}

/** The names in a config that conditions may compare variables with. */
export interface ConditionNames {
  /** The key of every upstream in the file by its id, disabled ones included. */
  readonly upstreams: ReadonlyMap<string, string>;
  readonly profiles: readonly string[];
  readonly selectors: SelectorJudge;
}

/** Returns a warning for each text in a condition that its variable can never have, so that the comparison never matches. */
export type JudgeCondition = (path: Path, when: string) => readonly string[];

/** Returns the judge of conditions that compile. */
export function conditionJudge(document: Document, { upstreams, profiles, selectors }: ConditionNames): JudgeCondition {
  const { issuers, keyNames } = selectors;
  const ids = [...upstreams.keys()];
  const views = ['', ...ids, ...profiles];
  const byKey = new Map([...upstreams].map(([id, key]) => [key, id]));
  const viewOf = (path: string) => views.find((view) => path === endpointPath(view));
  const variables = new Map<string, ClosedVariable>([
    ['upstream', { what: 'upstream', values: ids, meant: (text) => byKey.get(text) }],
    ['endpoint', { what: 'endpoint', values: views, meant: viewOf }],
    ['tool.kind', { what: 'kind of item', values: ITEM_KINDS }],
    ['principal.issuer', { what: 'issuer in auth', values: issuers }],
    ...(keyNames === undefined ? [] : [['principal.keyName', { what: 'API key', values: keyNames }] as const]),
  ]);
  return (path, when) =>
    comparisonsOf(when).flatMap(({ variable, text, character }) => {
      const closed = variables.get(variable);
      const ofGroup = variable === 'principal.groups' ? selectors.whyEmpty(text) : undefined;
      const why = closed === undefined ? ofGroup : faultOf(text, closed);
      return why === undefined ? [] : [problemLine(document.problem(path, `${why} (at character ${character})`))];
    });
}

/** Returns why a variable never has a text, without the text, which may be the value of a variable of the environment. */
function faultOf(text: string, { what, values, meant }: ClosedVariable): string | undefined {
  if (values.includes(text)) return undefined;
  const id = meant?.(text);
  if (id !== undefined) return `conditions name an ${what} by its id; write ${JSON.stringify(id)}`;
  return `no such ${what}${didYouMean(suggest(text, values))}`;
}
