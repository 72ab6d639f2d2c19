import { comparisonsOf, ITEM_KINDS } from '../../policy/conditions/comparisons.ts';
import type { Faults } from '../document/faults.ts';
import type { Path } from '../document/problem.ts';
import { noSuch } from '../document/suggest.ts';
import type { Names } from './names.ts';
import type { SelectorJudge } from './selector-faults.ts';

/** All values that a variable of conditions can have. */
interface ClosedVariable {
  readonly what: string;
  readonly values: readonly string[];
  /** The values that are meant by other texts. */
  readonly meant?: ReadonlyMap<string, string>;
}

/** Adds a warning for each text in a condition that its variable can never have, so that the comparison never matches. */
export type JudgeCondition = (path: Path, when: string) => void;

/** Returns the judge of conditions that compile. */
export function conditionJudge(names: Names, selectors: SelectorJudge, faults: Faults): JudgeCondition {
  const { issuers, keyNames } = selectors;
  const { upstreams, views } = names;
  const variables = new Map<string, ClosedVariable>([
    ['upstream', { what: 'upstream', values: [...upstreams.values()], meant: upstreams }],
    ['endpoint', { what: 'endpoint', values: [...views.values()], meant: views }],
    ['tool.kind', { what: 'kind of item', values: ITEM_KINDS }],
    ['principal.issuer', { what: 'issuer in auth', values: issuers }],
    ...(keyNames === undefined ? [] : [['principal.keyName', { what: 'API key', values: keyNames }] as const]),
  ]);
  return (path, when) => {
    for (const { variable, text, character } of comparisonsOf(when)) {
      const closed = variables.get(variable);
      const ofGroup = variable === 'principal.groups' ? selectors.whyEmpty(text) : undefined;
      const why = closed === undefined ? ofGroup : faultOf(text, closed);
      if (why !== undefined) faults.warn(path, `${why} (at character ${character})`);
    }
  };
}

/** Returns why a variable never has a text, without the text, which may be the value of a variable of the environment. */
function faultOf(text: string, { what, values, meant }: ClosedVariable): string | undefined {
  if (values.includes(text)) return undefined;
  const id = meant?.get(text);
  return id === undefined
    ? noSuch(what, text, values)
    : `conditions name an ${what} by its id; write ${JSON.stringify(id)}`;
}
